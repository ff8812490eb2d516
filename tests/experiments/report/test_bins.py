"""What the engine keeps for a report: bins of confidence, and sigma after each task."""

import pytest
import torch

from tests.engine.runs import small_run
from ucb.engine.result import result_of, summarize_bins
from ucb.metrics import ece, reliability


def test_bins_hold_rows_confidences_and_hits():
    p = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.25, 0.75]])
    held = reliability(p, torch.tensor([0, 0, 1]), bins=5)
    # (0.4, 0.6] holds one wrong row; (0.6, 0.8] two right ones, 0.8 itself among them.
    expected = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0.6, 0], [2, 1.55, 2], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(held, expected, rtol=0, atol=1e-6)
    assert summarize_bins([held.tolist()]) == [
        {"count": [1, 2], "confidence": pytest.approx([0.6, 0.775]), "accuracy": [0.0, 1.0]}
    ]


def test_small_gaps_are_not_lost_among_many_rows():
    """In single precision a sum of a million confidences would round away what calibration is about."""
    p = torch.full((1_000_000, 2), 0.5)
    p[:, 0], p[:, 1] = 0.999, 0.001
    target = (torch.arange(1_000_000) % 1000 == 0).long()
    assert float(ece(p, target)) < 1e-7


def test_a_run_keeps_both_and_a_copy_of_its_state_too():
    run = small_run("ucb-ng")
    run.learn()
    again = small_run("ucb-ng")
    again.load_state_dict(run.state_dict())
    found = [result_of(each, {}) for each in (run, again)]
    for key in ("calibration", "sigma_by_task", "sigma"):
        assert found[0][key] == found[1][key]
    after = found[0]["sigma_by_task"]
    assert len(after) == len(run.stream)
    assert after[0] | after[1] | after[2] == found[0]["sigma"], "what is not named has not moved"
    assert after[0] != after[-1], "sigma goes on moving"
    assert after[0]["heads.1.weight"]["ratio_p50"] == 1, "the second head waits for its task"


def test_without_sigma_there_is_no_movement():
    run = small_run("ord-ft")
    run.learn()
    found = result_of(run, {})
    assert found["sigma_by_task"] is None
    assert len(found["calibration"]) == len(run.stream)
