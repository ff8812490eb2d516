"""What every method must do, whichever it is."""

import copy
import dataclasses
import math

import pytest
import torch

from tests.engine.runs import figures, small_run, weights
from tests.methods.data import Given
from tests.support import tiny_stream
from ucb.data.streams import Examples, Scenario, Stream, Task
from ucb.engine import DivergedError, Observer
from ucb.methods import EvalContext, TaskInfo, known_methods
from ucb.methods.base import TaskHiddenError
from ucb.methods.bayesian import BayesianMethod

METHODS = list(known_methods())
BAYESIAN = [name for name, kind in known_methods().items() if issubclass(kind, BayesianMethod)]
SCENARIOS = {
    "several heads": Scenario(),
    "one head, task known": Scenario("one"),
    "one head, task hidden": Scenario("one", task_known=False),
    "shared outputs": Scenario("one", task_known=False, shared_outputs=True),
    "shared outputs, task known": Scenario("one", shared_outputs=True),
}


TINY = {
    "hat": {"sparsity": 0.05},  # with 16 units, the usual price of a unit shuts them all
    "pathnet": {"modules": 4},  # with 16 modules, a tiny net has one unit in each
    "vcl": {"lr": 0.03},
    "vcl-vadam": {"lr": 0.03},
    "vcl-gng": {"lr": 0.03, "init_std_ratio": 0.5},  # more is too much noise for 16 units
}
"""What a method needs to learn a tiny net: the others take a rate of 0.3."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_learns_three_tiny_tasks(name, scenario):
    stream = tiny_stream(scenario=SCENARIOS[scenario])
    settings = {"lr": 0.3, **TINY.get(name, {})}
    if known_methods()[name].needs_task and not SCENARIOS[scenario].task_known:
        with pytest.raises(ValueError, match=f"{name} must be told the task"):
            small_run(name, stream=stream)
        return
    run = small_run(name, stream=stream, epochs=6, **settings)
    run.learn()
    assert len(run.matrix.after) == 3
    assert run.matrix.after[0][0] > 85
    if SCENARIOS[scenario].heads == "many":
        assert run.matrix.learning > 75  # right after learning, well above chance
    assert all(math.isfinite(value) for judged in run.progress.own + run.progress.last for value in judged)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_result_and_another_does_not(name):
    runs = [small_run(name, seed=seed) for seed in (0, 0, 1)]
    for run in runs:
        run.learn()
    first, again, other = runs
    assert figures(first) == figures(again)
    assert all(torch.equal(a, b) for a, b in zip(weights(first).values(), weights(again).values(), strict=True))
    assert figures(first) != figures(other)


class StopAt(Observer):
    """Raises when a certain number of batches has been learnt."""

    def __init__(self, batches):
        self.left = batches

    def batch_learnt(self, task, epoch, batch, batches):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("moment", [1, 7, 8, 16, 17, 20, 33, 47])
def test_going_on_from_a_checkpoint_equals_never_having_stopped(name, moment, tmp_path):
    """The run is cut somewhere and a fresh one goes on from the last checkpoint, which was some steps earlier."""
    whole = small_run(name)
    whole.learn()
    if moment > whole.progress.steps:
        pytest.skip("the run is over by then")
    cut = small_run(name, tmp_path, observer=StopAt(moment))
    with pytest.raises(KeyboardInterrupt):
        cut.learn()
    fresh = small_run(name, tmp_path)
    torch.manual_seed(123)  # whatever the process did before must not matter
    assert fresh.resume() == (moment >= 3)
    fresh.learn()
    assert figures(fresh) == figures(whole)
    for key, value in weights(whole).items():
        assert torch.equal(weights(fresh)[key], value), key


def check_that_state_is_all_there_is(name):
    """A fresh method with the state of a trained one answers and learns on exactly like it."""
    run, fresh = small_run(name), small_run(name, seed=5)
    run.learn()
    fresh.method.load_state_dict(run.method.state_dict())
    x, y = torch.randn(40, 8), torch.randint(2, (40,))
    for method in (run.method, fresh.method):
        method.begin_task(TaskInfo(2, 40, 2, range(2)))
    for _ in range(3):
        assert torch.equal(run.method.learn(x, y), fresh.method.learn(x, y))
    answers = [m.logits(x, EvalContext(1, 1), 4, torch.Generator().manual_seed(0)) for m in (run.method, fresh.method)]
    assert torch.equal(*answers)


@pytest.mark.parametrize("name", METHODS)
def test_state_is_all_there_is(name):
    check_that_state_is_all_there_is(name)


@pytest.mark.parametrize(
    ("name", "forgotten"), [("ewc", "centre"), ("hat", "learnt"), ("ucb-p", "owners"), ("conjugate", "head")]
)
def test_a_method_that_does_not_declare_what_it_remembers_is_noticed(name, forgotten, monkeypatch):
    kind = next(each for each in known_methods()[name].__mro__ if forgotten in vars(each).get("remembered", ()))
    monkeypatch.setattr(kind, "remembered", tuple(other for other in kind.remembered if other != forgotten))
    with pytest.raises((AssertionError, LookupError)):
        check_that_state_is_all_there_is(name)


class Sealed(Examples):
    """Examples that can be made unreadable."""

    def __init__(self, inner):
        self.inner, self.sealed = inner, False

    def __len__(self):
        return len(self.inner)

    def batches(self, *args):
        assert not self.sealed, "data of an old task was read again"
        return self.inner.batches(*args)


@pytest.mark.parametrize("name", [name for name, kind in known_methods().items() if not kind.is_joint])
def test_data_of_old_tasks_is_never_touched_again(name):
    tiny = tiny_stream()
    tasks = tuple(Task(t.name, t.classes, Sealed(t.train), Sealed(t.validation), t.test, t.prepare) for t in tiny.tasks)

    class Seal(Observer):
        def task_ended(self, task, row):
            tasks[task].train.sealed = tasks[task].validation.sealed = True

    small_run(name, stream=Stream("sealed", tasks), observer=Seal()).learn()
    assert all(task.train.sealed for task in tasks)


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
def test_every_method_says_what_it_is(name):
    kind = known_methods()[name]
    assert kind.summary
    assert kind.memory
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
