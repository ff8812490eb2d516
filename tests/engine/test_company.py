"""What a result says of memory and time when runs share a process."""

import dataclasses
import json
from itertools import count

import pytest
import torch

from tests.engine.runs import small_job, small_run
from ucb import engine
from ucb.engine import InterruptedRunError, Observer, PlannedRun, result
from ucb.engine import runner as ordered
from ucb.engine.result import find_company, result_of

SMALL = small_job()


def shared(result):
    return result["beside"], result["peak_memory_bytes"] is not None


def orders(folder, runs):
    return [PlannedRun(dataclasses.replace(SMALL, seed=seed), folder / str(seed), Observer()) for seed in range(runs)]


@pytest.fixture
def new_process(monkeypatch):
    """As if nothing had run before in this process."""
    monkeypatch.setattr(result, "_runs_begun", count())


def test_the_peak_of_a_process_is_told_of_its_first_run_only(tmp_path, new_process):
    results = engine.carry_out_all(orders(tmp_path, 3))
    assert [shared(result) for result in results] == [(0, True), (0, False), (0, False)]
    assert results[0]["peak_memory_bytes"] > 50e6, "PyTorch alone takes more"
    written = [json.loads((tmp_path / str(seed) / "result.json").read_text()) for seed in range(3)]
    assert written == results


def test_runs_side_by_side_say_with_how_many_and_no_memory(tmp_path, new_process, monkeypatch):
    monkeypatch.setattr(ordered, "find_side_by_side_obstacle", lambda *_: None)
    assert [shared(result) for result in engine.carry_out_all(orders(tmp_path / "three", 3))] == [(2, False)] * 3
    monkeypatch.setattr(result, "_runs_begun", count())
    assert [shared(result) for result in engine.carry_out_all(orders(tmp_path / "one", 1))] == [(0, True)]


class Stopping(Observer):
    """Stops a run at its thirtieth batch."""

    def batch_learnt(self, _task, _epoch, batch, _batches):
        if batch == 30:
            raise InterruptedRunError("enough")


def test_of_a_run_that_was_cut_memory_is_not_known(tmp_path, monkeypatch):
    with pytest.raises(InterruptedRunError):
        engine.start(SMALL, tmp_path, Stopping())
    monkeypatch.setattr(result, "_runs_begun", count())
    assert shared(engine.resume(tmp_path)) == (0, False), "a CPU has no runs side by side in a process"


@pytest.fixture
def gpu(monkeypatch):
    """A GPU's count of its memory, which others have driven up to 9000 bytes."""
    peak = {"bytes": 9000}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update(bytes=100))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak["bytes"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    return peak


@pytest.mark.parametrize(
    ("beside", "resumed", "said", "left"),
    [(0, False, (0, 100), 100), (14, False, (14, None), 9000), (0, True, (None, None), 100)],
    ids=["alone", "beside others", "resumed"],
)
def test_on_a_gpu_the_peak_begins_anew_when_a_run_is_alone(gpu, beside, resumed, said, left):
    """Other runs of the process, before it, do not count; runs beside it are left their peak."""
    for _ in range(2):
        gpu["bytes"] = 9000
        run = small_run("ord-ft")
        run.device = torch.device("cuda")
        company = find_company(run, beside, resumed)
        assert gpu["bytes"] == left
        run.device = torch.device("cpu")
        run.learn()
        run.device = torch.device("cuda")
        found = result_of(run, {}, company)
        assert (found["beside"], found["peak_memory_bytes"]) == said


@pytest.mark.gpu
def test_a_small_run_after_a_large_one_has_its_own_peak(tmp_path):
    large = torch.zeros(300_000_000, device="cuda")
    del large
    job = dataclasses.replace(SMALL, device="cuda")
    assert 0 < engine.start(job, tmp_path / "run")["peak_memory_bytes"] < 1_200_000_000


def test_without_a_word_about_its_company_nothing_is_claimed():
    run = small_run("ord-ft")
    run.learn()
    assert shared(result_of(run, {})) == (None, False)


def test_where_processes_share_a_gpu_nobody_knows_how_many_runs_there_are(gpu, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somewhere")
    run = small_run("ord-ft")
    run.device = torch.device("cuda")
    assert find_company(run, 0, resumed=False).beside is None
    run.device = torch.device("cpu")
    assert find_company(run, 0, resumed=False).beside == 0
