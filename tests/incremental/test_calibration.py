"""Probabilities that mean what they say, and a threshold that calls one in twenty unsure."""

import math

import pytest
import torch

from tests.incremental.data import digits, letters
from ucb.incremental import Model
from ucb.incremental.calibration import SCALES, VALUES, RawPrediction, RawPredictionBatches, ScoreCalibration
from ucb.incremental.learning import hold_out
from ucb.incremental.predict import predict_batch
from ucb.metrics import auroc, ece


def made_up(count, scale, seed=0, classes=4):
    """Opinions whose true classes are drawn from softmax(scale * logits): that scale is the right one."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator)
    target = torch.multinomial((scale * logits).softmax(-1), 1, generator=generator).squeeze(1)
    novelty, strength = torch.randn(2, count, generator=generator)
    return RawPrediction(logits.unsqueeze(0), novelty, strength), target


@pytest.mark.parametrize("scale", [0.7, 3.0, 30.0])
def test_the_scale_that_made_the_classes_is_found(scale):
    calibration = ScoreCalibration()
    calibration.update([made_up(4000, scale)])
    assert calibration.scale == pytest.approx(scale, rel=0.2)


def test_one_in_twenty_is_called_unsure_whether_in_one_portion_or_many():
    whole, parts = ScoreCalibration(), ScoreCalibration()
    whole.update([made_up(4000, 3.0)])
    for seed in range(8):
        parts.update([made_up(500, 3.0, seed)])
    for calibration in (whole, parts):
        unsure = calibration.calibrate(made_up(4000, 3.0, seed=99)[0]).unsure
        assert float(unsure.double().mean()) == pytest.approx(0.05, abs=0.02)


def test_batches_of_a_wave_teach_the_same_as_the_whole():
    raw, target = made_up(1000, 3.0)

    def predict(rows):
        assert len(rows) <= 37
        return RawPrediction(raw.logits[:, rows], raw.novelty[rows], raw.strength[rows])

    asked = RawPredictionBatches(predict, torch.arange(1000), target, VALUES // 37)
    whole, batches = ScoreCalibration(), ScoreCalibration()
    given, said = whole.update([(raw, target)])
    in_batches, said_in_batches = batches.update(asked)
    assert torch.equal(in_batches, given)
    assert torch.equal(given, raw.logits[0].argmax(-1))
    torch.testing.assert_close(said_in_batches, said, rtol=1e-6, atol=1e-6)


def test_no_doubt_is_0_and_not_minus_0():
    calibration = ScoreCalibration()
    raw = RawPrediction(torch.tensor([[[1e4, 0.0], [0.1, 0.0]]]).repeat(3, 1, 1), *torch.zeros(2, 2))
    entropy = calibration.calibrate(raw).prediction.entropy.tolist()
    assert entropy[1] > 0
    assert f"{entropy[0]:.3f}" == "0.000"


def test_an_example_with_more_doubt_than_any_before_is_unsure():
    calibration = ScoreCalibration()
    calibration.update([made_up(1000, 3.0)])
    signs = [(0.0, 0.0), (-9.0, 0.0), (9.0, 0.0), (0.0, 9.0), (0.0, -9.0)]  # novelty and strength
    said = [
        bool(
            calibration.calibrate(RawPrediction(torch.tensor([[[9.0, 0, 0, 0]]]), *torch.tensor(pair).split(1))).unsure
        )
        for pair in signs
    ]
    assert said == [False, False, True, True, True]


def test_without_examples_it_still_answers():
    calibration = ScoreCalibration()
    assert len(calibration.update([])[0]) == 0
    assert calibration.scale == pytest.approx(10, rel=0.1)
    assert 2 < calibration.threshold < 3


def test_what_was_measured_against_fewer_classes_counts_less():
    one, other = (ScoreCalibration().update([made_up(100, 3.0, seed)])[1] for seed in (0, 1))
    both = ScoreCalibration([(one, 2), (other, 4)], 4)
    for sums, first, second in zip((both.nll, both.moments, both.histogram), one, other, strict=True):
        torch.testing.assert_close(sums, first.double() / 2 + second.double())
    alone = ScoreCalibration([(other, 4)], 4)
    assert alone.scale == pytest.approx(3, rel=0.5)
    assert len(alone.nll) == len(SCALES)


def test_a_tenth_of_each_class_is_held_out_but_not_of_tiny_ones():
    labels = ["a"] * 100 + ["b"] * 5 + ["c"] * 4
    mask = hold_out(labels, 0, 0)
    assert [int(mask[start:stop].sum()) for start, stop in ((0, 100), (100, 105), (105, 109))] == [10, 1, 0]
    assert torch.equal(mask, hold_out(labels, 0, 0))
    assert not torch.equal(mask, hold_out(labels, 1, 0))
    assert int(hold_out(["a"] * 50_000, 0, 0).sum()) == 1000


@pytest.fixture(scope="module")
def trained(medium):
    model = Model()
    for pair in ([0, 1], [2, 3], [4, 5]):
        model.learn(digits(pair, 300))
    return model


def test_digits_are_known_and_their_probabilities_are_honest(trained):
    x, labels = digits(range(6), 150, "test")
    answers = predict_batch(trained, x)
    target = trained.numbers_of(labels)
    assert float((answers.prediction.label == target).double().mean()) > 0.97
    assert float(ece(answers.prediction.probabilities, target)) < 0.03
    assert float(answers.unsure.double().mean()) < 0.12
    assert bool((answers.prediction.entropy <= math.log(6) + 1e-5).all())
    assert bool((answers.prediction.mutual_information <= answers.prediction.entropy + 1e-6).all())


@pytest.mark.parametrize("what", ["letters", "noise", "inverted digits", "digits never seen"])
def test_what_is_no_known_digit_is_told_from_digits(trained, what):
    x = digits(range(6), 150, "test")[0]
    noise = torch.randint(0, 256, (200, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    unlike = {
        "letters": lambda: letters(300),
        "noise": lambda: noise,
        "inverted digits": lambda: 255 - x[:200],
        "digits never seen": lambda: digits([6, 7, 8, 9], 60, "test")[0],
    }[what]()
    known, unknown = predict_batch(trained, x), predict_batch(trained, unlike)
    assert auroc(known.unsureness, unknown.unsureness) >= 0.9
    assert float(unknown.unsure.double().mean()) > 4 * float(known.unsure.double().mean())


@pytest.mark.parametrize("level", [0, 90, 255])
def test_an_image_that_shows_nothing_is_unsure(trained, level):
    """Nothing about it is new: that there is nothing to see must count by itself."""
    blank = torch.full((1, 1, 28, 28), level, dtype=torch.uint8)
    assert bool(predict_batch(trained, blank).unsure)
