"""Every method on the nets for images, through the engine: AlexNet, and ResNet18 under three kinds of normalisation."""

import dataclasses
import math
import statistics
from functools import cache

import pytest
import torch
from torch import nn

from tests.engine.runs import figures, weights
from ucb.data.streams import from_arrays
from ucb.data.streams.tasks import Preparation
from ucb.engine import Job, Observer, Run, Schedule, Training
from ucb.engine.checkpoint import pack, unpack
from ucb.engine.config import replace_fields
from ucb.methods import EvalContext, TaskInfo, known_methods
from ucb.nets import HeadedNet, alexnet, resnet18
from ucb.nets.stages import draw_weights, split
from ucb.seeds import derive_seed, generator_for

SHAPE = (3, 32, 32)
CPU = torch.device("cpu")


def narrow_alexnet(heads, factor=1 / 8):
    """AlexNet with an eighth of the units in each layer; its builder has one width."""
    staged = split(alexnet(SHAPE, heads))
    widths = staged.widths(factor)
    layers = list(staged.stem)
    for stage, inputs, units in zip(staged.stages, [SHAPE[0], *widths], widths, strict=False):
        layers += [stage.layer_of(inputs, units), *stage.rest]
    net = HeadedNet(nn.Sequential(*layers), widths[-1], heads).to_empty(device=CPU)
    draw_weights(net, torch.Generator().manual_seed(torch.initial_seed()))
    return net


NETS = {
    "alexnet": narrow_alexnet,
    "resnet18 group": lambda heads: resnet18(SHAPE, heads, 4, "group"),
    "resnet18 task-batch": lambda heads: resnet18(SHAPE, heads, 4, "task-batch"),
    "resnet18 none": lambda heads: resnet18(SHAPE, heads, 4, "none"),
}
TAKE_NETS_APART = ("hat", "pathnet", "pnn")
"""These gate, repeat or extend a net layer by layer, so it must be a plain sequence of layers."""

MIX_TASKS = ("bbb-jt", "ord-jt")
"""These have examples of all tasks in one batch."""

REFUSED = {
    **dict.fromkeys(("resnet18 group", "resnet18 none"), TAKE_NETS_APART),
    "resnet18 task-batch": (*TAKE_NETS_APART, *MIX_TASKS),
}
EVERY = [(name, net) for net in NETS for name in known_methods() if name not in REFUSED.get(net, ())]
TASKS = {"resnet18 task-batch": 3}  # of the others, two tasks say as much
SETTINGS = {
    "pathnet": {"lr": 0.005},  # three modules a stage are summed, in five stages: 0.05 diverges
    "ucb-ng": {"lr": 0.03},  # its usual rate was chosen for one hidden layer
    "vcl-vadam": {"lr": 0.03, "init_std_ratio": 0.3, "temperature": 0.001},  # so that the prior leaves it free to move
}
QUIET = {"samples": 1, "init_std_ratio": 0.1}
"""For Bayesian methods: so little noise that a few steps show where they lead."""


def learner(name, make_net, heads=(2, 2, 2), seed=0):
    kind = known_methods()[name]
    known = {field.name for field in dataclasses.fields(kind.settings_type)}
    settings = {key: value for key, value in QUIET.items() if key in known} | SETTINGS.get(name, {})
    torch.manual_seed(derive_seed("weights", seed))
    return kind(make_net(heads), replace_fields(kind.settings_type(), settings), generator_for("noise", seed))


def coloured(tasks=2, train=9, test=4):
    """Images of random pixels, two classes a task: which of two colours is the brighter one."""
    generator = torch.Generator().manual_seed(0)
    made = {}
    for task in range(tasks):
        parts = []
        for size in (train, test):
            y = torch.arange(size) % 2
            x = torch.randint(128, (size, *SHAPE), generator=generator)
            x[torch.arange(size), (task + y) % 3] += 100
            parts += [x.to(torch.uint8), y]
        made[f"colours {task}"] = tuple(parts)
    return from_arrays("coloured", made, prepare=Preparation(mean=(0.4,), std=(0.2,)))


def some_images(rows=8):
    """A batch that is ready for a net."""
    task = coloured(1, train=2 * rows).tasks[0]
    ((x, y),) = task.train.batches(torch.arange(rows), rows, CPU)
    return task.prepare(x), y


def short_run(name, net, seed=0, observer=None):
    """One epoch a task, in two batches."""
    stream = coloured(TASKS.get(net, 2))
    method = learner(name, NETS[net], stream.head_sizes, seed)
    training = Training(Schedule(epochs=1), batch_size=4, eval_samples=1)
    return Run(stream, method, training, seed=0, device=CPU, observer=observer)


class Learnt(Observer):
    """A run that is over, and how it was on the way."""

    def __init__(self, name, net):
        self.run = short_run(name, net, observer=self)
        self.first, self.after, self.middle = weights(self.run), [], None
        self.run.learn()

    def batch_learnt(self, task, epoch, batch, batches):
        """Keep the whole state, as a checkpoint has it, after the first batch of the last task."""
        if task == len(self.run.stream) - 1 and self.middle is None:
            self.middle = pack(self.run.state_dict())

    def task_ended(self, task, row):
        self.after.append(weights(self.run))


learnt = cache(Learnt)


WITH_STEPS = [(name, net) for name, net in EVERY if name != "conjugate"]
"""Methods that learn every task step by step; the other one's trunk stays as the first task left it."""


@pytest.mark.parametrize("net", [net for name, net in EVERY if name == "conjugate"])
def test_an_exact_head_learns_tasks_on_every_net(net):
    run = short_run("conjugate", net)
    run.learn()
    assert all(math.isfinite(value) for judged in run.progress.own + run.progress.last for value in judged)
    assert run.method.head.counts.sum() == sum(len(task.train) for task in run.stream.tasks)


@pytest.mark.parametrize(("name", "net"), WITH_STEPS)
def test_it_learns_tasks_and_goes_on_bit_for_bit_from_the_middle_of_the_last(name, net):
    whole, first, last = learnt(name, net).run, learnt(name, net).first, learnt(name, net).after[-1]
    assert [len(row) for row in whole.matrix.after] == list(range(1, TASKS.get(net, 2) + 1))
    assert all(math.isfinite(value) for judged in whole.progress.own + whole.progress.last for value in judged)
    assert any(not torch.equal(first[key], value) for key, value in last.items() if "trunk" in key)
    fresh = short_run(name, net, seed=5)
    fresh.load_state_dict(unpack(learnt(name, net).middle))
    fresh.learn()
    assert figures(fresh) == figures(whole)
    assert different(weights(fresh), last) == []


def different(some, others):
    return [key for key, value in some.items() if not torch.equal(value, others[key])]


@pytest.mark.parametrize(("name", "net"), [(name, net) for name, net in EVERY if net in ("alexnet", "resnet18 group")])
def test_a_few_steps_bring_the_loss_down(name, net):
    method, (x, y) = learner(name, NETS[net]), some_images()
    for module in method.net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # what is left of the losses' ups and downs is the method's own
    method.begin_task(TaskInfo(0, len(y), 0, range(2)))
    losses = [float(method.learn(x, y)) for _ in range(6)]
    assert statistics.mean(losses[-2:]) < losses[0]


WITH_OWN_NORMALISATION = [name for name, net in WITH_STEPS if net == "resnet18 task-batch"]


def of_task(task, values):
    """The weights and statistics with which a task normalises."""
    return {key: value for key, value in values.items() if f".of_task.{task}." in key}


@pytest.mark.parametrize("name", WITH_OWN_NORMALISATION)
def test_every_task_normalises_with_statistics_that_it_has_learnt(name):
    for task, values in enumerate(learnt(name, "resnet18 task-batch").after):
        means = [value for key, value in of_task(task, values).items() if key.endswith("running_mean")]
        assert len(means) == 20
        assert all(mean.any() for mean in means), f"task {task + 1}"


@pytest.mark.parametrize("name", WITH_OWN_NORMALISATION)
def test_a_tasks_own_normalisation_stays_when_it_is_over(name):
    first, *later = learnt(name, "resnet18 task-batch").after
    for values in later:
        assert different(of_task(0, first), values) == []


@pytest.mark.parametrize("net", [net for net in NETS if net != "alexnet"])
@pytest.mark.parametrize("name", TAKE_NETS_APART)
def test_a_net_that_is_no_sequence_of_layers_is_refused_in_one_sentence(name, net):
    layer = {"group": "GroupNorm", "task-batch": "TaskBatchNorm2d", "none": "ResidualBlock"}[net.split()[1]]
    said = rf"^{name} takes a net apart layer by layer, as mlp and alexnet allow: a trunk with a {layer} cannot [^.]*$"
    with pytest.raises(ValueError, match=said):
        learner(name, NETS[net])
    job = Job("mnist-5split", name, net="resnet18", net_options={"width": 4, "norm": net.split()[1]})
    with pytest.raises(ValueError, match=said):
        job.run()


@pytest.mark.parametrize("name", MIX_TASKS)
def test_normalisation_for_each_task_is_refused_where_batches_mix_them(name):
    with pytest.raises(ValueError, match=f"^{name} mixes tasks in a batch, which norm=task-batch cannot"):
        learner(name, NETS["resnet18 task-batch"])


@pytest.mark.parametrize("name", known_methods())
def test_it_takes_a_step_on_alexnet_as_it_is(name):
    method, (x, y) = learner(name, lambda heads: alexnet(SHAPE, heads)), some_images(4)
    method.begin_task(TaskInfo(0, len(y), 0, range(2)))
    assert math.isfinite(float(method.learn(x, y)))
    answer = method.logits(x, EvalContext(0, 0), 1, torch.Generator().manual_seed(0))
    assert answer.shape == (1, 4, 2)
    assert answer.isfinite().all()
