import math

import pytest
import torch

from ucb.metrics import brier, calibration, ece, nll, nlls, reliability


def test_known_values(double):
    p, y = torch.tensor([[0.8, 0.2], [0.4, 0.6]]), torch.tensor([0, 0])
    torch.testing.assert_close(nll(p, y), torch.tensor(-(math.log(0.8) + math.log(0.4)) / 2))
    torch.testing.assert_close(brier(p, y), torch.tensor((0.04 + 0.04 + 0.36 + 0.36) / 2))
    # Bins (0.5, 0.6] and (0.7, 0.8] of ten: gaps |0 - 0.6| and |1 - 0.8|, half the rows each.
    torch.testing.assert_close(ece(p, y, 10), torch.tensor((0.6 + 0.2) / 2))


def test_a_calibrated_forecaster_has_no_error_and_an_overconfident_one_has(double):
    p = torch.rand(200_000) * 0.5 + 0.5
    probabilities = torch.stack([p, 1 - p], 1)
    truth = (torch.rand(200_000) > p).long()
    assert ece(probabilities, truth) < 0.01
    overconfident = torch.stack([p.sqrt(), 1 - p.sqrt()], 1)
    expected = (p.sqrt() - p).mean()
    torch.testing.assert_close(ece(overconfident, truth), expected, rtol=0, atol=0.01)
    assert nll(probabilities, truth) < nll(overconfident, truth)
    assert brier(probabilities, truth) < brier(overconfident, truth)


def test_extremes():
    sure = torch.tensor([[1.0, 0.0]])
    assert float(ece(sure, torch.tensor([0]))) == 0
    assert float(ece(sure, torch.tensor([1]))) == 1
    assert float(brier(sure, torch.tensor([1]))) == 2
    assert math.isfinite(float(nll(sure, torch.tensor([1]))))


@pytest.mark.parametrize("dtype", [torch.half, torch.float, torch.double])
def test_all_at_once_is_the_same_as_one_by_one(dtype):
    p, y = torch.randn(300, 4).mul(3).softmax(1).to(dtype), torch.randint(4, (300,))
    for bins in (15, 4):
        found = calibration(p, y, bins)
        assert torch.equal(found.nlls, nlls(p, y))
        assert torch.equal(found.ece, ece(p, y, bins))
        assert torch.equal(found.reliability, reliability(p, y, bins))


@pytest.mark.parametrize("row", [[0.6, 0.6], [0.4, 0.4], [1.5, -0.5], [math.nan, 1.0], [math.nan] * 2, [math.inf, 0.0]])
@pytest.mark.parametrize("metric", [nll, nlls, brier, ece, reliability, calibration])
def test_one_row_that_is_no_probabilities_is_enough(metric, row):
    sound = [0.3, 0.7]
    metric(torch.tensor([sound, sound, [0.5, 0.505]]), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="logits"):
        metric(torch.tensor([sound, row, sound]), torch.zeros(3, dtype=torch.long))


def test_shapes_that_do_not_fit_are_refused():
    for metric in (nll, brier, ece, calibration):
        with pytest.raises(ValueError, match="do not fit"):
            metric(torch.ones(3, 2), torch.zeros(4, dtype=torch.long))
        with pytest.raises(ValueError, match="at least one row"):
            metric(torch.ones(0, 2), torch.zeros(0, dtype=torch.long))
        with pytest.raises(ValueError, match="one class"):
            metric(torch.ones(2, 0), torch.zeros(2, dtype=torch.long))
        with pytest.raises(ValueError, match="logits"):
            metric(torch.tensor([[5.0, -1.0]]), torch.zeros(1, dtype=torch.long))
    for metric in (ece, reliability, calibration):
        with pytest.raises(ValueError, match="bins"):
            metric(torch.tensor([[0.5, 0.5]]), torch.zeros(1, dtype=torch.long), 0)


@pytest.mark.parametrize("label", [2, 7, -1])
@pytest.mark.parametrize("metric", [nll, nlls, brier, ece, reliability, calibration])
def test_a_label_that_numbers_no_class_is_refused(metric, label):
    with pytest.raises(ValueError, match=f"labels must be between 0 and 1, one for each class, not {label}"):
        metric(torch.tensor([[0.5, 0.5], [0.2, 0.8]]), torch.tensor([0, label]))


@pytest.mark.parametrize("metric", [nll, nlls, brier, ece, reliability, calibration])
def test_labels_that_are_no_whole_numbers_are_refused(metric):
    with pytest.raises(TypeError, match="whole numbers"):
        metric(torch.tensor([[0.5, 0.5]]), torch.tensor([0.5]))
