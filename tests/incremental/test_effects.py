"""What is said about earlier waves holds on examples that nobody has learnt."""

import math

import pytest
import torch

from tests.incremental.data import digits
from ucb.incremental import Model


def after_one_more(waves):
    """The model before the last wave, as its scores, and after it; and the effects that were stated."""
    model = Model()
    for wave in waves[:-1]:
        model.learn(wave)
    before = model.learner
    return before, model, model.learn(waves[-1]).effects


@pytest.mark.usefixtures("small")
def test_it_is_the_change_of_what_examples_leave_unexplained_when_they_are_left_out():
    """From the examples one by one: their targets less their scores, divided by 1 - the mean leverage."""
    first = digits([0, 1], 40)
    before, model, (effect,) = after_one_more([first, digits([2, 3], 40)])
    phi = torch.cat([before.features(first[0]).double(), torch.ones(80, 1, dtype=torch.float64)], 1)
    target = torch.nn.functional.one_hot(model.numbers_of(first[1]), 2).double()

    def left(learner, examples):
        whole = learner.head.gram + learner.head.ridge * torch.eye(len(learner.head.gram))
        leverage = float(torch.linalg.solve(whole, learner.head.gram).trace()) / examples
        return (target - (phi @ learner.head.weights)[:, :2]) / (1 - leverage)

    change = (left(model.learner, 160) - left(before, 80)).square().mean().sqrt()
    assert effect.wave == "wave 1"
    assert effect.change == pytest.approx(float(change), rel=1e-3)
    assert f"{effect.change:.3f}" in effect.sentence
    assert "unseen" in effect.sentence


@pytest.mark.usefixtures("medium")
@pytest.mark.parametrize("counts", [(5, 5, 5), (20, 20, 20), (100, 100, 100), (5, 200), (200, 5)])
def test_scores_of_unseen_digits_move_as_it_was_said(counts):
    waves = [digits([2 * wave, 2 * wave + 1], count) for wave, count in enumerate(counts)]
    before, model, effects = after_one_more(waves)
    known = len(before.head.counts)
    x = digits(range(known), 100, "test")[0]
    features = before.features(x).double()
    moved = (model.learner.head(features)[:, :known] - before.head(features)).square().mean(0)
    for place, effect in enumerate(effects):
        seen = math.sqrt(float(moved[2 * place : 2 * place + 2].mean()))
        assert seen / 3.5 < effect.change < 1.5 * seen


@pytest.mark.usefixtures("medium")
def test_a_wave_that_changes_nothing_is_said_to_change_nothing():
    wave = digits([0, 1], 300)
    _, _, (effect,) = after_one_more([wave, digits([0, 1], 2, skip=300)])
    assert effect.change < 0.01
    assert effect.sentence.endswith("hardly at all")
