"""What there is of a run, in the results and in its folder, and what must be removed to run it now."""

import dataclasses
import json

import pytest

from tests.experiments.reproduce.made_up import keep, tiny
from ucb.experiments.reproduce.definitions import job_of
from ucb.experiments.reproduce.planning import RunProgress, progress_of

OTHER = {"lr": 7.0}


class Place:
    """The places of one run, in a folder of this test."""

    def __init__(self, root):
        self.job = job_of(tiny().row("ucb"))
        self.results, self.folder = root / "results", root / "runs" / "ucb-seed0"
        self.kept = self.results / "tables" / "tiny" / "ucb-seed0.json"

    def keep(self, text=None, **had):
        keep(self.results, tiny(), "ucb", 0, 99.0, **had)
        if text is not None:
            self.kept.write_text(text)

    def begin(self, text=None, result=None, settings=None):
        self.folder.mkdir(parents=True)
        config = dataclasses.asdict(self.job)
        config["settings"] = config["settings"] | (settings or {})
        (self.folder / "config.json").write_text(json.dumps(config) if text is None else text)
        if result is not None:
            (self.folder / "result.json").write_text(result)

    def found(self):
        return progress_of(self.job, self.folder, self.kept)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_nothing_is_there(place):
    assert place.found() == RunProgress("missing")


def test_a_kept_result_is_enough_whatever_is_in_the_folder(place):
    place.keep()
    assert place.found() == RunProgress("measured")
    place.begin(settings=OTHER)
    assert place.found() == RunProgress("measured")


def test_a_run_under_way_and_one_that_is_done(place):
    place.begin()
    assert place.found() == RunProgress("cut")
    whole = {"seed": 0, "acc": 1.0, "bwt": None, "config": {}}
    (place.folder / "result.json").write_text(json.dumps(whole))
    assert place.found() == RunProgress("run, not kept")


def test_other_settings_in_both_places_are_said_once_and_both_are_to_be_removed(place):
    place.keep(settings=OTHER)
    place.begin(settings=OTHER)
    found = place.found()
    assert (found.state, found.remove) == ("other settings", (place.kept, place.folder))
    (why,) = found.why
    assert why.startswith("lr was 7.0 and is ")


def test_a_folder_with_the_settings_of_now_may_stay(place):
    place.keep(settings=OTHER)
    place.begin()
    assert place.found().remove == (place.kept,)
    place.kept.unlink()
    assert place.found() == RunProgress("cut")


def test_damage_is_said_where_it_is(place):
    place.keep("{}")
    place.begin("not finished")
    found = place.found()
    assert (found.state, found.remove) == ("damaged", (place.kept, place.folder))
    assert str(place.kept) in found.why[0]
    assert f"{place.folder / 'config.json'} is damaged" in found.why[1]


def test_a_damaged_result_of_a_run_is_not_copied_to_the_results(place):
    place.begin(result="{}")
    found = place.found()
    assert (found.state, found.remove) == ("damaged", (place.folder / "result.json",))
    (place.folder / "result.json").unlink()
    assert place.found() == RunProgress("cut")
