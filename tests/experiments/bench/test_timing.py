"""Contenders take turns; what cannot be measured is named."""

import os

import pytest
import torch

from tests.experiments.bench.small import MLP
from ucb import kernels
from ucb.experiments.bench import timing
from ucb.experiments.bench.steps import OrdinaryNets
from ucb.experiments.bench.timing import WARM_UP, Contender, Work, capture, conditions, measure, without_kernels

CPU = torch.device("cpu")


def noted(calls, name):
    return Contender(lambda: Work(lambda: calls.append(name)))


def test_contenders_take_turns():
    calls = []
    measured = measure({name: noted(calls, name) for name in "ab"}, 4, CPU)
    assert "".join(calls) == "a" * WARM_UP + "b" * WARM_UP + "abababab"
    assert {name: len(ms) for name, ms in measured.ms.items()} == {"a": 4, "b": 4}


def test_a_turn_has_as_many_steps_as_fit_its_time(monkeypatch):
    """Each step takes 5 ms of a clock that only steps move; the figure is that of one step."""
    now, calls = [0.0], []
    monkeypatch.setattr(timing.time, "process_time", lambda: now[0])

    def step():
        calls.append(1)
        now[0] += 0.005

    measured = measure({"a": Contender(lambda: Work(step))}, 2, CPU, seconds=0.1)
    assert len(calls) == WARM_UP + 1 + 2 * 20
    assert measured.ms["a"] == pytest.approx([5, 5])


def missing():
    raise ImportError("No module named 'peer'")


def failing():
    raise KeyError("device")


def test_what_is_not_installed_or_fails_is_left_out():
    calls = []
    contenders = {"peer": Contender(missing), "odd": Contender(failing, foreign=True), "a": noted(calls, "a")}
    contenders["late"] = Contender(lambda: Work(failing), foreign=True)
    measured = measure(contenders, 1, CPU)
    assert set(measured.ms) == {"a"}
    assert measured.left_out == {
        "peer": "No module named 'peer'",
        "odd": "it fails: 'device'",
        "late": "it fails: 'device'",
    }


def test_a_failure_of_our_own_is_not_hidden():
    with pytest.raises(KeyError):
        measure({"ours": Contender(failing)}, 1, CPU)


def test_a_step_that_cannot_be_captured_runs_as_it_is_and_says_so(monkeypatch):
    def refused(*_):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    built, calls = [], []
    monkeypatch.setattr(timing, "capture", refused)

    def build():
        built.append(1)
        return Work(lambda: calls.append(len(built)))

    measured = measure({"a": Contender(build, captured=True)}, 1, CPU)
    assert measured.notes == {"a": "not captured as a CUDA graph: operation not permitted"}
    assert calls == [2] * (WARM_UP + 1), "the step was built anew"


@pytest.mark.parametrize("before", ["on", None])
def test_kernels_are_switched_off_inside_the_block_alone(before, monkeypatch):
    monkeypatch.delenv("UCB_KERNELS", raising=False)
    if before is not None:
        monkeypatch.setenv("UCB_KERNELS", before)
    status = kernels.status()

    def fail():
        with conditions("tf32", False, CPU, None):
            assert os.environ["UCB_KERNELS"] == "off"
            assert kernels.status() == status
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert os.environ.get("UCB_KERNELS") == before


def test_kernels_that_stay_on_are_not_timed_as_if_they_were_off(monkeypatch):
    monkeypatch.setattr(timing.launch, "available", lambda device: True)
    with pytest.raises(RuntimeError, match="cannot be switched off"), without_kernels(CPU):
        pass


@pytest.mark.gpu
def test_a_captured_step_does_the_same_work():
    device = torch.device("cuda")
    x, y = MLP.batch_on(device)
    with conditions("float32", True, device, torch.cuda.Stream()):
        torch.cuda.synchronize()
        eager, step = OrdinaryNets(MLP, 3, x, y), OrdinaryNets(MLP, 3, x, y)
        for p, q in zip(eager.parameters, step.parameters, strict=True):
            q.data.copy_(p.detach())
        replay = capture(Work(step), device)
        for _ in range(5):
            replay()
        for _ in range(WARM_UP + 5):
            eager()
        torch.cuda.synchronize()
    for p, q in zip(eager.parameters, step.parameters, strict=True):
        torch.testing.assert_close(p, q)
