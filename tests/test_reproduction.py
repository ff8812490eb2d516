"""docs/reproduction.md says what the result files say, whatever they say, and its commands do what they promise."""

import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ucb import tuning
from ucb.cli import app as commands
from ucb.engine.recipes import Recipe, recipe_for
from ucb.reproduce import table_named, tables
from ucb.reproduce.compare import Measure
from ucb.reproduce.jobs import job_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"


@pytest.fixture
def made(monkeypatch):
    """The module that makes the page; afterwards nothing of it is left."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield __import__("reproduction_page")
    for path in (ROOT / "benchmarks").glob("*.py"):
        sys.modules.pop(path.stem, None)


def keep(results, table, name, accs, device="a machine", settings=None, spread=None):
    """Write result files as runs of the row would, one for each accuracy."""
    row = table_named(table).row(name)
    for seed, acc in enumerate(accs):
        config = dataclasses.asdict(job_of(row, seed))
        config["settings"] |= settings or {}
        found = {"seed": seed, "acc": acc, "bwt": -1.0, "config": config, "device": device, "seconds": 90.0 + seed}
        if spread is not None:
            found["sigma"] = {"trunk.1.weight": {"std_log_sigma": spread}}
        path = results / "tables" / table / f"{name}-seed{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**found, "versions": {"ucb": "1.2"}}))


def plain(text):
    """A text on one line."""
    return re.sub(r"\s+", " ", text)


def test_the_committed_page_is_what_the_results_say(made):
    assert PAGE.read_text() == made.page(), "run benchmarks/write_docs.py"


def test_settings_at_the_edge_of_what_was_tried_are_named(made):
    settings = {"lr": 0.3, "power": 2.0, "uniform": True, "clip": 1.0, "gain": 0.5}
    grid = {"lr": [0.1, 0.3], "power": [1.0, 2.0, 3.0], "uniform": [True, False], "clip": [1.0], "gain": [0.5, 1.0]}
    settings_module = sys.modules["reproduction_settings"]
    assert settings_module.at_edges(Recipe(settings=settings, grid=grid)) == ["lr", "gain"]


def test_every_result_file_stands_in_a_table(made):
    text = PAGE.read_text()
    for path in (ROOT / "results" / "tables").glob("*/*.json"):
        table = table_named(path.parent.name)
        row = table.row(re.sub(r"-seed\d+$", "", path.stem))
        title = made.capital(table.about)
        section = text[text.index(f"## {title}") :].split("\n## ")[0]
        assert f"`{row.name}`" in section


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)]+)\)", PAGE.read_text())
    assert len(targets) > 10
    for target in targets:
        assert (PAGE.parent / target).exists(), target


def test_without_results_every_table_is_named_with_its_command(made, tmp_path):
    text = made.page(tmp_path)
    assert f"0 of {sum(len(made.compared(t, tmp_path)) for t in tables().values()) - 1} rows are measured" in plain(
        text
    )
    assert "Does the uncertainty" not in text
    assert "How does UCB stand" not in text
    left = text[text.index("## Not measured yet") :].splitlines()
    for table in tables().values():
        (line,) = [line for line in left if f"ucb reproduce {table.id} --device cuda`" in line]
        assert made.capital(table.about) in line


def test_what_matches_and_what_does_not_is_said_with_the_reason(made, tmp_path):
    keep(tmp_path, "5split-mnist", "ucb", (99.60, 99.62, 99.64))
    keep(tmp_path, "5split-mnist", "hat", (99.80, 99.80, 99.80))
    keep(tmp_path, "5split-mnist", "vcl-vadam", (98.0, 98.1), device="another machine")
    keep(tmp_path, "5split-mnist", "vcl", (97.0, 97.1, 97.2), settings={"lr": 0.5})
    keep(tmp_path, "5split-mnist", "ucb-ng", (99.0, 99.0, 99.0))
    text = plain(made.page(tmp_path))
    # UCB's runs also stand in the table of heads, beside another figure of the paper's: that is not counted.
    assert "5 of them with 3 seeds or more: 14 runs, whose times add up to 21 min" in text
    assert "4 of these rows stand beside a figure of the paper's: 1 agree with it, 1 are above it and 2 below." in text
    assert "Measured rows have 3 seeds, but `vcl-vadam` has 2. Not measured yet: 16 of 21 rows." in text
    assert "14 rows stand beside a figure of the paper's, and 4 of them are measured. Within: `ucb`." in text
    assert "Above: `hat` (+0.21)." in text
    assert "Below: `vcl-vadam` (-1.12): the paper quotes this figure from another work" in text
    assert "Below: `vcl` (-1.10): no reason is known." in text
    assert "12 runs of 90 s to 92 s, together 18 min, on a machine (ucb 1.2)." in text
    assert "2 runs of 90 s to 91 s, together 3 min, on another machine (ucb 1.2)." in text
    assert re.search(r"`vcl` was measured with other settings than it would have now: lr was 0.5 and is [\d.]+\.", text)
    assert "`ucb` was measured with other settings" not in text
    chosen = recipe_for("5split-mnist", "ucb")
    assert f"temperature {chosen.settings['temperature']}, " in text
    assert f"| {chosen.found}" in text
    script = "python benchmarks/tune_tables.py 5split-mnist --methods hat,ucb,ucb-ng,vcl,vcl-vadam --device cuda"
    assert f"{script} ucb reproduce 5split-mnist --device cuda ucb table 5split-mnist" in text


def test_how_ucb_is_set_is_said_beside_how_the_paper_sets_it(made, tmp_path):
    assert "None of its runs is here yet." in made.page(tmp_path)
    keep(tmp_path, "5split-mnist", "ucb", (99.6,), settings={"lr": 7.0, "temperature": 0.25})
    keep(tmp_path, "2split-mnist", "ucb", (99.1,), settings={"lr": 0.5, "temperature": 0.25})
    keep(tmp_path, "5split-mnist", "ucb-t0", (99.1,), settings={"lr": 9.0})
    text = plain(made.page(tmp_path))
    assert (
        "`ucb` learns for 10 epochs a task, with lr 0.5 to 7, gradients clipped at 1, the KL times 0.25 (rows" in text
    )


def test_the_folders_of_all_runs_that_a_table_shows_are_named(made):
    section = sys.modules["reproduction_section"]
    assert section.homes(table_named("2split-mnist")) == "`runs/tables/2split-mnist`"
    assert section.homes(table_named("importance")) == "`runs/tables/importance` and `runs/tables/2split-mnist`"


def test_trials_of_earlier_stages_are_counted(made, tmp_path):
    keep(tmp_path, "5split-mnist", "ucb", (99.6,))
    recipe = recipe_for("5split-mnist", "ucb")
    assert f"; {recipe.tried} tried in all, stage by stage" in plain(made.page(tmp_path))
    assert f"chosen of {recipe.tried} " not in recipe.found


def test_a_row_that_shows_other_runs_names_them(made, tmp_path):
    keep(tmp_path, "2split-mnist", "ucb", (99.1, 99.2, 99.3))
    text = plain(made.page(tmp_path))
    assert "Rows that show the runs of other tables: `ucb-mu-certainty` (2split-mnist/ucb)." in text
    assert "3 of them with 3 seeds or more: 3 runs" in text, "runs that serve several rows count once"


@pytest.mark.parametrize(
    ("ours", "control", "said"),
    [
        (Measure(99.0, 0.3), Measure(97.9, 0.4), ["+1.10", "1.00", "yes"]),
        (Measure(99.0, 0.3), Measure(98.1, 0.4), ["+0.90", "1.00", "no, within the spread"]),
        (Measure(99.0, 0.3), Measure(100.1, 0.4), ["-1.10", "1.00", "no, worse"]),
        (Measure(99.0), Measure(97.0, 0.1), ["+2.00", "-", "one seed cannot tell"]),
    ],
)
def test_the_control_is_beaten_by_twice_the_combined_spread_or_not_at_all(made, ours, control, said):
    assert __import__("reproduction_rivals").beside(ours, control)[2:] == said


def test_ucb_stands_beside_the_control_of_its_own_size_with_how_far_sigma_moved(made, tmp_path):
    keep(tmp_path, "permuted-mnist", "ucb-0.1m", (93.0, 93.2), spread=0.25)
    keep(tmp_path, "permuted-mnist", "uniform-lr-1.9m", (90.0, 90.2))
    assert "Does the uncertainty" not in made.page(tmp_path)
    keep(tmp_path, "permuted-mnist", "uniform-lr-0.1m", (91.0, 91.2))
    text = made.page(tmp_path)
    assert "their own control by more than twice the combined spread in 1 of 1 comparisons." in plain(text)
    assert "differs in more than the rates" not in plain(text)
    assert "| `ucb-0.1m` | 93.10 +- 0.14 | `uniform-lr-0.1m` | 91.10 +- 0.14 | +2.00 | 0.40 | 0.25 | yes |" in text
    assert "So it is with `ucb`" not in text
    keep(tmp_path, "permuted-mnist", "ucb-0.1m", (93.0, 93.2), spread=0.001)
    assert "So it is with `ucb`" in plain(made.page(tmp_path))


def test_ucb_ng_stands_beside_its_own_control_too(made, tmp_path):
    keep(tmp_path, "5split-mnist", "ucb-ng", (99.0, 99.2), spread=0.5)
    keep(tmp_path, "5split-mnist", "ucb-ng-uniform", (98.0, 98.2), spread=0.5)
    keep(tmp_path, "5split-mnist", "uniform-lr", (99.0, 99.2))
    text = made.page(tmp_path)
    assert "their own control by more than twice the combined spread in 1 of 1 comparisons." in plain(text)
    assert "`ucb-ng` is better than `uniform-lr`, from which it differs in more than the rates, in 0 of 1." in plain(
        text
    )
    assert "| `ucb-ng` | 99.10 +- 0.14 | `ucb-ng-uniform` | 98.10 +- 0.14 | +1.00 | 0.40 | 0.5 | yes |" in text
    assert "| `ucb-ng-uniform` | 98.10 +- 0.14 | `" not in text, "a control is not beside a control"
    assert "So it is with `ucb`" not in text, "nothing is known of it"


def test_it_is_said_which_methods_are_better_than_ucb(made, tmp_path):
    keep(tmp_path, "permuted-mnist", "ucb-0.1m", (93.0, 93.2))
    keep(tmp_path, "permuted-mnist", "ucb-ng-0.1m", (94.0, 94.2))
    keep(tmp_path, "permuted-mnist", "hat-0.1m", (94.1, 94.3))
    keep(tmp_path, "permuted-mnist", "packnet-0.1m", (96.0, 96.2))
    keep(tmp_path, "permuted-mnist", "packnet-1.9m", (99.0, 99.2))
    keep(tmp_path, "2split-mnist", "ucb", (99.0, 99.2))
    keep(tmp_path, "2split-mnist", "bbb-jt", (99.8, 99.9))
    text = plain(made.page(tmp_path))
    where = "are in `permuted-mnist`, 0.1m"
    assert f"the paper's `ucb` by more than twice the combined spread {where} `hat`, `ucb-ng`, `packnet`. " in text
    assert f"Better than `ucb-ng`, which is ours, {where} `packnet`." in text
    assert "| `packnet` 96.10 +- 0.14 |" in text


def test_every_contradiction_has_all_its_figures(made):
    text = plain(PAGE.read_text())
    for each in made.paper.contradictions():
        part = text[text.index(made.capital(each.about)) :].split(each.note)[0]
        assert all(f"{stated.value:g} (" in part for stated in each.stated)
    assert "0.03 (the text on Permuted MNIST; table `permuted-mnist`, row UCB, 1.9M)" in text


def lines_of_commands():
    return re.findall(r"^(?:ucb|python) .*$", PAGE.read_text(), re.MULTILINE)


def test_commands_that_tune_search_what_the_recipe_says_was_tried(monkeypatch, tmp_path):
    searched = []

    def no_search(record, points, *_):
        searched.append((record.search, points))
        raise ValueError("that is enough")

    monkeypatch.setattr(tuning, "by_grid", no_search)
    lines = [line for line in lines_of_commands() if line.startswith("ucb tune")]
    for line in lines:
        answer = CliRunner().invoke(commands.app, [*shlex.split(line)[1:], "--results", str(tmp_path)])
        assert "that is enough" in answer.stderr, answer.output
    assert len(searched) == len(lines) > 0
    for search, points in searched:
        recipe = recipe_for(search.kind, search.method)
        tried = {name: sorted({point[name] for point in points}) for name in points[0]}
        assert tried == {name: sorted(values) for name, values in recipe.grid.items()}
        assert search.all_tasks == ("all tasks" in recipe.found)


def test_commands_of_the_script_name_tables_and_methods_that_it_knows(made):
    tune_tables = __import__("tune_tables")
    for line in lines_of_commands():
        words = shlex.split(line)
        if words[0] == "python":
            assert (ROOT / words[1]).is_file()
            asked = words[words.index("--methods") + 1].split(",") if "--methods" in words else []
            assert {search.method for search in tune_tables.searches(words[2], "cpu", asked)} >= set(asked)
        elif words[1] in ("reproduce", "table"):
            assert words[2] in tables()
