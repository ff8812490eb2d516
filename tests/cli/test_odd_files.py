"""Commands that are given pipes, devices and links laid beforehand: a sentence, no waiting, and nothing followed."""

import json
import os
import signal

import pytest

from tests.engine.runs import small_job
from tests.incremental.data import blobs
from tests.support import refused, ucb
from ucb import engine
from ucb.incremental import learn, trunks
from ucb.incremental.progress_file import lock_path

PRECIOUS = "somebody's, and precious"
TABLE = "label,p,q,r,s,t,u\n" + "".join(f"{'cd'[n % 2]},{n},{n % 5},1,2,3,4\n" for n in range(20))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """A command that waits for a pipe fails."""

    def late(_signal, _frame):
        raise AssertionError("it waits for ever")

    monkeypatch.setattr(trunks, "UNITS", 40)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["pipe", "device"])
def lay(request):
    """Put a pipe, or a link to a device without an end, in some place."""

    def put(path):
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if request.param == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        return path

    return put


@pytest.fixture
def model(tmp_path):
    learn(tmp_path / "m.ucb", blobs("ab", 10))
    return tmp_path / "m.ucb"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with a run that is done."""
    folder = tmp_path_factory.mktemp("done") / "run"
    engine.start(small_job(), folder)
    return folder


def cut(done, folder):
    """A copy of a run without its result."""
    folder.mkdir()
    for path in done.iterdir():
        if path.name not in ("result.json", "log.txt"):
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_report(tmp_path, lay):
    odd = lay(tmp_path / "runs" / "result.json")
    for place in odd, odd.parent:
        assert "result.json is a pipe or a device" in refused("report", place, "-o", tmp_path / "page.html", code=1)
    odd.rename(tmp_path / "runs" / "other.json")
    assert "other.json is a pipe" in refused("report", tmp_path / "runs", "-o", tmp_path / "page.html", code=1)


@pytest.mark.parametrize("name", ["config.json", "lock", "log.txt", "result.json"])
def test_resume(tmp_path, done, lay, name):
    folder = cut(done, tmp_path / "run")
    lay(folder / name)
    for path in folder.glob("checkpoint-*") if name == "log.txt" else ():
        path.unlink()  # so that there is something to log
    if name == "result.json":  # no result at all, so it is made; what lies there is replaced
        assert ucb("resume", folder).exit_code == 0
        assert json.loads((folder / name).read_text())["method"] == "ord-ft"
    else:
        said = refused("resume", folder, code=2 if name == "config.json" else 1)
        assert name in said


def test_resume_from_an_odd_checkpoint(tmp_path, done, lay):
    folder = cut(done, tmp_path / "run")
    (last,) = sorted(folder.glob("checkpoint-*"))[-1:]
    lay(last)
    assert f"{last.name} is a pipe or a device" in refused("resume", folder, code=1)


def test_run_with_an_odd_lock(tmp_path, lay):
    odd = lay(tmp_path / "run" / "lock")
    said = refused(
        "run", "mnist-5split", "--method", "ord-ft", "--tasks", 1, "--hidden", 4, "--out", odd.parent, code=1
    )
    assert "lock is a link or a pipe" in said


def test_run_with_an_odd_recipe(tmp_path, lay, monkeypatch):
    """It is no file: there is no recipe, as before."""
    monkeypatch.chdir(tmp_path)
    lay(tmp_path / "recipes" / "mnist-5split" / "ord-ft.json")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "something").touch()
    assert "holds something else" in refused("run", "mnist-5split", "--method", "ord-ft", "--out", tmp_path / "run")


def test_models_that_are_no_files(tmp_path, lay):
    odd = lay(tmp_path / "m.ucb")
    (tmp_path / "wave.csv").write_text(TABLE)
    for words in ("show", odd), ("predict", odd, tmp_path / "wave.csv"), ("forget-check", odd, tmp_path / "wave.csv"):
        assert "m.ucb is a pipe or a device" in refused(*words, code=1)
    said = refused("learn", odd, tmp_path / "wave.csv", code=1)
    assert "is a pipe or a device" in said or "nothing can be written beside /dev/zero" in said


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_waves_that_are_no_files(tmp_path, model, lay, ending):
    odd = lay(tmp_path / f"wave.{ending}")
    for command in "learn", "predict", "forget-check":
        assert f"wave.{ending}" in refused(command, model, odd)


def test_progress_that_is_no_file(tmp_path, model, lay):
    (tmp_path / "wave.csv").write_text(TABLE)
    lay(tmp_path / "m.ucb.learning")
    answer = ucb("learn", model, tmp_path / "wave.csv")
    assert answer.exit_code == 0
    assert "m.ucb.learning, left by a learn that was interrupted, cannot be read" in answer.stderr


def test_data_import(tmp_path, lay, monkeypatch):
    monkeypatch.setenv("UCB_DATA", str(tmp_path / "cache"))
    odd = lay(tmp_path / "people" / "somebody" / "1.png")
    refused("data", "import", "facescrub100", tmp_path / "people")
    assert "train_32x32.mat" in refused("data", "import", "svhn", lay(tmp_path / "train_32x32.mat"))
    odd.unlink()
    for person in range(100):
        for number in range(2):
            place = tmp_path / "people" / f"p{person}" / f"{number}.png"
            place.parent.mkdir(exist_ok=True)
            place.touch()
    lay(tmp_path / "people" / "p7" / "1.png")
    assert "1.png is a pipe or a device" in refused("data", "import", "facescrub100", tmp_path / "people", code=1)
    lay(tmp_path / "cache" / "hashes.json")
    assert "hashes.json is a pipe or a device" in refused("data", "import", "facescrub100", tmp_path / "people", code=1)


def test_tables(tmp_path, lay):
    lay(tmp_path / "tables" / "2split-mnist" / "ucb-seed0.json")
    said = refused("table", "2split-mnist", "--results", tmp_path, code=1)
    assert "ucb-seed0.json is a pipe or a device" in said


def test_searches(tmp_path, lay):
    """What is no file holds no trials; a journal that Optuna would wait for is refused."""
    pytest.importorskip("optuna")
    folder = tmp_path / "results" / "tuning" / "mnist-5split"
    lay(folder / "ord-ft.json")
    lay(folder / "ord-ft.journal")
    words = ["tune", "mnist-5split", "--method", "ord-ft", "--trials", 1, "--results", tmp_path / "results"]
    assert "ord-ft.journal is a link or a pipe" in refused(*words, code=1, printed=True)


@pytest.mark.parametrize("name", ["lock", "config.json.part", "result.json.part", "checkpoint"])
def test_links_in_a_run_folder_are_not_followed(tmp_path, name):
    """The name of the first checkpoint is known to whoever has seen the same run."""
    victim = tmp_path / "victim"
    victim.write_text(PRECIOUS)
    job = small_job()
    if name == "checkpoint":
        engine.start(job, tmp_path / "seen")
        name = f"{next((tmp_path / 'seen').glob('checkpoint-*')).name}.part"
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    if name == "lock":
        with pytest.raises(OSError, match="lock is a link"):
            engine.start(job, folder)
    else:
        engine.start(job, folder)
        assert not list(folder.glob("*.part"))
        assert not any(path.is_symlink() for path in folder.iterdir())
    assert victim.read_text() == PRECIOUS


@pytest.mark.parametrize("name", ["m.ucb.part", "m.ucb.learning.part", ".m.ucb.ucb-lock", "m.onnx.part"])
def test_links_beside_a_model_are_not_followed(tmp_path, model, name):
    victim = tmp_path / "victim"
    victim.write_text(PRECIOUS)
    (tmp_path / "wave.csv").write_text(TABLE)
    (tmp_path / name).symlink_to(victim)
    words = ("export", model, tmp_path / "m.onnx") if "onnx" in name else ("learn", model, tmp_path / "wave.csv")
    if name == lock_path(model).name:
        assert "is a link or a pipe" in refused(*words, code=1)
    else:
        assert ucb(*words).exit_code == 0
        assert not os.path.lexists(tmp_path / name)
    assert victim.read_text() == PRECIOUS


def test_a_link_to_a_model_that_its_owner_made_is_followed_and_stays(tmp_path, model):
    (tmp_path / "elsewhere").mkdir()
    model.rename(tmp_path / "elsewhere" / "real.ucb")
    model.symlink_to("elsewhere/real.ucb")
    before = (tmp_path / "elsewhere" / "real.ucb").read_bytes()
    (tmp_path / "wave.csv").write_text(TABLE)
    assert ucb("learn", model, tmp_path / "wave.csv").exit_code == 0
    assert model.is_symlink()
    assert (tmp_path / "elsewhere" / "real.ucb").read_bytes() != before
