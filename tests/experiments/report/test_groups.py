"""Runs that belong together, and what they are called."""

import pytest

from tests.experiments.report.results import result
from ucb.experiments.report.comparison import compare, groups_of


def with_settings(acc, seed=0, method="ucb", device="cpu", **settings):
    run = result(method, seed, acc)
    run["config"] = run["config"] | {"settings": settings, "device": device}
    return run


def names(*runs):
    return [(group.label, group.full) for group in groups_of(runs)]


def test_a_device_is_no_setting():
    runs = [with_settings(95, 0, device="cuda", lr=0.1), with_settings(96, 1, device="cpu", lr=0.1)]
    (group,) = groups_of(runs)
    assert group.label == "ucb"
    assert [run["seed"] for run in group.runs] == [0, 1]


def test_only_what_differs_is_named_and_nothing_that_is_left_open():
    assert names(with_settings(99, lr=0.1, gain=5.0, cumulative=True), with_settings(98, lr=0.1, samples=3)) == [
        ("ucb (cumulative, gain=5)", "ucb (cumulative, gain=5)"),
        ("ucb (samples=3)", "ucb (samples=3)"),
    ]
    assert names(with_settings(99, own=True), with_settings(98, own=False), with_settings(97, method="ewc")) == [
        ("ucb (own)",) * 2,
        ("ucb (no own)",) * 2,
        ("ewc",) * 2,
    ]


def test_what_most_have_goes_without_saying_but_not_in_the_full_name():
    runs = [with_settings(99, t=0.01, on="mu"), with_settings(98, t=0.01, on="rho"), with_settings(97, t=0.0, on="mu")]
    assert names(*runs) == [
        ("ucb", "ucb (on=mu, t=0.01)"),
        ("ucb (on=rho)", "ucb (on=rho, t=0.01)"),
        ("ucb (t=0)", "ucb (on=mu, t=0)"),
    ]
    chart = compare(groups_of(runs), "acc", "ACC", "%; accuracy")
    assert chart.layout["yaxis"]["ticktext"] == ["ucb", "ucb (on=rho)", "ucb (t=0)"]
    assert [row[0] for row in chart.table.rows] == [full for _, full in names(*runs)]
    assert [about[0] for about in chart.traces[0]["customdata"]] == [full for _, full in names(*runs)]


@pytest.mark.parametrize("value", [0.01, None, False, "", 0])
def test_no_two_groups_look_alike(value):
    """Three have the value, one leaves the setting open, one has another: all are told apart."""
    runs = [with_settings(99 - i, lr=i, t=value) for i in range(3)]
    runs += [with_settings(90, lr=0), with_settings(89, lr=0, t=7)]
    labels = [label for label, _ in names(*runs)]
    assert len(set(labels)) == 5
    assert all(label == "ucb" or label.startswith("ucb (") for label in labels)
    assert not any("as it is" in label for label in labels)


def test_a_long_name_hovers_in_lines_that_fit_a_phone():
    long = {f"a_setting_<{number}>": 0.125 for number in range(8)}
    chart = compare(groups_of([with_settings(99, **long), with_settings(98)]), "acc", "ACC", "%; accuracy")
    lines = chart.traces[0]["customdata"][0][0].split("<br>")
    assert len(lines) > 3
    assert max(len(line.replace("&lt;", "<").replace("&gt;", ">")) for line in lines) <= 40
