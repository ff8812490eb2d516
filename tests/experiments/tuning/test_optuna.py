"""Optuna tries as many points as asked, knows one search only, and what it cut is not taken for judged."""

import dataclasses
import json

import pytest

from ucb.experiments.tuning import optuna_search, trials
from ucb.experiments.tuning.optuna_search import search_with_optuna
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import CUT, Search, points_of
from ucb.experiments.tuning.trials import search_grid

optuna = pytest.importorskip("optuna")
SEARCH = Search("mnist-5split", "ord-ft", 1, net_options={"hidden": [8]})


def scored(point):
    figures = {"error": 0.0, "risen": 0.0, "acc": 90.0, "bwt": 0.0, "seconds": 1.0}
    return {"settings": point, "score": point["lr"], **figures}


@pytest.fixture
def quick(monkeypatch):
    """Trials that learn nothing; returns which points were tried together."""
    together = []

    def try_together(_, points):
        together.append([point["lr"] for point in points])
        return [scored(point) for point in points]

    def alone(_optuna, _trial, search, point):
        return try_together(search, [point])[0]

    monkeypatch.setattr(optuna_search, "try_together", try_together)
    monkeypatch.setattr(optuna_search, "_try_with_pruning", alone)
    monkeypatch.setattr(trials, "try_together", try_together)
    return together


def test_as_many_points_are_tried_as_asked_and_the_study_goes_on(tmp_path):
    record, heard = TrialRecord(SEARCH, tmp_path), []
    grid = {"lr": (0.03, 0.1, 0.3)}
    search_with_optuna(record, grid, 2, heard.append)
    assert len(heard) == 2
    assert record.path.with_suffix(".journal").exists()
    search_with_optuna(TrialRecord(SEARCH, tmp_path), grid, 2, lambda _: pytest.fail("two have been tried"))
    search_with_optuna(TrialRecord(SEARCH, tmp_path), grid, 9, heard.append)
    assert sorted(each["settings"]["lr"] for each in heard) == [0.03, 0.1, 0.3]


def test_the_whole_grid_is_tried_however_often_optuna_repeats_itself(tmp_path, quick):
    record, grid = TrialRecord(SEARCH, tmp_path), {"lr": tuple(n / 100 for n in range(1, 31))}
    search_with_optuna(record, grid, 99, lambda _: None)
    assert sorted(lr for (lr,) in quick) == list(grid["lr"])


def test_another_search_has_another_study(tmp_path, quick):
    """Also in the file that is left when the record of another net is removed, and with another grid."""
    searches = [SEARCH, dataclasses.replace(SEARCH, net_options={"hidden": [9]})]
    for each in searches:
        record = TrialRecord(each, tmp_path)
        search_with_optuna(record, {"lr": (0.1, 0.3)}, 2, lambda _: None)
        search_with_optuna(record, {"lr": (0.1, 0.5)}, 2, lambda _: None)
        record.path.unlink()
    backend = optuna.storages.journal.JournalFileBackend(str(record.path.with_suffix(".journal")))
    studies = optuna.get_all_study_names(optuna.storages.JournalStorage(backend))
    assert [json.loads(name)["net_options"]["hidden"] for name in studies] == [[8], [8], [9], [9]]
    assert sorted(lr for (lr,) in quick) == [0.1, 0.1, 0.3, 0.3, 0.5, 0.5]


def test_points_are_tried_together_where_that_is_asked(tmp_path, quick):
    record = TrialRecord(SEARCH, tmp_path)
    search_with_optuna(record, {"lr": (0.01, 0.02, 0.03, 0.1, 0.2, 0.3)}, 5, lambda _: None, jobs=2)
    tried = [lr for batch in quick for lr in batch]
    assert len(tried) == len(set(tried)) == 5
    assert max(map(len, quick)) == 2
    assert [each["settings"]["lr"] for each in record.trials] == tried


def test_what_was_cut_is_done_with_for_optuna_and_tried_again_by_a_whole_grid(tmp_path, quick, monkeypatch):
    cut = {"settings": {"lr": 0.3}, "score": None, "failed": CUT}
    whole = optuna_search._try_with_pruning
    monkeypatch.setattr(
        optuna_search, "_try_with_pruning", lambda *words: cut if words[-1] == cut["settings"] else whole(*words)
    )
    record, grid = TrialRecord(SEARCH, tmp_path), {"lr": (0.1, 0.3)}
    search_with_optuna(record, grid, 2, lambda _: None)
    assert record.find({"lr": 0.3}) == cut
    search_with_optuna(record, grid, 2, lambda _: pytest.fail("both have been tried"))
    heard = []
    search_grid(TrialRecord(SEARCH, tmp_path), points_of(grid), 1, heard.append)
    assert heard == [scored({"lr": 0.3})]
    again = TrialRecord(SEARCH, tmp_path)
    assert [each["settings"]["lr"] for each in again.trials] == [0.1, 0.3]
    assert again.recipe(grid, points_of(grid), 1)["found"].startswith("chosen of 2 on ")


def test_what_begins_worse_than_others_is_cut_after_one_task():
    class Trial:
        def report(self, value, step):
            self.said = (step, value)

        def should_prune(self):
            return True

    trial = Trial()
    found = optuna_search._try_with_pruning(optuna, trial, SEARCH, {"lr": 0.1})
    assert found == {"settings": {"lr": 0.1}, "score": None, "failed": CUT}
    assert trial.said[0] == 0


def test_a_search_goes_on_with_a_journal_whose_last_line_is_torn(tmp_path, quick):
    """At every place of the last lines, and with nothing but half a line; whole lines stay as they are."""
    grid = {"lr": (0.1, 0.2, 0.3, 0.4, 0.5)}
    record = TrialRecord(SEARCH, tmp_path)
    search_with_optuna(record, grid, 2, lambda _: None)
    journal = record.path.with_suffix(".journal")
    whole, kept = journal.read_bytes(), record.path.read_bytes()
    for size in [0, 1, 30, *range(len(whole) - 60, len(whole) + 1, 3), len(whole)]:
        journal.write_bytes(whole[:size])
        record.path.write_bytes(kept)
        again = TrialRecord(SEARCH, tmp_path)
        search_with_optuna(again, grid, 4, lambda _: None)
        assert len(again.trials) == 4, size
        written = journal.read_bytes()
        assert written.startswith(whole[: whole[:size].rfind(b"\n") + 1])
        assert all(json.loads(line) for line in written.splitlines()), size
        search_with_optuna(TrialRecord(SEARCH, tmp_path), grid, 5, lambda _: None)


def test_a_journal_that_is_damaged_elsewhere_is_named(tmp_path, quick):
    record, grid = TrialRecord(SEARCH, tmp_path), {"lr": (0.1, 0.2, 0.3)}
    search_with_optuna(record, grid, 2, lambda _: None)
    journal = record.path.with_suffix(".journal")
    first, second, *rest = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([first, second[:9] + b"\n", *rest]))
    with pytest.raises(OSError, match="every trial is in the record beside it") as raised:
        search_with_optuna(record, grid, 3, lambda _: None)
    assert str(raised.value).startswith(f"{journal} is damaged: ")
    journal.unlink()
    search_with_optuna(record, grid, 3, lambda _: None)
    assert len(record.trials) == 3
