"""A wave that is learnt, and an output that cannot be written: the model has it, and nobody is to learn it again."""

import os

import pytest

from tests.support import ask, launched

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("label,u,v\n" + "".join(f"{'xy'[n % 2]},{n % 2},{n % 7}\n" for n in range(40)))
    return path


def waves_in(model):
    return ask("show", model, "--format", "json").out.count('"held_out"')


@needs_full
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_wave_that_is_learnt_is_said_to_be_where_the_disk_is_full(tmp_path, table, form):
    model = tmp_path / "m.ucb"
    with open("/dev/full", "w") as full:
        process = launched("learn", model, table, "--format", form, stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 3
    assert err.count("\n") == 1
    assert f"the wave is learnt, and {model} has it: do not learn it again" in err
    assert "No space left on device" in err
    assert waves_in(model) == 1


@needs_full
@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_answers_that_cannot_be_written_are_a_failure(tmp_path, table, form):
    model = tmp_path / "m.ucb"
    assert ask("learn", model, table).code == 0
    with open("/dev/full", "w") as full:
        process = launched("predict", model, table, "--format", form, stdout=full)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err.splitlines()[1:]) == (1, ["error: No space left on device"])


@needs_full
def test_the_status_tells_where_nothing_can_be_said_at_all(tmp_path, table):
    model = tmp_path / "m.ucb"
    with open("/dev/full", "w") as full:
        process = launched("learn", model, table, stdout=full, stderr=full)
        process.communicate(timeout=120)
    assert process.returncode == 3
    assert waves_in(model) == 1


def test_a_reader_that_leaves_early_is_no_failure_of_learning(tmp_path, table):
    model = tmp_path / "m.ucb"
    reading, writing = os.pipe()
    os.close(reading)
    process = launched("learn", model, table, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "the wave is learnt" in err
    assert waves_in(model) == 1
