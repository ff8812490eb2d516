import dataclasses

import pytest
import torch

from tests.data.streams.reading import CPU, everything
from ucb.data.streams import BENCHMARKS, Scenario, benchmark, load_mnist

# Digits of each kind for training and testing, as counted by others.
TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.parametrize(("name", "each"), [("mnist-2split", 5), ("mnist-5split", 2)])
def test_split_mnist(name, each):
    stream = benchmark(name, seed=0)
    assert len(stream) == 10 // each
    assert stream.head_sizes == (each,) * (10 // each)
    assert stream.scenario == Scenario("many", task_known=True)
    for index, task in enumerate(stream.tasks):
        digits = range(index * each, (index + 1) * each)
        assert task.classes == tuple(str(digit) for digit in digits)
        train, held_out, test = (everything(part)[1] for part in (task.train, task.validation, task.test))
        counts = train.bincount(minlength=each) + held_out.bincount(minlength=each)
        assert counts.tolist() == [TRAIN[digit] for digit in digits]
        assert test.bincount().tolist() == [TEST[digit] for digit in digits]
        assert len(held_out) == round(0.15 * (len(train) + len(held_out)))


def test_tasks_of_split_mnist_hold_the_digits_they_name():
    digits = load_mnist()
    task = benchmark("mnist-5split", seed=3).tasks[2]
    rows = torch.cat([task.train.rows.tensor, task.validation.rows.tensor])
    assert torch.equal(rows.sort().values, ((digits.y_train == 4) | (digits.y_train == 5)).nonzero().squeeze(1))
    x, y = everything(task.validation)
    assert torch.equal(x, digits.x_train[task.validation.rows.tensor])
    assert torch.equal(y + 4, digits.y_train[task.validation.rows.tensor])
    x, y = everything(task.test)
    of_the_task = (digits.y_test == 4) | (digits.y_test == 5)
    assert torch.equal(x, digits.x_test[of_the_task])
    assert torch.equal(y + 4, digits.y_test[of_the_task])


def test_permuted_mnist():
    stream = benchmark("mnist-permuted", seed=0)
    assert len(stream) == 10
    assert stream.head_sizes == (10,) * 10
    digits, identity = load_mnist(), torch.arange(784)
    for task in stream.tasks:
        assert (len(task.train), len(task.validation), len(task.test)) == (51000, 9000, 10000)
        assert int((task.prepare.permutation == identity).sum()) < 20  # 1 is expected
        x, y = next(task.test.batches(torch.arange(100), 100, CPU))
        wanted = ((digits.x_test[:100].double() / 255 - 0.1307) / 0.3081).flatten(1)[:, task.prepare.permutation]
        assert torch.allclose(task.prepare(x).double().flatten(1), wanted, atol=1e-5)
        assert task.prepare(x).shape == (100, 1, 28, 28)
        assert torch.equal(y, digits.y_test[:100])


def test_permuted_mnist_keeps_one_copy_of_the_images():
    stream = benchmark("mnist-permuted", seed=0)
    train = {id(part.x) for task in stream.tasks for part in (task.train, task.validation)}
    assert len(train) == len({id(task.test.x) for task in stream.tasks}) == 1
    first = stream.tasks[0]
    assert first.train.x.on(CPU).data_ptr() == load_mnist().x_train.data_ptr()
    assert benchmark("mnist-5split", seed=5).tasks[1].train.x is first.train.x


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name.startswith("mnist")])
def test_splits_depend_on_the_seed_alone(name):
    def held_out(seed, **form):
        return [task.validation.rows.tensor.tolist() for task in benchmark(name, seed, **form).tasks]

    torch.manual_seed(1)
    one = held_out(4)
    torch.manual_seed(2)
    assert held_out(4) == one
    assert held_out(4, tasks=1) == one[:1]
    assert held_out(4, single_head=True) == one
    assert held_out(5)[0] != one[0]


@pytest.mark.parametrize(
    ("name", "form", "outputs", "of_the_second"),
    [
        ("mnist-2split", {}, 10, range(5, 10)),
        ("mnist-5split", {}, 10, range(2, 4)),
        ("mnist-5split", {"tasks": 3}, 6, range(2, 4)),
        ("mnist-permuted", {}, 10, range(10)),
        ("mnist-permuted", {"shared_outputs": False}, 100, range(10, 20)),
        ("mnist-5split", {"shared_outputs": True}, 2, range(2)),
    ],
)
def test_single_head(name, form, outputs, of_the_second):
    stream = benchmark(name, seed=0, single_head=True, **form)
    assert stream.head_sizes == (outputs,)
    assert stream.outputs_of(1) == of_the_second
    assert stream.scenario.heads == "one"
    assert not stream.scenario.task_known
    told = benchmark(name, seed=0, single_head=True, task_told=True, **form)
    assert told.scenario == dataclasses.replace(stream.scenario, task_known=True)
    assert [told.outputs_of(i) for i in range(len(told))] == [stream.outputs_of(i) for i in range(len(told))]


def test_number_of_tasks():
    assert [task.name for task in benchmark("mnist-5split", 0, tasks=2).tasks] == ["0/1", "2/3"]
    assert len(benchmark("mnist-permuted", 0, tasks=13)) == 13
    assert len(benchmark("mnist-permuted", 0, tasks=1)) == 1


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: benchmark("mnist-5split", 0, tasks=6), "tasks must be between 1 and 5 for mnist-5split, not 6"),
        (lambda: benchmark("mnist-2split", 0, tasks=3), "tasks must be between 1 and 2 for mnist-2split, not 3"),
        (lambda: benchmark("mnist-5split", 0, tasks=0), "tasks must be between 1 and 5 for mnist-5split, not 0"),
        (lambda: benchmark("mnist-permuted", 0, tasks=0), "tasks must be at least 1 for mnist-permuted, not 0"),
        (lambda: benchmark("mnist-5split", seed=-1), "seed must be at least 0"),
        (lambda: benchmark("mnist-permuted", 0, shared_outputs=False), "only with a single head"),
        (lambda: benchmark("mnist-permuted", 0, task_told=True), "told or hidden only with a single head"),
        (lambda: benchmark("mnist-permuted", 0, single_head=True, task_told=True, blur=0.5), "are never told"),
        (lambda: benchmark("mnist-permuted", 0, single_head=True, shared_outputs=False, blur=0), "share their outputs"),
        (
            lambda: benchmark("mnist-5spilt", 0),
            "no benchmark 'mnist-5spilt': did you mean mnist-5split or mnist-2split",
        ),
        (lambda: benchmark("permuted-mnist", 0), "did you mean mnist-permuted"),
        (lambda: benchmark("MNIST-Permuted", 0), "did you mean mnist-permuted"),
        (lambda: benchmark("xyz", 0), "there are mnist-2split, mnist-5split, mnist-permuted"),
    ],
)
def test_a_wrong_request_says_what_is_right(ask, sentence):
    with pytest.raises(ValueError, match=sentence):
        ask()
