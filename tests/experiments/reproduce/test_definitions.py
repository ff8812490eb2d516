"""Every row can be run, every row of the paper is covered, and nets are as large as the paper's."""

import re
from dataclasses import replace

import pytest

from ucb.data.streams import BENCHMARKS
from ucb.engine.config import replace_fields
from ucb.experiments.reproduce import paper
from ucb.experiments.reproduce.definitions import home_of, job_of, recipe_of, table_named, tables, units_for
from ucb.methods import find_method, known_methods
from ucb.methods.bayesian import BayesianMethod

ROWS = [pytest.param(table, row, id=f"{table.id}-{row.name}") for table in tables().values() for row in table.rows]
WIDTHS = {1908020: 1200, 99320: 56}
OUTPUTS = {"mnist-2split": [5] * 2, "mnist-5split": [2] * 5, "mnist-permuted": [10] * 10}


def job_for(table, row):
    return job_of(home_of(table, row)[1])


def settings_for(table, row):
    """The settings that a row really runs with, defaults included."""
    job = job_for(table, row)
    return replace_fields(find_method(job.method).settings_type(), job.settings)


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_every_row_is_a_job_or_says_why_not(table, row):
    assert re.fullmatch(r"[a-z0-9.-]+", row.name)
    if row.method is None:
        assert row.obstacle
        with pytest.raises(ValueError, match=re.escape(row.obstacle)):
            job_of(row)
        return
    assert not row.obstacle
    assert row.method in known_methods()
    home, kept = home_of(table, row)
    assert kept.method == row.method
    assert not kept.same_as
    assert kept in home.rows
    job = job_of(kept, seed=2, device="cuda")
    assert (job.seed, job.device, job.method) == (2, "cuda", row.method)
    assert job.benchmark in BENCHMARKS
    assert job.training == {**recipe_of(kept).training, **job.training}
    for name, value in kept.settings.items():
        assert {**job.settings, **job.training, **job.net_options}[name] == value


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_no_two_rows_share_a_name_and_all_have_the_papers_row(table):
    assert len({row.name for row in table.rows}) == len(table.rows)
    for row in table.rows:
        if row.paper is not None:
            found = paper.table(table.paper[0]).row(row.paper.row, row.paper.of)
            assert row.paper.acc in {figure.column for figure in found.figures}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("5split-mnist", 14),
        ("permuted-mnist", 15),
        ("cifar-alternating", 12),
        ("eight-datasets", 12),
        ("2split-mnist", 11),
        ("importance", 8),
        ("samples", 5),
        ("architectures", 4),
    ],
)
def test_every_row_of_the_papers_table_is_covered(name, rows):
    covered = {(row.paper.row, tuple(row.paper.of.items())) for row in table_named(name).rows if row.paper}
    theirs = {(row.name, tuple(row.of.items())) for row in paper.table(name).rows}
    assert covered == theirs
    assert len(theirs) == rows


def test_the_single_head_table_has_every_figure_for_mnist_and_three_readings():
    rows = table_named("single-head").rows
    columns = set(paper.table("single-head").columns)
    for name in ("SM", "PM"):
        assert {row.paper.acc for row in rows if row.paper and row.paper.row == name} == columns
    for row in rows:
        if row.method is not None:
            assert row.single_head == (not row.same_as)
    assert any(row.method == "conjugate" for row in rows)
    for benchmark in ("mnist-2split", "mnist-5split", "mnist-permuted"):
        for method in ("ucb", "bbb-ft", "ucb-ng"):
            own = [row for row in rows if (row.method, row.benchmark) == (method, benchmark) and row.settings]
            hidden, told = ([row for row in own if row.task_told is known] for known in (False, True))
            assert sorted(row.settings["own_classes"] for row in hidden) == [False, True]
            assert [row.settings["own_classes"] for row in told] == ([] if method == "ucb-ng" else [True])
            assert all(row.apart == (benchmark == "mnist-permuted") for row in own)


@pytest.mark.parametrize("method", ["ucb", "bbb-ft"])
@pytest.mark.parametrize("stream", ["2split", "5split", "permuted-apart"])
def test_a_row_that_is_told_the_task_learns_as_the_one_that_is_not(method, stream):
    """The paper trains one net and judges it in both ways."""
    table = table_named("single-head")
    told, hidden = (table.row(f"{method}-{stream}-{how}") for how in ("told", "own"))
    assert job_of(told) == replace(job_of(hidden), task_told=True)
    columns = {"ucb": "UCB", "bbb-ft": "BBB-FT"}
    assert told.paper.acc == f"ACC, single head, {columns[method]}"
    assert hidden.paper.acc == f"generalised {told.paper.acc}"


def test_what_only_we_have_stands_beside_the_main_table():
    ours = {row.method for row in table_named("5split-mnist").rows if row.paper is None}
    assert ours >= {"ucb-ng", "uniform-lr", "si", "mas", "packnet"}
    imm = [row.method for row in table_named("5split-mnist").rows if row.better_of]
    assert imm == ["imm-mean", "imm-mode"]


def test_the_ablation_is_what_its_words_say():
    table = table_named("importance")
    measured = 0
    for row in table.rows:
        if row.paper is None:
            continue
        measured += 1
        settings, of = settings_for(table, row), row.paper.of
        assert row.method == row.paper.row.lower()
        assert settings.importance == {"1/sigma": "certainty", "|mu|/sigma": "snr"}[of["importance"]]
        if row.method == "ucb":
            assert settings.on == {"x-": "mu", "-x": "rho", "xx": "both"}[of["mu"] + of["rho"]]
            assert not settings.cumulative
    assert measured == 8


def test_the_numbers_of_samples_are_the_papers():
    table = table_named("samples")
    assert [settings_for(table, row).samples for row in table.rows] == [1, 2, 5, 10, 15]
    assert [row.paper.of["N"] for row in table.rows] == [1, 2, 5, 10, 15]


def stored(job):
    """Values of 784-hidden-heads, counted by hand: mu and rho for each weight of a Bayesian net."""
    sizes = OUTPUTS[job.benchmark]
    if job.single_head:
        sizes = [10] if job.benchmark == "mnist-permuted" and not job.apart else [sum(sizes)]
    (units,) = job.net_options["hidden"]
    weights = (784 + 1) * units + sum((units + 1) * size for size in sizes)
    return weights * (2 if issubclass(known_methods()[job.method], BayesianMethod) else 1)


@pytest.mark.parametrize(("table", "row"), [each for each in ROWS if each.values[1].budget and each.values[1].method])
def test_nets_store_what_the_budget_allows_within_two_percent(table, row):
    kept = home_of(table, row)[1]
    assert abs(stored(job_of(kept)) / kept.budget - 1) < 0.02
    assert kept.budget in WIDTHS


def test_widths_follow_from_the_count():
    """784-1200 with ten outputs, and 784-56 with ten heads, are the paper's own."""
    widths = {
        (table, name): job_of(table_named(table).row(name)).net_options["hidden"]
        for table, name in [
            ("5split-mnist", "ucb"),
            ("5split-mnist", "hat"),
            ("permuted-mnist", "ucb-0.1m"),
            ("permuted-mnist", "ewc-0.1m"),
            ("permuted-mnist", "vcl-0.1m"),
        ]
    }
    assert list(widths.values()) == [[1200], [2400], [56], [112], [56]]
    small = job_of(table_named("permuted-mnist").row("ucb-0.1m"))
    assert stored(small) == 99320
    assert units_for(1, small) == 1


@pytest.mark.parametrize("method", ["ucb", "vcl", "hat", "ewc"])
def test_the_built_net_has_the_counted_values(method):
    job = job_of(table_named("5split-mnist").row(method))
    parameters = sum(p.numel() for p in job.run().method.net.parameters())
    assert parameters == stored(job)
    assert abs(parameters / 1908020 - 1) < 0.001


def test_a_row_takes_its_own_recipe_before_the_benchmarks(monkeypatch):
    from ucb.engine.config import Recipe
    from ucb.experiments.reproduce import definitions

    known = {("mnist-permuted", "ucb"): Recipe(settings={"lr": 0.5}, found="here")}
    monkeypatch.setattr(definitions, "recipe_for", lambda name, method: known.get((name, method), Recipe()))
    row = table_named("permuted-mnist").row("ucb-0.1m")
    assert job_of(row).settings == {"lr": 0.5}
    known["permuted-mnist-0.1m", "ucb"] = Recipe(settings={"lr": 0.25}, training={"epochs": 3}, found="there")
    assert job_of(row).settings == {"lr": 0.25}
    assert job_of(row).training == {"epochs": 3}
