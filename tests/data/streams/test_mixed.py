"""Several tasks as one: joint training, and streams without boundaries."""

import math

import pytest
import torch

from tests.engine.runs import figures, small_run, weights
from ucb.data.streams import Scenario, Source, blur_boundaries, permute_pixels, split_by_classes
from ucb.methods import known_methods
from ucb.testing import tiny_stream

CPU = torch.device("cpu")
SHARED = Scenario("one", task_known=False, shared_outputs=True)


def numbered(scenario=SHARED, tasks=3, size=400):
    """A stream in which every example's first pixel says which one it is."""
    x = torch.zeros(size, 1, 2, 2)
    x[:, 0, 0, 0] = torch.arange(size)
    y = torch.arange(size) % 2
    data = Source("numbers", x, y, x[:50], y[:50])
    return permute_pixels("numbers", data, tasks, scenario=scenario)


def read(examples, order=None, batch_size=7):
    order = torch.arange(len(examples)) if order is None else order
    return [torch.cat(part) for part in zip(*examples.batches(order, batch_size, CPU), strict=True)]


def test_mixed_examples_come_prepared_in_the_order_asked_for():
    stream = numbered()
    joint = stream.joint(2)
    ends = [len(task.train) for task in stream.tasks]
    assert len(joint.train) == sum(ends)
    order = torch.randperm(sum(ends), generator=torch.Generator().manual_seed(1))
    x, y = read(joint.train, order)
    for place in range(0, len(order), 17):
        task, row = divmod(int(order[place]), ends[0])
        raw, label = next(iter(stream.tasks[task].train.batches(torch.tensor([row]), 1, CPU)))
        assert torch.equal(x[place], stream.tasks[task].prepare(raw)[0])
        assert y[place] == label[0]
    assert joint.train.numbers_each == 4
    for own, wanted in zip(zip(*joint.train.in_order(7, CPU), strict=True), read(joint.train), strict=True):
        assert torch.equal(torch.cat(own), wanted)


@pytest.mark.parametrize(
    ("scenario", "labels"),
    [(Scenario(), [0, 1, 2, 3]), (Scenario("one"), [0, 1, 2, 3]), (Scenario("one", shared_outputs=True), [0, 1])],
)
def test_joint_labels_number_the_outputs_side_by_side(scenario, labels):
    x = torch.arange(40.0).reshape(40, 1)
    y = torch.arange(40) % 4
    stream = split_by_classes("four", Source("four", x, y, x, y), [[0, 1], [2, 3]], scenario=scenario)
    _, found = read(stream.joint(1).train)
    assert sorted(set(found.tolist())) == labels
    _, first = read(stream.joint(0).train)
    assert sorted(set(first.tolist())) == [0, 1]


def test_without_blur_each_piece_is_one_task_and_nothing_is_lost():
    stream = numbered()
    pieces = blur_boundaries(stream, 0.0).tasks
    for task, piece in zip(stream.tasks, pieces, strict=True):
        own = torch.stack([task.prepare(x)[0] for x, _ in task.train.batches(torch.arange(len(task.train)), 1, CPU)])
        mixed, _ = read(piece.train)
        assert torch.equal(own.flatten(1).sort(0).values, mixed.flatten(1).sort(0).values)


@pytest.mark.parametrize("blur", [0.25, 1.0])
def test_tasks_fade_into_each_other_as_the_trapezoid_says(blur):
    """A share of blur / 8 of a task comes on each side of its own time; every example comes once."""
    stream = numbered(size=4000)
    size = len(stream.tasks[0].train)
    pieces = [piece.train.rows for piece in blur_boundaries(stream, blur).tasks]
    assert torch.equal(torch.cat(pieces).sort().values, torch.arange(3 * size))
    before, own, after = ((piece // size == 1).sum().item() / size for piece in pieces)
    error = math.sqrt(blur / 8 / size)
    assert abs(before - blur / 8) < 5 * error
    assert abs(after - blur / 8) < 5 * error
    assert abs(own - (1 - blur / 4)) < 8 * error
    # In the middle piece the foreign examples crowd at its edges.
    foreign = (pieces[1] // size != 1).float().chunk(4)
    assert foreign[0].mean() > foreign[1].mean()
    assert foreign[3].mean() > foreign[2].mean()


def test_a_blurred_stream_keeps_each_tasks_test_data():
    stream = numbered()
    for task, piece in zip(stream.tasks, blur_boundaries(stream, 0.5).tasks, strict=True):
        x, y = read(task.test)
        assert all(torch.equal(a, b) for a, b in zip(read(piece.test), (task.prepare(x), y), strict=True))


@pytest.mark.parametrize("blur", [-0.1, 1.1, math.nan])
def test_blur_out_of_range_is_refused(blur):
    with pytest.raises(ValueError, match="between 0 and 1"):
        blur_boundaries(numbered(), blur)


def test_tasks_with_outputs_of_their_own_cannot_fade():
    with pytest.raises(ValueError, match="share their outputs"):
        blur_boundaries(tiny_stream(), 0.5)


FREE = [name for name, kind in known_methods().items() if not kind.needs_boundaries]
BOUND = [name for name, kind in known_methods().items() if kind.needs_boundaries]


def faded():
    return blur_boundaries(tiny_stream(scenario=SHARED), 0.5)


def test_the_paper_claims_no_boundaries_for_ucb():
    assert {"ucb", "ucb-ng", "uniform-lr", "ord-ft", "bbb-ft"} == set(FREE)


@pytest.mark.parametrize("name", BOUND)
def test_methods_that_need_boundaries_say_so(name):
    with pytest.raises(ValueError, match=rf"{name} must be told"):
        small_run(name, stream=faded())


@pytest.mark.parametrize("name", FREE)
def test_the_learner_is_told_of_one_beginning_and_no_end(name, tmp_path):
    run, told = small_run(name, tmp_path, stream=faded()), []
    begin, end = run.method.begin_task, run.method.end_task
    run.method.begin_task = lambda task: (told.append(task), begin(task))
    run.method.end_task = lambda data: (told.append("end"), end(data))
    run.learn()
    assert [task.boundaries for task in told] == [False]
    assert run.progress.epochs_used == [1, 1, 1]
    assert len(run.matrix.after) == 3


@pytest.mark.parametrize("name", FREE)
def test_a_blurred_run_goes_on_bit_for_bit(name, tmp_path):
    whole = small_run(name, stream=faded())
    whole.learn()
    cut = small_run(name, tmp_path, stream=faded())
    cut.learn_task()
    fresh = small_run(name, tmp_path, stream=faded())
    assert fresh.resume()
    fresh.learn()
    assert figures(fresh) == figures(whole)
    assert all(torch.equal(weights(fresh)[key], value) for key, value in weights(whole).items())
