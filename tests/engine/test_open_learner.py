"""Tasks that come one by one, from loaders, data sets and arrays."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from tests.methods.anchor import Anchor
from ucb.bayes import Bernoulli, HeteroscedasticGaussian, LearntGaussian, Poisson
from ucb.data.streams import Scenario, Stream, benchmark, from_arrays
from ucb.data.streams.given import Handover
from ucb.data.streams.loaders import LoaderExamples, split_batch
from ucb.data.streams.tasks import TensorExamples
from ucb.engine import Learner, Observer, Schedule, Training
from ucb.methods import known_methods
from ucb.methods.ewc import EWC
from ucb.nets import HeadedNet
from ucb.nets.heads import GrowingHead

TRAINING = Training(Schedule(epochs=3), batch_size=32)
CPU = torch.device("cpu")


def points(index, size=300):
    """Points on two sides of a plane of their own."""
    random = torch.Generator().manual_seed(index)
    x, w = torch.randn(size, 8, generator=random), torch.randn(8, generator=random)
    return x, (x @ w > 0).long()


def loader(index, **options):
    return DataLoader(TensorDataset(*points(index)), **{"batch_size": 32, "shuffle": True, **options})


def trunk(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())


def open_learner(method="ucb", seed=0, **options):
    samples = {"samples": 2} if hasattr(known_methods()[method].settings_type, "samples") else {}
    return Learner(trunk(seed), method=method, training=TRAINING, **samples, **options)


GROWING = [name for name, kind in known_methods().items() if kind.can_grow and not kind.is_joint]


@pytest.mark.parametrize("method", GROWING)
def test_loaders_that_come_one_by_one_give_what_the_stream_made_beforehand_gives(method):
    growing = open_learner(method)
    for index in range(5):
        growing.learn(loader(index), test=loader(index))
    tasks = [Handover(f"task {i + 1}", i, 32).make_task(loader(i), None, loader(i)) for i in range(5)]
    samples = {"samples": 2} if hasattr(known_methods()[method].settings_type, "samples") else {}
    whole = Learner(trunk(), Stream("all", tuple(tasks)), method, training=TRAINING, **samples)
    for task in tasks:
        whole.learn(task)
    assert growing.matrix.after == whole.matrix.after
    ours, theirs = growing.net.state_dict(), whole.net.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_arrays_give_what_a_stream_of_arrays_gives():
    growing = open_learner()
    for index in range(3):
        growing.learn(points(index), test=points(index))
    stream = from_arrays("mine", [(*points(index), *points(index)) for index in range(3)])
    whole = Learner(trunk(), stream, "ucb", training=TRAINING, samples=2)
    for task in stream.tasks:
        whole.learn(task)
    assert growing.matrix.after == whole.matrix.after


@pytest.mark.parametrize("method", GROWING)
def test_outputs_of_one_head_grow(method):
    told = known_methods()[method].needs_task
    made = open_learner(method, scenario=Scenario("one") if told else "class-incremental")
    if method == "hat":
        with pytest.raises(ValueError, match="a net whose head is a GrowingHead cannot be split into stages"):
            made.learn(loader(0))
        return
    for index in range(3):
        row = made.learn(loader(index), test=loader(index))
        assert made.net.heads[0].out_features == 2 * (index + 1)
    assert isinstance(made.net.heads[0], GrowingHead)
    assert made.net.shares_head
    assert row[-1].accuracy > (50 if told else 25), "above chance: new outputs learn"
    assert all(math.isfinite(judged.accuracy) for judged in row)
    assert made.predict(points(0)[0], task=0 if told else None).probabilities.shape == (300, 2 if told else 6)
    assert math.isfinite(made.evaluate(loader(1), task=1).nll)


def test_what_old_outputs_say_does_not_change_when_outputs_come():
    made = open_learner("ord-ft", scenario="class-incremental")
    made.learn(loader(0))
    x = points(0)[0]
    before = made.net(x).detach()
    made._add(Handover("more", 1, 32).make_task(loader(1), None, None))
    assert torch.equal(made.net(x)[:, :2], before)
    assert made.net(x).shape == (300, 4)


@pytest.mark.parametrize("method", ["ord-jt", "bbb-jt"])
def test_joint_training_keeps_arrays_and_refuses_loaders(method):
    made = open_learner(method)
    for index in range(2):
        row = made.learn(points(index), test=points(index))
    assert min(judged.accuracy for judged in row) > 55
    with pytest.raises(TypeError, match="a loader decides the order"):
        made.learn(loader(2))


def test_old_data_is_not_kept():
    made = open_learner()
    made.learn(points(0), test=points(0))
    assert len(made.run.stream.tasks[0].train) == len(made.run.stream.tasks[0].validation) == 0
    assert len(made.run.stream.tasks[0].test) == 300


def test_methods_that_must_know_all_tasks_say_so():
    for method in ("pnn", "pathnet"):
        with pytest.raises(ValueError, match=f"{method} must know all tasks beforehand"):
            open_learner(method)


def test_a_method_may_be_a_class_or_an_object():
    by_name, by_class = open_learner("ewc"), Learner(trunk(), method=EWC, training=TRAINING)
    stream = from_arrays("mine", [(*points(index), *points(index)) for index in range(2)])
    net = HeadedNet(trunk(), 16, stream.head_sizes)
    by_object = Learner(stream=stream, method=EWC(net, EWC.settings_type(), torch.Generator()), training=TRAINING)
    for index, task in enumerate(stream.tasks):
        by_name.learn(loader(index), test=loader(index))
        by_class.learn(loader(index), test=loader(index))
        by_object.learn(task)
    assert by_name.matrix.after == by_class.matrix.after
    assert by_object.net is net
    assert by_object.matrix.learning > 55
    with pytest.raises(ValueError, match="has its net and its settings"):
        Learner(trunk(), method=by_object.run.method)


def test_a_method_of_others_learns_by_class_and_by_path(tmp_path):
    by_class = Learner(trunk(), method=Anchor, training=TRAINING)
    by_path = Learner(trunk(), method="tests.methods.anchor:Anchor", training=TRAINING)
    for index in range(2):
        by_class.learn(loader(index), test=loader(index))
        by_path.learn(loader(index), test=loader(index))
    assert by_class.matrix.after == by_path.matrix.after
    by_path.save(tmp_path / "model")
    with pytest.raises(ValueError, match="there is no method 'anchor'"):
        Learner.load(tmp_path / "model", trunk())  # a file imports nothing
    again = Learner.load(tmp_path / "model", trunk(), method=Anchor)
    assert torch.equal(again.predict(points(0)[0], 0).probabilities, by_class.predict(points(0)[0], 0).probabilities)


def test_an_object_learns_as_many_tasks_as_it_has_heads():
    net = HeadedNet(trunk(), 16, [2, 2])
    made = Learner(method=EWC(net, EWC.settings_type(), torch.Generator()), training=TRAINING)
    made.learn(loader(0))
    made.learn(loader(1))
    with pytest.raises(ValueError, match=r"heads have \[2, 2\] outputs, and the tasks need \[2, 2, 2\]"):
        made.learn(loader(2))


def test_a_net_with_heads_keeps_them_and_gets_more():
    net = HeadedNet(trunk(), 16, [2])
    first = net.heads[0].weight.detach().clone()
    made = Learner(net, method="ord-fe", training=Training(Schedule(epochs=1)), lr=1e-3)
    made.learn(loader(0))
    made.learn(loader(1))
    assert len(made.net.heads) == 2
    assert torch.allclose(made.net.heads[0].weight, first, atol=0.01)
    with pytest.raises(ValueError, match=r"heads have \[3\] outputs, and the tasks need \[2\]"):
        Learner(HeadedNet(trunk(), 16, [3]), method="ord-ft").learn(loader(0))


class Generated(Dataset):
    """Examples with labels of their own, as mappings."""

    def __init__(self, index, labels=(3, 7)):
        (self.x, y), self.labels = points(index), labels
        self.y = torch.tensor(labels)[y]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, item):
        return {"x": self.x[item], "labels": self.y[item]}


class Keyword(torch.nn.Module):
    """A trunk that knows its input by name."""

    def __init__(self):
        super().__init__()
        self.inner = trunk()

    def forward(self, *, x):
        return self.inner(x)


def test_labels_are_numbered_whatever_they_are():
    plain, mapped = open_learner(), Learner(Keyword(), method="ord-ft", training=TRAINING, lr=0.3)
    x, y = points(0)
    plain.learn((x, torch.tensor([5, 900])[y]), test=(x, torch.tensor([5, 900])[y]))
    assert plain.run.stream.tasks[0].classes == ("5", "900")
    mapped.learn(Generated(0), test=Generated(0))
    assert mapped.run.stream.tasks[0].labels == (3, 7)
    assert mapped.matrix.acc > 80
    with pytest.raises(ValueError, match="label 9 is not one of this task's: 3, 7"):
        mapped.evaluate(Generated(0, labels=(3, 9)))


def test_told_classes_spare_a_reading():
    class Counting(Generated):
        read = 0

        def __getitem__(self, item):
            Counting.read += 1
            return super().__getitem__(item)

    one_epoch = Training(Schedule(epochs=1), batch_size=32)
    for classes, readings in (((3, 7), 1), (None, 2)):
        Counting.read = 0
        data = DataLoader(Counting(0), batch_size=32)
        made = Learner(Keyword(), method="ord-ft", training=one_epoch)
        made._nets.net = HeadedNet(made._nets.net, 16, ())
        made.learn(data, classes=classes)
        assert Counting.read == readings * 300


class CutAt(Observer):
    def __init__(self, batches):
        self.left = batches

    def batch_learnt(self, task, epoch, batch, batches):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Noisy(Dataset):
    """Draws from every generator whenever an example is read."""

    def __len__(self):
        return 300

    def __getitem__(self, item):
        x, y = points(1)
        noise = torch.randn(8) + torch.from_numpy(np.random.randn(8)).float()  # noqa: NPY002
        return x[item] + 0.1 * noise, y[item]


LOADERS = {
    "shuffled": lambda: loader(1),
    "own generator": lambda: loader(1, generator=torch.Generator().manual_seed(4)),
    "augmented": lambda: DataLoader(Noisy(), batch_size=32, shuffle=True),
    "weighted": lambda: loader(1, shuffle=False, sampler=WeightedRandomSampler([1.0] * 300, 200)),
    "workers": lambda: loader(1, num_workers=1),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("moment", [1, 13, 20])
def test_going_on_inside_a_task_equals_never_having_stopped(kind, moment, tmp_path):
    if kind == "workers" and moment != 13:
        pytest.skip("starting processes takes long")
    training = dataclasses.replace(TRAINING, checkpoint_every=2)
    dropping = torch.nn.Sequential(trunk(), torch.nn.Dropout(0.5))  # it draws from the process's random numbers
    options = {"method": "ucb", "training": training, "samples": 2}
    torch.manual_seed(0)
    whole = Learner(dropping, **options)
    whole.learn(loader(0), test=loader(0))
    whole.learn(LOADERS[kind](), test=loader(1))
    torch.manual_seed(0)
    cut = Learner(dropping, folder=tmp_path, **options)
    cut.learn(loader(0), test=loader(0))
    cut.run.observer = CutAt(moment)
    with pytest.raises(KeyboardInterrupt):
        cut.learn(LOADERS[kind](), test=loader(1))
    torch.manual_seed(77)
    fresh = Learner.load(tmp_path, torch.nn.Sequential(trunk(5), torch.nn.Dropout(0.5)), tests=[loader(0)])
    assert (fresh.run.progress.batch > 0) == (moment > 1), "it is cut inside an epoch"
    fresh.learn(LOADERS[kind](), test=loader(1))
    assert fresh.matrix.after == whole.matrix.after
    ours, theirs = fresh.net.state_dict(), whole.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_loader_leaves_the_random_numbers_of_training_alone():
    examples = LoaderExamples(DataLoader(Noisy(), batch_size=32, shuffle=True))
    torch.manual_seed(3)
    wanted = torch.randn(3)
    torch.manual_seed(3)
    first = list(examples.read(CPU, 5))
    assert torch.equal(torch.randn(3), wanted)
    again = list(examples.read(CPU, 5, skip=4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first[4:], again, strict=True))
    assert not torch.equal(next(examples.read(CPU, 6))[0], first[0][0])


def test_save_and_load_between_tasks(tmp_path):
    whole, cut = open_learner("ewc"), open_learner("ewc")
    for index in range(3):
        whole.learn(loader(index), test=loader(index))
    cut.learn(loader(0), test=loader(0))
    cut.save(tmp_path / "model")
    fresh = Learner.load(tmp_path / "model", trunk(9))
    assert fresh.training == TRAINING
    x = points(0)[0]
    assert torch.equal(fresh.predict(x, 0).probabilities, cut.predict(x, 0).probabilities)
    row = fresh.learn(loader(1), test=loader(1))
    assert math.isnan(row[0].accuracy), "its test data is not here"
    fresh.learn(loader(2), test=loader(2))
    assert fresh.matrix.after[-1][2] == whole.matrix.after[-1][2]
    assert fresh.evaluate(loader(0), 0).accuracy == whole.matrix.after[-1][0]


def test_how_pixels_become_inputs_is_saved(tmp_path):
    stream = benchmark("mnist-permuted", tasks=2)
    task = stream.tasks[1]
    shown = TensorExamples(*first(task.train, 64))
    few = dataclasses.replace(task, train=shown, validation=shown, test=shown)
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 8))
    made = Learner(flat, method="ord-ft", training=TRAINING)
    made.learn(few)
    made.save(tmp_path / "model")
    again = Learner.load(tmp_path / "model", flat)
    x = first(task.test, 10)[0]
    assert torch.equal(again.predict(x, 0).probabilities, made.predict(x, 0).probabilities)


def first(examples, count):
    return next(examples.batches(torch.arange(count), count, CPU))


def test_a_folder_with_checkpoints_is_not_written_over(tmp_path):
    made = open_learner(folder=tmp_path)
    made.learn(loader(0))
    with pytest.raises(ValueError, match=r"Learner\.load goes on from them"):
        open_learner(folder=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no checkpoint"):
        Learner.load(tmp_path / "empty", trunk())


class Endless(IterableDataset):
    def __iter__(self):
        return iter(zip(*points(0), strict=True))


def test_what_cannot_be_repeated_for_sure_is_said(tmp_path):
    made = open_learner(folder=tmp_path)
    with pytest.warns(UserWarning, match="may come in another order"):
        made.learn(DataLoader(Endless(), batch_size=32), test=loader(0))
    assert made.matrix.acc > 70
    with pytest.raises(TypeError, match="can be read only once"):
        made.learn(iter(loader(1)))


def test_without_held_out_data_the_rate_stays_and_the_last_weights_are_kept():
    rates = []

    class Watch(Observer):
        def epoch_ended(self, epoch):
            rates.append((epoch.rate, epoch.validation_loss))

    training = Training(Schedule(epochs=8, patience=1), batch_size=32)
    Learner(trunk(), method="ord-ft", training=training, observer=Watch(), lr=0.3).learn(loader(0))
    assert [rate for rate, _ in rates] == [0.3] * 8
    assert all(math.isnan(loss) for _, loss in rates)


def test_a_task_without_test_data_is_not_judged_and_the_others_keep_their_places():
    made = open_learner()
    made.learn(loader(0), test=loader(0))
    made.learn(loader(1))
    row = made.learn(loader(2), test=loader(2))
    assert [math.isnan(judged.accuracy) for judged in row] == [False, True, False]
    assert [math.isnan(value) for value in made.matrix.after[-1]] == [False, True, False]


def test_a_task_under_way_is_finished_before_another(tmp_path):
    made = open_learner(observer=CutAt(3))
    with pytest.raises(KeyboardInterrupt):
        made.learn(loader(0), name="first")
    with pytest.raises(ValueError, match="'first' with 2 classes is under way"):
        made.learn(loader(1), name="second")
    made.learn(loader(0), name="first")
    assert made.run.progress.task == 1


def test_mistakes_are_told():
    made = open_learner()
    with pytest.raises(ValueError, match="no task has come yet"):
        made.predict(torch.randn(3, 8))
    with pytest.raises(TypeError, match="arrays \\(x, y\\), a Dataset or a DataLoader, not a int"):
        made.learn(3)
    with pytest.raises(ValueError, match="no examples"):
        made.learn([])
    with pytest.raises(TypeError, match="one whole number"):
        made.learn([(torch.randn(4, 8), torch.randn(4))])
    with pytest.raises(ValueError, match="none of labels"):
        split_batch({"x": 1})
    with pytest.raises(TypeError, match="a pair, a longer tuple or a mapping"):
        split_batch(torch.ones(3))
    with pytest.raises(ValueError, match="leave scenario= out"):
        Learner(trunk(), from_arrays("mine", [(*points(0), *points(0))]), scenario=Scenario())
    with pytest.raises(ValueError, match="have boundaries"):
        open_learner(scenario="task-free")
    with pytest.raises(ValueError, match=r"features \[rows, features\]"):
        Learner(torch.nn.Unflatten(1, (2, 4)), method="ord-ft").learn(loader(0))


def waves(index, size=400):
    """A wave with noise that is larger where x is."""
    random = torch.Generator().manual_seed(index)
    x = 4 * torch.rand(size, 1, generator=random) - 2
    return x, torch.sin(2 * x + index) + (0.05 + 0.3 * (x > 0)) * torch.randn(size, 1, generator=random)


def wide_trunk():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("method", ["ucb", "ucb-ng", "ewc", "packnet", "vcl"])
def test_numbers_are_learnt_with_a_likelihood(method, tmp_path):
    training = Training(Schedule(epochs=15), batch_size=32)
    made = Learner(wide_trunk(), method=method, likelihood=HeteroscedasticGaussian(), training=training)
    for index in range(2):
        row = made.learn(waves(index), test=waves(index))
    assert made.net.heads[1].out_features == 2, "a mean and a log-variance"
    assert [math.isfinite(judged.nll) and judged.accuracy < 100 for judged in row] == [True, True]
    answer = made.predict(torch.tensor([[-1.0], [1.0]]), task=1)
    assert answer.mean.shape == answer.aleatoric.shape == answer.epistemic.shape == (2, 1)
    assert (answer.epistemic > 0).all() == (method in ("ucb", "ucb-ng", "vcl"))
    if method != "vcl":  # which has learnt little so far
        assert row[1].accuracy > 50, "R^2"
    x, y = waves(1)
    judged = made.evaluate((x, y), task=1)
    exact = made.predict(x, task=1, samples=0).mean
    share = 1 - (y - exact).square().sum() / (y - y.mean()).square().sum()
    assert judged.mean_weight_accuracy == pytest.approx(100 * float(share), abs=1e-3)
    made.save(tmp_path / "model")
    again = Learner.load(tmp_path / "model", wide_trunk(), likelihood=HeteroscedasticGaussian())
    assert torch.equal(again.predict(x, task=0).mean, made.predict(x, task=0).mean)
    with pytest.raises(ValueError, match="likelihood was 'HeteroscedasticGaussian"):
        Learner.load(tmp_path / "model", wide_trunk())


def test_several_labels_at_once_are_learnt_with_a_likelihood():
    x = torch.randn(400, 8)
    y = (x[:, :3] > 0).float()
    made = Learner(trunk(), method="ucb", likelihood=Bernoulli(), training=Training(Schedule(epochs=10)), samples=2)
    (judged,) = made.learn(DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True), test=(x, y))
    assert made.net.heads[0].out_features == 3
    assert judged.accuracy > 85
    assert made.predict(x, 0).mean.shape == (400, 3)


def test_what_a_likelihood_does_not_go_with_is_told():
    with pytest.raises(ValueError, match="lwf can learn classes only"):
        open_learner("lwf", likelihood=Poisson())
    with pytest.raises(ValueError, match="choose domain-incremental"):
        open_learner(likelihood=Poisson(), scenario="class-incremental")
    with pytest.raises(ValueError, match="LearntGaussian has parameters of its own"):
        open_learner(likelihood=LearntGaussian())
    with pytest.raises(ValueError, match="a stream has classes"):
        Learner(trunk(), from_arrays("mine", [(*points(0), *points(0))]), likelihood=Poisson())


FLAT = """
import resource, sys, numpy as np, torch, ucb
from torch.utils.data import DataLoader, Dataset

class OnDisk(Dataset):
    def __init__(self, path, size):
        self.path, self.size = path, size
    def __len__(self):
        return self.size
    def __getitem__(self, i):
        with open(self.path, "rb") as file:
            file.seek(4096 * i)
            x = np.frombuffer(file.read(4096), dtype=np.float32)
        return torch.tensor(x), int(x[0] > 0)

path, size = sys.argv[1], int(sys.argv[2])
data = DataLoader(OnDisk(path, size), batch_size=256, shuffle=True)
trunk = torch.nn.Sequential(torch.nn.Linear(1024, 8), torch.nn.ReLU())
learner = ucb.Learner(trunk, method="ucb", training=ucb.Training(ucb.Schedule(epochs=1), eval_samples=2), samples=1)
learner.learn(data, validation=data, test=data, classes=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_examples_on_disk(tmp_path):
    """200,000 examples are 800 MB; a sparse file costs no room on the disk."""
    path = tmp_path / "numbers"
    with path.open("wb") as file:
        file.truncate(4096 * 200_000)
    peaks = {}
    for size in (20_000, 200_000):
        done = subprocess.run(
            [sys.executable, "-c", FLAT, str(path), str(size)], capture_output=True, text=True, check=True
        )
        peaks[size] = int(done.stdout) / 1024
    assert peaks[200_000] < peaks[20_000] + 40, peaks
