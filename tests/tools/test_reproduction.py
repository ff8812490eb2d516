"""docs/reproduction.md says what the result files say, whatever they say, and its commands do what they promise."""

import dataclasses
import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools import tune_tables
from tools.docs import reproduction_page as page
from tools.docs import reproduction_rivals as rivals
from tools.docs import reproduction_section as section
from tools.docs import reproduction_settings as settings
from tools.docs.markdown import capitalize
from ucb.cli import app as commands
from ucb.engine.config import Recipe, recipe_for
from ucb.experiments.reproduce import paper
from ucb.experiments.reproduce.compare import QUOTED, Measure, compare_table
from ucb.experiments.reproduce.definitions import job_of, table_named, tables
from ucb.experiments.tuning import trials

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproduction.md"


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


def lines_of(results, table):
    return compare_table(table_named(table), results)


def test_the_committed_page_is_what_the_results_say():
    assert PAGE.read_text() == page.page(), "run python -m tools.docs"


def test_settings_at_the_edge_of_what_was_tried_are_named():
    chosen = {"lr": 0.3, "power": 2.0, "uniform": True, "clip": 1.0, "gain": 0.5}
    grid = {"lr": [0.1, 0.3], "power": [1.0, 2.0, 3.0], "uniform": [True, False], "clip": [1.0], "gain": [0.5, 1.0]}
    assert settings.settings_at_edges(Recipe(settings=chosen, grid=grid)) == ["lr", "gain"]


def test_every_result_file_stands_in_a_table():
    text = PAGE.read_text()
    for path in (ROOT / "results" / "tables").glob("*/*.json"):
        table = table_named(path.parent.name)
        row = table.row(re.sub(r"-seed\d+$", "", path.stem))
        part = text[text.index(f"## {capitalize(table.about)}") :].split("\n## ")[0]
        assert f"`{row.name}`" in part


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)]+)\)", PAGE.read_text())
    assert len(targets) > 10
    for target in targets:
        assert (PAGE.parent / target).exists(), target


def test_without_results_every_table_is_named_with_its_command(tmp_path):
    lines = page.compare_all(tmp_path)
    count = page.count_rows(lines, tmp_path)
    assert count == (sum(map(len, lines.values())) - 1, 0, 0, 0, 0, Counter()), "one row cannot be run"
    assert rivals.compare_controls(lines, tmp_path) == []
    assert rivals.describe_controls([]) == rivals.describe_rivals(lines) == ""
    left = page.page(tmp_path).split("## Not measured yet")[1].splitlines()
    for table in tables().values():
        (line,) = [line for line in left if f"ucb reproduce {table.id} --device cuda`" in line]
        assert capitalize(table.about) in line


@pytest.fixture
def measured(tmp_path):
    """Results of five rows of a table, on two machines."""
    keep(tmp_path, "5split-mnist", "ucb", (99.60, 99.62, 99.64))
    keep(tmp_path, "5split-mnist", "hat", (99.80, 99.80, 99.80))
    keep(tmp_path, "5split-mnist", "vcl-vadam", (98.0, 98.1), device="another machine")
    keep(tmp_path, "5split-mnist", "vcl", (97.0, 97.1, 97.2), settings={"lr": 0.5})
    keep(tmp_path, "5split-mnist", "ucb-ng", (99.0, 99.0, 99.0))
    return tmp_path


def test_rows_are_counted_by_their_verdicts(measured):
    count = page.count_rows(page.compare_all(measured), measured)
    # UCB's runs also stand in the table of heads, beside another figure of the paper's: that is not counted.
    assert (count.measured, count.enough, count.runs) == (6, 5, 14)
    assert count.seconds == 4 * (90 + 91 + 92) + 90 + 91
    assert count.verdicts == {"within": 1, "above": 1, "below": 2}


def test_what_matches_and_what_does_not_is_said_with_the_reason(measured):
    table, lines = table_named("5split-mnist"), lines_of(measured, "5split-mnist")
    assert section.count_seeds(lines) == (3, {"vcl-vadam": 2}, 16, 21)
    found = section.sort_verdicts(table, lines)
    assert (found.beside, found.measured, found.within, found.cannot) == (14, 4, ["ucb"], {})
    assert found.above == {"hat": pytest.approx(0.21)}
    assert found.below == {
        QUOTED: {"vcl-vadam": pytest.approx(-1.12)},
        section.NO_REASON: {"vcl": pytest.approx(-1.10)},
    }
    said = section.describe_verdicts(found)
    for name in ("`ucb`", "`hat` (+0.21)", f"`vcl-vadam` (-1.12): {QUOTED}", f"`vcl` (-1.10): {section.NO_REASON}"):
        assert name in said


def test_runs_are_listed_by_machine_with_what_they_took(measured):
    groups = section.runs_by_machine(table_named("5split-mnist"), measured)
    assert {name: len(runs) for name, runs in groups.items()} == {
        "a machine (ucb 1.2)": 12,
        "another machine (ucb 1.2)": 2,
    }
    assert section.describe_runs(groups["another machine (ucb 1.2)"]).startswith("2 runs of 90 s to 91 s")
    assert [section.duration(seconds) for seconds in (119, 181, 7199, 9000)] == ["119 s", "3 min", "120 min", "2.5 h"]


def test_rows_whose_settings_have_changed_since_are_named(measured):
    changed = settings.changed_settings(table_named("5split-mnist"), measured)
    assert list(changed) == ["vcl"]
    assert changed["vcl"] == [f"lr was 0.5 and is {recipe_for('5split-mnist', 'vcl').settings['lr']}"]


def test_settings_stand_with_how_they_were_found(measured):
    text = settings.settings_table(table_named("5split-mnist"), measured)
    chosen = recipe_for("5split-mnist", "ucb")
    assert f"temperature {chosen.settings['temperature']}, " in text
    assert f"| {chosen.found}" in text


def test_commands_repeat_what_is_measured(measured):
    assert section.commands(table_named("5split-mnist"), measured) == [
        "python tools/tune_tables.py 5split-mnist --methods hat,ucb,ucb-ng,vcl,vcl-vadam --device cuda",
        "ucb reproduce 5split-mnist --device cuda",
        "ucb table 5split-mnist",
    ]


def test_all_of_it_stands_on_the_page(measured):
    """What the parts say is tested above; the page has all of them."""
    table, lines, text = table_named("5split-mnist"), lines_of(measured, "5split-mnist"), plain(page.page(measured))
    count = page.count_rows(page.compare_all(measured), measured)
    for part in (
        page.describe_rows(count),
        section.describe_seeds(section.count_seeds(lines)),
        section.describe_verdicts(section.sort_verdicts(table, lines)),
        settings.settings_table(table, measured),
        " ".join(section.commands(table, measured)),
        *settings.changed_settings(table, measured)["vcl"],
        *section.runs_by_machine(table, measured),
    ):
        assert plain(part) in text


def test_how_ucb_is_set_is_said_beside_how_the_paper_sets_it(tmp_path):
    assert page.ucb_spans(tmp_path) == {}
    keep(tmp_path, "5split-mnist", "ucb", (99.6,), settings={"lr": 7.0, "temperature": 0.25})
    keep(tmp_path, "2split-mnist", "ucb", (99.1,), settings={"lr": 0.5, "temperature": 0.25})
    keep(tmp_path, "5split-mnist", "ucb-t0", (99.1,), settings={"lr": 9.0})
    assert page.ucb_spans(tmp_path) == {"epochs": "10", "lr": "0.5 to 7", "temperature": "0.25"}
    assert "lr 0.5 to 7," in page.describe_ucb(page.ucb_spans(tmp_path))


def test_the_folders_of_all_runs_that_a_table_shows_are_named():
    assert section.run_folders(table_named("2split-mnist")) == ["runs/tables/2split-mnist"]
    assert section.run_folders(table_named("importance")) == ["runs/tables/importance", "runs/tables/2split-mnist"]


def test_trials_of_earlier_stages_are_counted():
    recipe, row = recipe_for("5split-mnist", "ucb"), table_named("5split-mnist").row("ucb")
    assert f"chosen of {recipe.tried} " not in recipe.found
    assert f"{recipe.tried} tried in all" in settings.how_found(row, recipe)
    alone = dataclasses.replace(recipe, found=f"chosen of {recipe.tried} on data")
    assert "tried in all" not in settings.how_found(row, alone)


def test_a_row_that_shows_other_runs_names_them(tmp_path):
    keep(tmp_path, "2split-mnist", "ucb", (99.1, 99.2, 99.3))
    found = section.borrowed_rows(table_named("importance"), lines_of(tmp_path, "importance"))
    assert found == {"ucb-mu-certainty": "2split-mnist/ucb"}
    count = page.count_rows(page.compare_all(tmp_path), tmp_path)
    assert (count.enough, count.runs) == (3, 3), "runs that serve several rows count once"


@pytest.mark.parametrize(
    ("ours", "control", "difference", "allowed", "standing"),
    [
        (Measure(99.0, 0.3), Measure(97.9, 0.4), 1.1, 1.0, "better"),
        (Measure(99.0, 0.3), Measure(98.1, 0.4), 0.9, 1.0, "within the spread"),
        (Measure(99.0, 0.3), Measure(100.1, 0.4), -1.1, 1.0, "worse"),
        (Measure(99.0), Measure(97.0, 0.1), 2.0, None, "one seed cannot tell"),
    ],
)
def test_the_control_is_beaten_by_twice_the_combined_spread_or_not_at_all(ours, control, difference, allowed, standing):
    found = rivals.compare_measures(ours, control)
    assert found == (pytest.approx(difference), allowed and pytest.approx(allowed), standing)


def controlled(results):
    return rivals.compare_controls(page.compare_all(results), results)


def test_ucb_stands_beside_the_control_of_its_own_size_with_how_far_sigma_moved(tmp_path):
    keep(tmp_path, "permuted-mnist", "ucb-0.1m", (93.0, 93.2), spread=0.25)
    keep(tmp_path, "permuted-mnist", "uniform-lr-1.9m", (90.0, 90.2))
    assert controlled(tmp_path) == []
    keep(tmp_path, "permuted-mnist", "uniform-lr-0.1m", (91.0, 91.2))
    (found,) = controlled(tmp_path)
    assert (found.ours.name, found.control.name, found.is_own) == ("ucb-0.1m", "uniform-lr-0.1m", True)
    assert (found.sigma_spread, found.beside) == (0.25, (pytest.approx(2.0), pytest.approx(0.4), "better"))
    assert rivals.count_better([found], own=True) == (1, 1)
    assert rivals.count_better([found], own=False) == (0, 0)
    row = "| `ucb-0.1m` | 93.10 +- 0.14 | `uniform-lr-0.1m` | 91.10 +- 0.14 | +2.00 | 0.40 | 0.25 | yes |"
    assert row in page.page(tmp_path)
    assert not rivals.sigma_stays([found])
    keep(tmp_path, "permuted-mnist", "ucb-0.1m", (93.0, 93.2), spread=0.001)
    assert rivals.sigma_stays(controlled(tmp_path))


def test_ucb_ng_stands_beside_its_own_control_too(tmp_path):
    keep(tmp_path, "5split-mnist", "ucb-ng", (99.0, 99.2), spread=0.5)
    keep(tmp_path, "5split-mnist", "ucb-ng-uniform", (98.0, 98.2), spread=0.5)
    keep(tmp_path, "5split-mnist", "uniform-lr", (99.0, 99.2))
    found = controlled(tmp_path)
    assert [(each.ours.name, each.control.name, each.is_own) for each in found] == [
        ("ucb-ng", "ucb-ng-uniform", True),
        ("ucb-ng", "uniform-lr", False),
    ], "a control is not beside a control"
    assert rivals.count_better(found, own=True) == (1, 1)
    assert rivals.count_better(found, own=False) == (0, 1)
    assert not rivals.sigma_stays(found), "nothing is known of UCB's"


def test_it_is_said_which_methods_are_better_than_ucb(tmp_path):
    keep(tmp_path, "permuted-mnist", "ucb-0.1m", (93.0, 93.2))
    keep(tmp_path, "permuted-mnist", "ucb-ng-0.1m", (94.0, 94.2))
    keep(tmp_path, "permuted-mnist", "hat-0.1m", (94.1, 94.3))
    keep(tmp_path, "permuted-mnist", "packnet-0.1m", (96.0, 96.2))
    keep(tmp_path, "permuted-mnist", "packnet-1.9m", (99.0, 99.2))
    keep(tmp_path, "2split-mnist", "ucb", (99.0, 99.2))
    keep(tmp_path, "2split-mnist", "bbb-jt", (99.8, 99.9))
    lines = page.compare_all(tmp_path)
    where = "`permuted-mnist`, 0.1m"
    assert rivals.better_methods(lines) == {
        "ucb": {where: ["hat", "ucb-ng", "packnet"]},
        "ucb-ng": {where: ["packnet"]},
    }
    assert rivals.describe_rivals(lines).endswith("| `packnet` 96.10 +- 0.14 |")


def test_every_contradiction_has_all_its_figures():
    text = plain(PAGE.read_text())
    for each in paper.contradictions():
        part = text[text.index(capitalize(each.about)) :].split(each.note)[0]
        assert all(f"{stated.value:g} (" in part for stated in each.stated)
    places = [place for each in paper.contradictions() for place in page.describe_places(each)]
    assert "0.03 (the text on Permuted MNIST; table `permuted-mnist`, row UCB, 1.9M)" in places


def lines_of_commands():
    return re.findall(r"^(?:ucb|python) .*$", PAGE.read_text(), re.MULTILINE)


def test_commands_that_tune_search_what_the_recipe_says_was_tried(monkeypatch, tmp_path):
    searched = []

    def no_search(record, points, *_):
        searched.append((record.search, points))
        raise ValueError("that is enough")

    monkeypatch.setattr(trials, "search_grid", no_search)
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


def test_commands_of_the_script_name_tables_and_methods_that_it_knows():
    for line in lines_of_commands():
        words = shlex.split(line)
        if words[0] == "python":
            assert (ROOT / words[1]).is_file()
            asked = words[words.index("--methods") + 1].split(",") if "--methods" in words else []
            assert {search.method for search in tune_tables.searches(words[2], "cpu", asked)} >= set(asked)
        elif words[1] in ("reproduce", "table"):
            assert words[2] in tables()
