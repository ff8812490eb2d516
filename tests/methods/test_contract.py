"""What every method must do, whichever it is: the promises that `ucb.testing` checks, and those of our own."""

import copy
import dataclasses
import math

import pytest
import torch

from tests.engine.runs import figures, small_run, weights
from tests.methods.data import Given
from ucb.data.streams import Examples, Scenario, Stream
from ucb.engine import DivergedError
from ucb.methods import EvalContext, TaskInfo, find_method, known_methods
from ucb.methods.base import TaskHiddenError
from ucb.methods.bayesian import BayesianMethod
from ucb.testing import CHECKS, check_state, tiny_stream

METHODS = list(known_methods())
BAYESIAN = [name for name, kind in known_methods().items() if issubclass(kind, BayesianMethod)]
TINY = {
    "hat": {"sparsity": 0.05},  # with 16 units, the usual price of a unit shuts them all
    "pathnet": {"modules": 4},  # with 16 modules, a tiny net has one unit in each
    "vcl": {"lr": 0.03},
    "vcl-vadam": {"lr": 0.03},
    "vcl-gng": {"lr": 0.03, "init_std_ratio": 0.5},  # more is too much noise for 16 units
}
"""What a method needs to learn a tiny net; the others take the rate of the checks."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_the_promise(check, name):
    check(find_method(name), **TINY.get(name, {}))


@pytest.mark.parametrize(
    ("name", "forgotten"), [("ewc", "centre"), ("hat", "learnt"), ("ucb-p", "owners"), ("conjugate", "head")]
)
def test_a_method_that_does_not_declare_what_it_remembers_is_noticed(name, forgotten, monkeypatch):
    kind = next(each for each in known_methods()[name].__mro__ if forgotten in vars(each).get("remembered", ()))
    monkeypatch.setattr(kind, "remembered", tuple(other for other in kind.remembered if other != forgotten))
    with pytest.raises(AssertionError, match="has everything that it needs later in its state"):
        check_state(name, **TINY.get(name, {}))


class Spoilt(Examples):
    """Examples whose inputs are NaN."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def batches(self, *args):
        return ((torch.full_like(x, math.nan), y) for x, y in self.inner.batches(*args))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "conjugate"])  # has no loss, and its own test
def test_a_loss_that_diverges_stops_the_run_and_the_last_good_state_stays(name, tmp_path):
    *whole, last = tiny_stream().tasks
    stream = Stream("spoilt", (*whole, dataclasses.replace(last, train=Spoilt(last.train))))
    run = small_run(name, tmp_path, stream)
    for _ in whole:
        run.learn_task()
    good = weights(run)
    with pytest.raises(DivergedError, match=r"became nan in task 3, epoch 1, batch 1:.*smaller rate"):
        run.learn_task()
    again = small_run(name, tmp_path, stream)
    assert again.resume()
    assert again.progress.task == 2
    assert all(torch.equal(good[key], value) for key, value in weights(again).items())


PLAIN = [name for name in METHODS if not name.startswith("vcl") and not name.endswith("-jt")]
"""Methods whose head takes plain gradient steps, one task after another."""


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_grid_and_a_file_of_its_name(name):
    kind = known_methods()[name]
    assert kind.settings_type.grid(), "what is tried must stand beside the settings"
    assert math.prod(len(values) for values in kind.settings_type.grid().values()) <= 40
    words = name.split("-")
    files = ["ucb.methods." + "_".join(words[:length]) for length in range(1, len(words) + 1)]
    assert kind.__module__ in files, "a method's file is called like the method, or like its family"


@pytest.mark.parametrize("name", METHODS)
def test_the_rate_drops_in_every_task_and_no_parameter_leaves(name):
    """Defects D5 and D6: in the first task, too, and for means, spreads and heads alike."""
    run, x, y = small_run(name), torch.randn(40, 8), torch.randint(2, (40,))
    for task in range(2):
        run.method.begin_task(TaskInfo(task, 100, task, range(2)))
        run.method.set_rate(0.3)
        groups = run.method.optimizer.param_groups
        assert all(group["lr"] == 0.3 for group in groups)
        optimised = {id(p) for group in groups for p in group["params"]}
        active = [*run.method.net.trunk.parameters(), *run.method.net.heads[task].parameters()]
        assert all(id(p) in optimised for p in active)
        run.method.end_task(Given(x, y))


@pytest.mark.parametrize("name", BAYESIAN)
def test_the_optimiser_does_not_grow_with_heads_that_rest(name):
    """Else every task would take a little longer to copy, to check and to end than the one before."""
    run, sizes = small_run(name, stream=tiny_stream(tasks=4)), []
    for _ in range(4):
        run.learn_task()
        optimizer = run.method.optimizer.state_dict()
        sizes.append((len(optimizer["param_groups"]), sum(map(len, optimizer["state"].values()))))
    assert sizes[3] == sizes[1] or run.method.is_joint, sizes


@pytest.mark.parametrize("name", BAYESIAN)
def test_what_earlier_versions_saved_is_loaded(name):
    """They kept heads that rest in the optimiser."""
    old, new = small_run(name), small_run(name)
    old.method.heads_learn_again = True
    states = []
    for _ in range(2):
        old.learn_task()
        states.append(copy.deepcopy(old.state_dict()))
    old.learn_task()
    new.load_state_dict(states[1])
    new.learn_task()
    assert figures(new) == figures(old)
    assert all(torch.equal(value, weights(old)[key]) for key, value in weights(new).items())
    new.load_state_dict(states[0])
    assert new.progress.task == 1


@pytest.mark.parametrize("name", [name for name in BAYESIAN if name != "bbb-jt"])
def test_a_head_that_has_left_the_optimiser_does_not_return_unnoticed(name):
    method = small_run(name).method
    for task, head in enumerate((0, 1)):
        method.begin_task(TaskInfo(task, 40, head, range(2)))
    with pytest.raises(ValueError, match="head 0 has left the optimiser: set heads_learn_again"):
        method.begin_task(TaskInfo(2, 40, 0, range(2)))


@pytest.mark.parametrize("name", PLAIN)
def test_the_head_of_a_later_task_learns_at_the_base_rate(name):
    """Defect D4: untrained heads. One step moves the new head by lr times its gradient."""
    run = small_run(name, lr=0.25)
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    for task in range(3):
        run.method.begin_task(TaskInfo(task, 40, task, range(2)))
        head = next(p for n, p in run.method.net.heads[task].named_parameters() if n.endswith(("bias", "bias.mu")))
        before = head.detach().clone()
        run.method.learn(x, y)
        torch.testing.assert_close(before - head, 0.25 * head.grad)
        assert head.grad.abs().sum() > 0
        for other in range(3):
            if other != task and (name != "lwf" or other > task):  # with LwF old heads learn along
                assert all(p.grad is None for p in run.method.net.heads[other].parameters())
        run.method.end_task(Given(x, y))


def test_splits_orders_and_first_weights_are_the_same_for_all_methods():
    seen = {}
    for name in METHODS:
        run = small_run(name)
        first = {}
        for key, value in run.method.net.state_dict().items():
            if not key.endswith(("rho", "keep")):
                first[key.replace("posterior.", "").removesuffix(".mu")] = value.clone()
        batches, learn = [], run.method.learn

        def watched(x, y, batches=batches, learn=learn):
            batches.append((x.clone(), y.clone()))
            return learn(x, y)

        run.method.learn = watched
        run.learn()
        seen[name] = first, batches
    reference_weights, reference_batches = seen["ord-ft"]
    for name, (first, batches) in seen.items():
        if name not in ("pnn", "pathnet"):  # their nets are others by design
            assert first.keys() == reference_weights.keys()
            assert all(torch.equal(first[key], value) for key, value in reference_weights.items())
        epoch = len(reference_batches) // 6
        for (x, y), (a, b) in zip(batches[:epoch], reference_batches[:epoch], strict=True):
            assert torch.equal(x, a)
            assert torch.equal(y, b)


def test_a_hidden_task_cannot_be_asked_for():
    asked = []

    run = small_run("ord-ft", stream=tiny_stream(scenario=Scenario("one", task_known=False)))
    logits = run.method.logits

    def curious(x, question, samples, generator):
        with pytest.raises(TaskHiddenError, match="hides the task"):
            _ = question.index
        asked.append(question.head)
        return logits(x, question, samples, generator)

    run.method.logits = curious
    run.learn()
    assert set(asked) == {0}
    assert EvalContext(0, 3).index == 3
