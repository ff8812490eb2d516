import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from tests.data.streams.reading import everything
from ucb.data.streams import (
    Preparation,
    Scenario,
    Source,
    from_arrays,
    from_datasets,
    permute_pixels,
    sequence,
    split_by_classes,
)

HIDDEN = Scenario("one", task_known=False)


def arrays(labels=(3, 5, 8, 13), size=80, start=0):
    """Examples that say who they are: number i is a row of i's, with the i-th label."""
    x = torch.arange(start, start + size).float().view(-1, 1).repeat(1, 6)
    y = torch.tensor(labels)[torch.arange(size) % len(labels)]
    return x, y, x[:20] + 1000, y[:20]


def identities(examples):
    return everything(examples)[0][:, 0].long().tolist()


@pytest.mark.parametrize("form", ["split", "permuted", "sequence", "arrays", "datasets"])
def test_validation_is_apart_and_nothing_is_lost(form):
    x, y, x_test, y_test = arrays()
    stream = {
        "split": lambda: split_by_classes("s", Source("d", *arrays()), [(3, 5, 8, 13)]),
        "permuted": lambda: permute_pixels("s", Source("d", *arrays()), 2),
        "sequence": lambda: sequence("s", [Source("d", *arrays())]),
        "arrays": lambda: from_arrays("s", [arrays()]),
        "datasets": lambda: from_datasets("s", [(TensorDataset(x, y), TensorDataset(x_test, y_test))]),
    }[form]()
    for task in stream.tasks:
        train, held_out = identities(task.train), identities(task.validation)
        assert len(held_out) == 12  # 15 % of 80
        assert sorted(train + held_out) == list(range(80))
        assert identities(task.test) == list(range(1000, 1020))


def splits(stream):
    return [identities(task.validation) for task in stream.tasks]


def make(form, seed):
    if form == "split":
        return split_by_classes("s", Source("d", *arrays()), [(3, 5), (8, 13)], seed=seed)
    if form == "permuted":
        return permute_pixels("s", Source("d", *arrays()), 2, seed=seed)
    if form == "arrays":
        return from_arrays("s", [arrays(), arrays()], seed=seed)
    x, y, x_test, y_test = arrays()
    return from_datasets("s", [(TensorDataset(x, y), TensorDataset(x_test, y_test))] * 2, seed=seed)


@pytest.mark.parametrize("form", ["split", "permuted", "arrays", "datasets"])
def test_a_seed_and_nothing_else_decides(form):
    torch.manual_seed(1)
    one = make(form, 7)
    torch.manual_seed(2)
    np.random.default_rng().random()
    state = torch.get_rng_state()
    two = make(form, 7)
    assert torch.equal(torch.get_rng_state(), state)
    assert splits(one) == splits(two)
    assert splits(make(form, 8)) != splits(one)
    for a, b in zip(one.tasks, two.tasks, strict=True):
        if form == "permuted":
            assert torch.equal(a.prepare.permutation, b.prepare.permutation)


def test_another_seed_permutes_otherwise():
    one, two = (permute_pixels("s", Source("d", *arrays()), 3, seed=seed) for seed in (7, 8))
    orders = [[task.prepare.permutation.tolist() for task in stream.tasks] for stream in (one, two)]
    assert orders[0] != orders[1]


def test_tasks_of_one_stream_hold_out_different_examples():
    assert splits(make("arrays", 0))[0] != splits(make("arrays", 0))[1]


def test_arrays_and_data_sets_give_the_same_tasks():
    assert splits(make("arrays", 3)) == splits(make("datasets", 3))
    for a, b in zip(make("arrays", 3).tasks, make("datasets", 3).tasks, strict=True):
        assert (a.name, a.classes) == (b.name, b.classes)
        for part in ("train", "validation", "test"):
            for got, wanted in zip(everything(getattr(a, part)), everything(getattr(b, part)), strict=True):
                assert torch.equal(got, wanted)


def test_labels_are_numbered_from_0_inside_a_task():
    groups = [(13, 3), (8,)]
    names = ["three", "five", "eight", "thirteen"]
    stream = split_by_classes("s", Source("d", *arrays(), classes=names), groups, scenario=HIDDEN)
    first, second = stream.tasks
    assert (first.name, first.classes) == ("thirteen/three", ("thirteen", "three"))
    assert (second.name, second.classes) == ("eight", ("eight",))
    for part in (first.train, first.validation, first.test):
        x, y = everything(part)
        position = x[:, 0].long() % 1000 % 4  # 0: label 3; 3: label 13
        assert torch.equal(y, (position == 0).long())
        assert set(position.tolist()) <= {0, 3}
    assert set(everything(second.train)[1].tolist()) == {0}
    assert stream.head_sizes == (3,)
    assert stream.outputs_of(1) == range(2, 3)


def test_far_and_negative_labels_are_numbered_too():
    task = from_arrays("s", [arrays(labels=(-(10**15), 0, 10**15))]).tasks[0]
    assert task.classes == (str(-(10**15)), "0", str(10**15))
    x, y = everything(task.train)
    assert torch.equal(y, x[:, 0].long() % 3)


def test_one_permutation_for_all_of_a_task_and_another_for_the_next():
    x = torch.randint(0, 256, (80, 1, 3, 2), dtype=torch.uint8)
    _, y, _, y_test = arrays()
    data = Source("d", x, y, x[:20], y_test, prepare=Preparation((0.5,), (0.25,)))
    stream = permute_pixels("s", data, 10, seed=1)
    orders = [task.prepare.permutation for task in stream.tasks]
    assert len({tuple(order.tolist()) for order in orders}) == 10
    for task, order in zip(stream.tasks, orders, strict=True):
        assert sorted(order.tolist()) == list(range(6))
        for part in (task.train, task.validation, task.test):
            plain = (everything(part)[0].double() / 255 - 0.5) / 0.25
            got = everything(part, task.prepare)[0].double()
            assert torch.allclose(got.flatten(1), plain.flatten(1)[:, order], atol=1e-6)
    assert [task.name for task in stream.tasks[:2]] == ["permutation 1", "permutation 2"]


def test_a_short_stream_is_the_start_of_a_long_one():
    long, short = permute_pixels("s", Source("d", *arrays()), 5), permute_pixels("s", Source("d", *arrays()), 2)
    assert splits(long)[:2] == splits(short)
    for a, b in zip(long.tasks[:2], short.tasks, strict=True):
        assert torch.equal(a.prepare.permutation, b.prepare.permutation)


def test_a_sequence_keeps_names_preparations_and_shapes():
    grey = Preparation((0.1,), (0.2,))
    coloured = (torch.zeros(9, 3, 2, 2), torch.arange(9) % 3, torch.zeros(3, 3, 2, 2), torch.arange(3))
    stream = sequence("s", [Source("one", *arrays(), prepare=grey), Source("two", *coloured)], scenario=HIDDEN)
    assert [task.name for task in stream.tasks] == ["one", "two"]
    assert stream.tasks[0].prepare is grey
    assert stream.head_sizes == (7,)
    assert everything(stream.tasks[1].test)[0].shape == (3, 3, 2, 2)


def test_numpy_arrays_and_names_in_one_line():
    x, y, x_test, y_test = (part.numpy() for part in arrays())
    frozen = x.astype(np.float64)
    frozen.flags.writeable = False
    parts = (frozen, y.astype(np.uint8), x_test.astype(np.float64), y_test.astype(np.int32))
    task = from_arrays("s", {"mine": parts}).tasks[0]
    assert task.name == "mine"
    x, y = everything(task.train)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(y, x[:, 0].long() % 4)


class Labelled(TensorDataset):
    """A data set that says what its labels are, and whose items may not be read before they are needed."""

    def __init__(self, *tensors, **said):
        super().__init__(*tensors)
        for name, value in said.items():
            setattr(self, name, value)
        self.reads = 0

    def __getitem__(self, item):
        self.reads += 1
        return super().__getitem__(item)


@pytest.mark.parametrize(
    ("said", "classes"), [({"targets": [3, 5, 8, 13]}, ("3", "5", "8", "13")), ({}, ("3", "5", "8", "13"))]
)
def test_labels_of_a_data_set_are_found(said, classes):
    x, y, x_test, y_test = arrays()
    train = Labelled(x, y, **said)
    task = from_datasets("s", {"mine": (train, TensorDataset(x_test, y_test))}).tasks[0]
    assert train.reads == (0 if said else 80)
    assert (task.name, task.classes) == ("mine", classes)
    assert set(everything(task.test)[1].tolist()) == {0, 1, 2, 3}


def test_names_of_a_data_set_are_used():
    x, _, x_test, _ = arrays()
    train = Labelled(x, torch.arange(80) % 2, classes=["cat", "dog", "owl"])
    task = from_datasets("s", [(train, TensorDataset(x_test, torch.full((20,), 3)))]).tasks[0]
    assert task.classes == ("cat", "dog", "owl")
    assert train.reads == 0
    with pytest.raises(ValueError, match="the label 3 is not one of this task's: 0, 1, 2"):
        everything(task.test)


def source(**changes):
    x, y, x_test, y_test = arrays()
    return Source("d", **({"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test} | changes))


X, Y, X_TEST, Y_TEST = arrays()


@pytest.mark.parametrize(
    ("build", "error", "sentence"),
    [
        (lambda: source(y_train=Y[:79]), ValueError, "d: x_train has 80 examples, y_train 79 labels"),
        (lambda: source(x_test=X[:0], y_test=Y[:0]), ValueError, "d: there are no examples to test"),
        (lambda: source(x_test=X_TEST[:, :5]), ValueError, r"\(6,\) in training, \(5,\) in testing"),
        (lambda: source(y_test=Y_TEST + 1), ValueError, r"d: the test labels \[4, 6, 9, 14\] do not occur"),
        (lambda: source(classes=["a"]), ValueError, "d: 1 names for 4 classes"),
        (lambda: source(x_train=X.int()), TypeError, "d: x_train must be uint8 or floating point"),
        (lambda: source(x_train=X / 0), ValueError, "d: x_train holds NaN or infinity"),
        (lambda: source(y_train=Y.float()), TypeError, "d: y_train must be whole numbers"),
        (lambda: source(y_train=Y.tolist()), TypeError, "d: y_train must be an array or a tensor, not list"),
        (lambda: split_by_classes("s", source(), [(3, 4)]), ValueError, "d has no label 4; it has 3, 5, 8, 13"),
        (lambda: split_by_classes("s", source(), [(3,), (3,)]), ValueError, "listed twice"),
        (lambda: split_by_classes("s", source(), [(3,), ()]), ValueError, "group 2 has no labels"),
        (lambda: split_by_classes("s", source(), []), ValueError, "at least one task"),
        (
            lambda: split_by_classes("s", source(y_test=Y_TEST * 0 + 3), [(5,)]),
            ValueError,
            "the task '5' has no example",
        ),
        (lambda: permute_pixels("s", source(), 0), ValueError, "tasks must be at least 1, not 0"),
        (lambda: permute_pixels("s", source(), 1, seed=-1), ValueError, "seed must be at least 0, not -1"),
        (lambda: permute_pixels("s", source(), 1, validation=1.0), ValueError, "share between 0 and 1, not 1.0"),
        (lambda: permute_pixels("s", source(), 1, validation=0), ValueError, "share between 0 and 1, not 0"),
        (lambda: from_arrays("s", [(X[:1], Y[:1], X[:1], Y[:1])]), ValueError, "the task 'task 1' has 1 example"),
        (lambda: from_arrays("s", [(X, Y, X_TEST)]), ValueError, "task 1 must be .x_train, .* not 3 things"),
        (lambda: from_datasets("s", [(TensorDataset(X, Y),)]), ValueError, "task 1 must be .train, test., not 1"),
    ],
)
def test_bad_input_gets_a_sentence(build, error, sentence):
    with pytest.raises(error, match=sentence):
        build()
