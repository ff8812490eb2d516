"""Training steps as CUDA graphs: which steps can be captured, and that a captured run is the same run."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.engine.runs import figures, small_run, weights
from ucb.data.streams import TensorExamples
from ucb.engine import DivergedError, Observer
from ucb.engine.runner import find_side_by_side_obstacle, run_side_by_side
from ucb.engine.training import CapturedSteps, changed, count_prepared_bytes, mark_state, prepare_inputs, rows_at_once
from ucb.methods import known_methods
from ucb.testing import tiny_stream

METHODS = list(known_methods())
BY_HAND = ("pathnet",)
"""Methods whose steps are not all alike: another path from batch to batch."""


class Ear(Observer):
    def __init__(self):
        self.sentences = []

    def noted(self, sentence):
        self.sentences.append(sentence)


def rounded(run):
    """What a run has found; a GPU sums some of it (the calibration error) in an order that varies."""
    rows, *others = figures(run)
    return [[[round(value, 4) for value in judged] for judged in row] for row in rows], others


def begun(name):
    run = small_run(name)
    run._begin(run._data_of(run.progress.task))
    return run.method


@pytest.mark.parametrize("name", METHODS)
def test_the_state_tells_whether_a_step_changes_more_than_tensors_in_their_place(name):
    if name.endswith("-jt"):
        pytest.skip("nothing is learnt before the last task")
    method, x, y = begun(name), torch.randn(32, 8), torch.zeros(32, dtype=torch.long)
    for _ in range(2):
        method.learn(x, y)
    before, net = mark_state(method), {n: p.clone() for n, p in method.net.state_dict().items()}
    method.learn(x, y)
    assert any(not torch.equal(net[n], p) for n, p in method.net.state_dict().items())
    assert (changed(before, method) is None) == (name not in BY_HAND)


def test_a_tensor_that_is_replaced_or_a_number_that_counts_is_named():
    method = begun("ord-ft")
    before = mark_state(method)
    method.net.heads[0].weight = nn.Parameter(method.net.heads[0].weight.detach().clone())
    assert changed(before, method).startswith("net.heads.0.weight changes")
    method = begun("ord-ft")
    before = mark_state(method)
    method.set_rate(0.123)
    assert "lr changes" in changed(before, method)


def test_a_tensor_that_is_made_for_the_state_alone_counts_by_what_it_holds():
    run = small_run("packnet")
    run.learn()
    method = run.method
    before = mark_state(method)
    assert changed(before, method) is None
    owner = next(iter(method.owners.of.values())).view(-1)
    owner[0] = 2 if owner[0] == 1 else 1
    assert "owners" in changed(before, method)


class Records:
    """Graphs on a CPU: work that is done again; which of them were is noted."""

    def __init__(self):
        self.replayed = []

    def record(self, work, generators):
        assert len(generators) == 1
        return SimpleNamespace(replay=lambda: (self.replayed.append(work), work()))


def replay(monkeypatch, kind=CapturedSteps):
    """Let runs on a CPU take captured steps; return those that are made."""
    made = []

    def steps_for(method, data, memory):
        made.append(kind(method, data, *prepare_inputs(data), Records()))
        return made[-1]

    monkeypatch.setattr("ucb.engine.loop.steps_for", steps_for)
    return made


def test_steps_that_find_their_place_by_themselves_are_the_same_steps(monkeypatch):
    whole = small_run("ucb", epochs=3)
    whole.learn()
    made = replay(monkeypatch)
    again = small_run("ucb", epochs=3)
    again.learn()
    assert figures(whole) == figures(again)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(again)[name]), name
    assert all(len({*steps.memory.replayed}) == 2 for steps in made), "whole batches and the last are both taken again"


def test_a_run_that_keeps_no_checkpoints_never_stops_for_one(monkeypatch, tmp_path):
    """To look at the losses holds up a GPU: where a checkpoint was due that nobody wanted, every step did so."""
    looks = []

    class Watched(CapturedSteps):
        def new_losses(self):
            looks.append(self.batch)
            return super().new_losses()

    replay(monkeypatch, Watched)
    run = small_run("ord-ft", epochs=1, checkpoint_every=1)
    run.learn()
    assert run.progress.steps > len(looks) == len(run.stream), "one look an epoch"
    looks.clear()
    run = small_run("ord-ft", tmp_path, epochs=1, checkpoint_every=1)
    run.learn()
    assert len(looks) == run.progress.steps, "on a CPU after every step"


def test_memory_is_counted_of_inputs_as_the_net_gets_them():
    task = dataclasses.replace(tiny_stream().tasks[0], prepare=lambda x: x.double().repeat(1, 3))
    assert count_prepared_bytes(task) == len(task.train) * 8 * 3 * 8


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_a_captured_run_gives_the_same_figures(name):
    runs, ears = [], []
    for graphs in (False, True):
        ears.append(Ear())
        runs.append(small_run(name, device="cuda", graphs=graphs, epochs=3, precision="float32", observer=ears[-1]))
        runs[-1].learn()
    assert rounded(runs[0]) == rounded(runs[1])
    for (name_of, eager), captured in zip(weights(runs[0]).items(), weights(runs[1]).values(), strict=True):
        torch.testing.assert_close(captured, eager, msg=lambda m, n=name_of: f"{n}: {m}")
    assert ears[0].sentences == []
    assert len(ears[1].sentences) == (name in BY_HAND)


@pytest.mark.gpu
@pytest.mark.parametrize("together", [False, True])
def test_graphs_of_one_task_leave_their_memory_to_the_next(together):
    runs, held = [small_run("ucb", device="cuda", seed=seed, epochs=4) for seed in range(1 + together)], []

    class Scales(Observer):
        def epoch_ended(self, epoch):
            if epoch.epoch == 3:
                held.append(torch.cuda.memory_reserved())

    runs[0].observer = Scales()
    run_side_by_side(runs, lambda run: run.learn())
    assert len(held) == 3
    assert held[2] == held[1]


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in METHODS if name != "conjugate"])  # its second task takes no steps
def test_a_captured_run_that_was_cut_goes_on_to_the_same_figures(name, tmp_path):
    whole = small_run(name, device="cuda", epochs=3)
    whole.learn()
    cut = small_run(name, tmp_path, device="cuda", epochs=3)

    class Stop(Observer):
        def batch_learnt(self, task, epoch, batch, batches):
            cut.stopping = (task, epoch, batch) == (1, 1, 2)

    cut.observer = Stop()
    with pytest.raises(RuntimeError, match="stopped in task 2, epoch 2, batch 3"):
        cut.learn()
    again = small_run(name, tmp_path, device="cuda", epochs=3)
    again.resume()
    again.learn()
    assert rounded(whole) == rounded(again)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_other_precisions_learn_and_leave_the_settings_of_pytorch_alone(precision):
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    run = small_run("ucb", device="cuda", precision=precision, epochs=10)
    run.learn()
    assert run.matrix.acc > 80
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ucb", "ucb-ng", "hat", "ewc", "conjugate"])
def test_runs_side_by_side_give_the_figures_of_each_alone(name):
    """To the last bit."""
    alone = [small_run(name, device="cuda", seed=seed, epochs=3) for seed in range(4)]
    for run in alone:
        run.learn()
    together = [small_run(name, device="cuda", seed=seed, epochs=3) for seed in range(4)]
    run_side_by_side(together, lambda run: run.learn())
    assert [rounded(run) for run in alone] == [rounded(run) for run in together]
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(weights(one).values(), weights(other).values(), strict=True))


def test_a_run_that_fails_beside_others_does_not_stop_them():
    runs = [small_run("ord-ft"), small_run("ord-ft", lr=1e9), small_run("ord-ft", seed=1)]
    with pytest.raises(DivergedError):
        run_side_by_side(runs, lambda run: run.learn())
    assert [run.progress.task for run in runs] == [3, 0, 3]


def test_runs_that_would_come_out_differently_are_told():
    assert "CPU" in find_side_by_side_obstacle(small_run("ord-ft"))
    run = small_run("ord-ft")
    run.device = torch.device("cuda")
    assert find_side_by_side_obstacle(run) is None
    run.method.net.trunk.append(nn.Dropout(0.5))
    assert "dropout" in find_side_by_side_obstacle(run)


def test_inside_a_task_a_gpu_saves_by_the_clock_and_a_cpu_by_its_steps(monkeypatch, tmp_path):
    run, now = small_run("ord-ft", tmp_path, checkpoint_every=4), [100.0]
    monkeypatch.setattr("ucb.engine.loop.time.monotonic", lambda: now[0])
    run._saved = 100.0
    run.progress.steps = 8
    assert run._save_is_due()
    run.progress.steps = 9
    assert not run._save_is_due()
    run.progress.steps, run.device = 8, torch.device("cuda")
    assert not run._save_is_due()
    now[0] += 21
    assert run._save_is_due()


def test_a_gpu_judges_small_examples_in_larger_batches():
    few = TensorExamples(torch.zeros(3, 1, 28, 28), torch.zeros(3, dtype=torch.int64))
    assert rows_at_once(few, torch.device("cpu")) == 1024


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "rows"), [((1, 28, 28), 5349), ((3, 32, 32), 1365), ((3, 64, 64), 1024)])
def test_on_a_gpu_inputs_of_so_many_bytes_are_judged_at_a_time(shape, rows):
    few = TensorExamples(torch.zeros(3, *shape), torch.zeros(3, dtype=torch.int64))
    assert rows_at_once(few, torch.device("cuda")) == rows
