"""The rule that says whether our figure is the paper's: bounds, both sides, rounding."""

import math

import pytest

from ucb.experiments.reproduce.compare import RULE, Measure, allowed_difference, verdict_of


@pytest.mark.parametrize(
    ("ours", "theirs", "points"),
    [
        (0.3, 0.0, 0.6),
        (0.0, 0.3, 0.6),
        (0.12, 0.16, 0.4),  # a triangle of 3, 4 and 5
        (0.3, None, 0.6),
        (None, 0.3, 0.6),
        (None, None, 1.0),
        (0.0, 0.0, 0.1),  # seeds that agree by chance
        (0.03, 0.03, 0.1),
        (0.0, None, 0.1),
        (1.75, None, 1.0),  # noise excuses a point at most
        (0.6, 0.8, 1.0),
    ],
)
def test_twice_the_combined_spread_within_bounds(ours, theirs, points):
    assert allowed_difference(Measure(97.0, ours), Measure(99.0, theirs)) == pytest.approx(points)


@pytest.mark.parametrize("spread", [None, 0.0, 0.2, 3.0])
@pytest.mark.parametrize("digits", [1, 2])
def test_both_sides_are_judged_alike_and_half_a_printed_digit_is_added(spread, digits):
    theirs = Measure(90.0, spread, digits)
    edge = allowed_difference(Measure(0.0), theirs) + {1: 0.05, 2: 0.005}[digits]
    for sign, outside in ((1, "above"), (-1, "below")):
        assert verdict_of(Measure(90.0 + sign * (edge - 1e-9)), theirs) == "within"
        assert verdict_of(Measure(90.0 + sign * (edge + 1e-9)), theirs) == outside
    assert verdict_of(Measure(90.0), theirs) == "within"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (Measure(97.31, 0.09), Measure(65.65, 0.05), "above"),
        (Measure(96.21, 1.75), Measure(98.7, None, 1), "below"),
        (Measure(99.16, 0.0), Measure(99.3, None, 1), "within"),  # the paper has no second decimal
        (Measure(99.16, 0.0), Measure(99.3, None, 2), "below"),
    ],
)
def test_figures_as_they_come(ours, theirs, said):
    assert verdict_of(ours, theirs) == said


def test_more_noise_never_widens_what_is_allowed_beyond_a_point():
    widths = [
        allowed_difference(Measure(0.0, spread), Measure(0.0, 0.1)) for spread in (0.0, 0.1, 0.4, 1.0, 10.0, math.inf)
    ]
    assert widths == sorted(widths)
    assert max(widths) == 1


def test_the_rule_in_words_has_the_numbers_of_the_rule():
    assert "at least 0.1, at most 1 point; 1 where no spread is known" in RULE
