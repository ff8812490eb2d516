"""What goes wrong in programs that use a Learner: every mistake is told, and nothing is silently another thing."""

import math

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from tests.engine.test_open_learner import TRAINING, loader, open_learner, points, trunk
from ucb.data.streams import from_arrays
from ucb.data.streams.loaders import LoaderExamples
from ucb.engine import Learner, Observer
from ucb.nets import HeadedNet


def learnt(method="ord-ft", tasks=2, **options):
    made = open_learner(method, **options)
    for index in range(tasks):
        made.learn(points(index), test=points(index))
    return made


@pytest.mark.parametrize("scenario", ["task-incremental", "domain-incremental", "class-incremental"])
def test_evaluate_judges_the_data_that_it_is_given(scenario):
    made = learnt(scenario=scenario)
    (x, y), right = points(1), made.run.progress.metrics_last[1].accuracy
    for given in ((x, y), (x.numpy(), y.numpy()), DataLoader(TensorDataset(x, y), 50)):
        assert made.evaluate(given, task=1).accuracy == right
    if scenario != "class-incremental":
        assert made.evaluate((x, 1 - y), task=1).accuracy == pytest.approx(100 - right)
    for wrong, error in ((-1, ValueError), (2, ValueError), (None, TypeError), ("task 1", TypeError)):
        with pytest.raises(error, match=r"no task|told by its index"):
            made.evaluate((x, y), task=wrong)
    with pytest.raises(TypeError, match="no data to judge"):
        made.evaluate(None)


@pytest.mark.parametrize("rows", [50, 400])
def test_arrays_of_different_lengths_are_refused(rows):
    x, y = points(0)
    with pytest.raises(ValueError, match=f"task 1: inputs of 300 examples do not fit {rows} targets"):
        open_learner().learn((x, y.repeat(2)[:rows]))


class Failing:
    """Test data that cannot be read the n-th time."""

    def __init__(self, batches, moment):
        self.batches, self.left = batches, moment

    def __iter__(self):
        self.left -= 1
        if self.left == 0:
            raise OSError("the disk is gone")
        return iter(self.batches)


@pytest.mark.parametrize("method", ["ucb", "ewc", "hat", "ucb-p", "si", "lwf"])
@pytest.mark.parametrize("moment", [3, 4])  # when it is judged after the first task, and perhaps before its end
def test_a_task_whose_judging_failed_is_not_learnt_twice(method, moment):
    whole, cut = open_learner(method), open_learner(method)
    judged = [list(loader(index)) for index in range(2)]
    failed = 0
    for index, test in enumerate((Failing(judged[0], moment), judged[1])):
        whole.learn(loader(index), test=judged[index])
        while True:
            try:
                cut.learn(loader(index), test=test)
                break
            except OSError:
                failed += 1
    assert failed == 1
    ours, theirs = cut.net.state_dict(), whole.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert cut.run.progress.before == whole.run.progress.before
    assert cut.run.progress.before_end == whole.run.progress.before_end


@pytest.mark.parametrize("method", ["ord-fe", "ord-ft", "packnet", "ucb-p", "ucb", "ewc", "mas", "imm-mode", "si"])
def test_what_is_frozen_stays(method):
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU())
    net[0].requires_grad_(False)
    settings = {"samples": 2} if method.startswith("ucb") else {}
    made = Learner(net, method=method, training=TRAINING, **settings)
    for index in range(2):
        made.learn(loader(index))
    found = made.net.trunk[0]
    weight = found.posterior["weight"].mu if hasattr(found, "posterior") else found.weight
    assert torch.equal(weight, net[0].weight)
    learning = next(value for name, value in made.net.state_dict().items() if "trunk.2" in name)
    assert not torch.equal(learning, net[2].weight)


@pytest.mark.parametrize("method", ["ucb-p", "ewc", "mas", "imm-mode", "vcl"])
def test_one_head_that_is_there_is_not_taken_for_one_that_all_share(method):
    bare, headed = open_learner(method), open_learner(method)
    headed._nets.net = HeadedNet(trunk(), 16, [2])
    headed._nets.net.heads[0].load_state_dict(headed._nets.make_layer(16, 2, 0).state_dict())
    for index in range(3):
        bare.learn(loader(index), test=loader(index))
        headed.learn(loader(index), test=loader(index))
    assert headed.matrix.after == bare.matrix.after


def test_a_loaders_examples_are_counted_as_they_come():
    data = TensorDataset(*points(0))
    rows = [list(range(16)), list(range(16, 32))]
    cases = [
        (DataLoader(data, batch_sampler=rows), 32, 2),
        (DataLoader(data, batch_size=32, drop_last=True), 288, 9),
        (DataLoader(data, batch_size=32), 300, 10),
        (DataLoader(data, batch_size=32, sampler=SubsetRandomSampler(range(40))), 40, 2),
        (DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 50, drop_last=True)), 300, 6),
        (DataLoader(data, batch_size=32, sampler=Lying()), 300, 10),
        ([next(iter(loader(0)))], 32, 1),
    ]
    for given, examples, batches in cases:
        found = LoaderExamples(given)
        assert (len(found), found.num_batches(7)) == (examples, batches)


class Lying:
    def __len__(self):
        return 5

    def __iter__(self):
        return iter(range(300))


def test_other_data_are_not_taken_for_those_of_a_task_under_way():
    class Cut(Observer):
        def batch_learnt(self, task, epoch, batch, batches):
            if batch == 3:
                raise KeyboardInterrupt

    made = open_learner(observer=Cut())
    with pytest.raises(KeyboardInterrupt):
        made.learn(loader(0))
    with pytest.raises(ValueError, match="'task 1' is under way with 300 examples, and these are 100"):
        made.learn(DataLoader(TensorDataset(*points(1, 100)), 32))


def test_the_programs_random_numbers_and_the_learners_are_apart():
    found = []
    for seed in (1, 2):
        net = torch.nn.Sequential(trunk(), torch.nn.Dropout(0.5))
        torch.manual_seed(seed)
        wanted = torch.randn(3)
        torch.manual_seed(seed)
        made = Learner(net, method="ord-ft", training=TRAINING)
        made.learn(loader(0))
        assert torch.equal(torch.randn(3), wanted)
        found.append(made.net.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_task_that_cannot_be_learnt_leaves_no_trace(tmp_path):
    x, y = points(0)
    made, like = open_learner(), open_learner()
    for _ in range(2):
        with pytest.raises(ValueError, match="label 2 is not one of this task's: 0, 1"):
            made.learn(DataLoader(TensorDataset(x, y), 32), test=DataLoader(TensorDataset(x, y + 1), 32))
    for each in (made, like):
        each.learn(loader(0), test=loader(0), name="first", classes=3)
    with pytest.raises(ValueError, match="label 2"):
        made.learn(loader(1), test=DataLoader(TensorDataset(x, y + 1), 32))
    for each in (made, like):
        each.learn(loader(1), test=loader(1), name="second")
    assert made.matrix.after == like.matrix.after
    assert [task.name for task in made.tasks] == ["first", "second"]


@pytest.mark.parametrize("rare", range(0, 300, 29))
def test_a_class_that_only_the_held_out_examples_have_is_found(rare):
    x, y = points(0)
    y[rare] = 2
    made = open_learner("ord-ft")
    made.learn(TensorDataset(x, y))
    assert made.tasks[0].labels == (0, 1, 2)


def test_labels_must_be_those_of_the_first_task_where_outputs_are_shared():
    made = open_learner(scenario="domain-incremental")
    x, y = points(0)
    made.learn((x, y))
    with pytest.raises(ValueError, match="must have the labels 0, 1"):
        made.learn((x, y + 1))


class Shrinking:
    def __init__(self):
        self.batches = list(loader(0))

    def __iter__(self):
        self.batches = self.batches[:-1]
        return iter(list(self.batches))


class Single(IterableDataset):
    def __iter__(self):
        return iter(zip(*points(0), strict=True))


def test_what_can_be_no_data_is_told():
    x, y = points(0)
    made = open_learner()
    for given, error, said in (
        (None, TypeError, "no data to learn from"),
        ((x, y.tolist()), TypeError, "pair of arrays"),
        ({"x": x, "labels": y}, TypeError, "pair of arrays"),
        ("folder", TypeError, "pair of arrays"),
        (DataLoader(TensorDataset(x, y), batch_size=None), TypeError, "yields single examples"),
        (Shrinking(), ValueError, "ended before the .* batches"),
    ):
        with pytest.raises(error, match=said):
            made.learn(given)
    with pytest.raises(TypeError, match="arrays for training need arrays for judging"):
        made.learn((x, y), validation=TensorDataset(x, y))
    for classes in ("01", [0, 1, 1], 0, [], [0.5], 1.5):
        with pytest.raises((TypeError, ValueError), match="classes must be"):
            made.learn((x, y), classes=classes)
    for classes in (np.int64(2), torch.tensor([0, 1]), range(2), (0, 1)):
        open_learner("ord-ft").learn((x, y), classes=classes)
    other = open_learner()
    other.learn(Single())
    assert other.run.progress.task == 1


def test_inputs_of_a_prediction_may_be_arrays_and_others_are_told():
    made = learnt()
    x = points(0)[0]
    wanted = made.predict(x, 0).probabilities
    assert torch.equal(made.predict(x.double().numpy(), 0).probabilities, wanted)
    with pytest.raises(TypeError, match="told by its index"):
        made.predict(x, 1.0)
    with pytest.raises(TypeError, match="a batch of them"):
        made.predict(loader(0), 0)


def test_a_net_in_double_precision_learns():
    x, y = points(0)
    made = Learner(trunk().double(), method="ucb", training=TRAINING, samples=2)
    made.learn(DataLoader(TensorDataset(x.double(), y), 32), test=DataLoader(TensorDataset(x.double(), y), 32))
    assert made.net.heads[0].posterior["weight"].mu.dtype == torch.float64
    assert math.isfinite(made.matrix.acc)


def test_what_a_file_does_not_go_with_is_told(tmp_path):
    made = learnt("ucb")
    made.save(tmp_path / "model")
    wide = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    for options, said in (
        ({"net": wide}, "does not fit this net"),
        ({"net": trunk(), "method": "ewc"}, "of a learner with ucb, not ewc"),
        ({"net": trunk(), "stream": made.run.stream}, "leave the stream out"),
        ({"net": trunk(), "scenario": "domain-incremental"}, "scenario was 'task-incremental'"),
    ):
        with pytest.raises(ValueError, match=said):
            Learner.load(tmp_path / "model", **options)
    with pytest.raises(TypeError, match="not a int"):
        Learner.load(tmp_path / "model", 3)
    stream = from_arrays("mine", [(*points(index), *points(index)) for index in range(2)])
    fixed = Learner(HeadedNet(trunk(), 16, [2, 2]), stream, "ord-ft")
    fixed.save(tmp_path / "fixed")
    with pytest.raises(ValueError, match="of a learner with a stream: give it"):
        Learner.load(tmp_path / "fixed", trunk())


def test_loading_leaves_the_programs_random_numbers_alone(tmp_path):
    learnt().save(tmp_path / "model")
    net = trunk()
    torch.manual_seed(5)
    wanted = torch.randn(2)
    torch.manual_seed(5)
    Learner.load(tmp_path / "model", net)
    assert torch.equal(torch.randn(2), wanted)
