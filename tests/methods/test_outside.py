"""Methods of others: by the path of a class, by an entry point, by the class; what a stranger's folder may not do."""

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

import ucb
from tests.methods import anchor
from tests.methods.anchor import Anchor
from tests.support import launched, refused, succeed
from tests.support import ucb as ask
from ucb import engine
from ucb.engine.runner import read_job
from ucb.methods import Method, find_method, known_methods
from ucb.methods.base import methods_by_name
from ucb.methods.ewc import EWC
from ucb.methods.outside import list_names, list_offers

PATH = "my_method:Anchor"
SMALL = ["--tasks", 2, "--epochs", 1, "--hidden", 16, "--set", "eval_samples=1"]
RUN = ["run", "mnist-5split", "--method", PATH, *SMALL]


MODULES = ("my_method", "my_broken", "my_thief", "x")


@pytest.fixture(autouse=True)
def _nothing_stays():
    """Modules and methods that a test imports are gone for others."""
    registered = {*methods_by_name}
    yield
    for name in MODULES:
        sys.modules.pop(name, None)
    for name in {*methods_by_name} - registered:
        if not methods_by_name[name].__module__.startswith("ucb.methods."):
            del methods_by_name[name]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with a method in it, which is not on the path of the tests."""
    folder = tmp_path / "here"
    folder.mkdir()
    shutil.copy(anchor.__file__, folder / "my_method.py")
    monkeypatch.chdir(folder)
    return folder


def test_a_class_is_found_as_it_is_and_by_its_path(here):
    before = list(sys.path)
    assert find_method(Anchor) is Anchor
    assert find_method(EWC) is EWC
    found = find_method(PATH)
    assert (found.name, found.__module__) == ("anchor", "my_method")
    assert find_method(PATH) is found
    assert find_method("tests.methods.anchor:Anchor") is Anchor
    assert sys.path == before
    assert "anchor" not in known_methods()


def test_the_current_folder_stands_in_for_nothing_that_is_installed(here, monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (here / "colorsys.py").write_text("raise RuntimeError('imported')")
    with pytest.raises(TypeError, match="colorsys:rgb_to_hsv is no method"):
        find_method("colorsys:rgb_to_hsv")


def test_what_a_package_offers_is_not_looked_for_in_the_current_folder(here, tmp_path, monkeypatch):
    offer(tmp_path / "site", "empty", anchor="my_method:Anchor")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ValueError, match="of empty cannot be used: there is no module 'my_method'"):
        find_method("anchor")


def test_a_module_in_the_current_folder_finds_its_neighbours(here):
    (here / "x.py").write_text("from my_method import Anchor\nclass Mine(Anchor):\n    name = 'mine'\n")
    assert find_method("x:Mine").name == "mine"


MODULE = """
from ucb import Method
from ucb.methods.ewc import EWC
from ucb.methods.ordinary import OrdinaryMethod
class Bare(Method):
    name, summary = "bare", "nothing"
class Nameless(OrdinaryMethod):
    summary = "x"
class Silent(OrdinaryMethod):
    name = "silent"
class Odd(OrdinaryMethod):
    name, summary = "../odd", "x"
class Taken(OrdinaryMethod):
    name, summary = "hat", "x"
class Heir(EWC):
    pass
class Good(OrdinaryMethod):
    name, summary = "good", "x"
number = 3
"""


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere:Anchor", r"there is no module 'nowhere': it must be installed, or stand in the current folder, /"),
        ("my_method.inner:Anchor", "there is no module 'my_method.inner'"),
        ("x:Goood", r"the module x \(.*x.py\) has no 'Goood': did you mean Good"),
        ("x:number", "x:number is no method: a method is a class that derives from ucb.Method"),
        ("x:Good.name", "named package.module:Class"),
        ("colorsys:Good", r"the module colorsys \(.*colorsys.py\) has no 'Good': it has no method"),
        ("sys:Good", r"the module sys \(built in\) has no 'Good'"),
        ("x:Bare", "x:Bare is not whole: it does not define add_gradients, logits, loss"),
        ("x:Nameless", "x:Nameless must say its name"),
        ("x:Silent", "x:Silent must say its summary"),
        ("x:Odd", "x:Odd is called '../odd': a name is made of letters"),
        ("x:Taken", "x:Taken is called 'hat', as ucb.methods.hat:HAT is: rename it"),
        ("x:Heir", "x:Heir is called 'ewc', as ucb.methods.ewc:EWC is"),
        ("my_method.py:Anchor", "my_method.py"),
        ("./my_method:Anchor", "named package.module:Class, without .py, not './my_method:Anchor'"),
        (":Anchor", "named package.module:Class"),
        ("my_method:", "named package.module:Class"),
    ],
)
def test_what_cannot_be_used_is_answered_with_one_sentence(here, path, sentence):
    (here / "x.py").write_text(MODULE)
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        find_method(path)
    assert "\n" not in str(caught.value)
    said = refused("run", "mnist-5split", "--method", path, "--out", here / "out")
    assert said.startswith("error: ")
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import not_there", "'x' cannot be imported: ModuleNotFoundError: No module named 'not_there'"),
        ("def f(:", "'x' cannot be imported: SyntaxError"),
        ("1 / 0", "'x' cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(2)", "'x' cannot be imported: SystemExit: 2"),
        ("raise ValueError('a\\nb')", r"'x' cannot be imported: ValueError: a\nb"),
    ],
)
def test_a_module_that_fails_is_named(here, code, sentence):
    (here / "x.py").write_text(code)
    assert sentence in refused("run", "mnist-5split", "--method", "x:Good", "--out", here / "out")


@pytest.mark.parametrize("wrong", [3, None, Anchor.__init__, Method, dict])
def test_what_is_no_class_of_a_method_is_refused(wrong):
    with pytest.raises(TypeError, match=r"derives from ucb\.Method|is not whole"):
        find_method(wrong)


def test_no_two_methods_have_the_same_name():
    with pytest.raises(ValueError, match=r"Second is called 'si', as ucb\.methods\.si:SI is"):
        ucb.method(type("Second", (Anchor,), {"name": "si"}))  # ours need not be imported yet
    ucb.method(Anchor)
    assert find_method("anchor") is Anchor
    with pytest.raises(ValueError, match=r"Other is called 'anchor', as tests\.methods\.anchor:Anchor is"):
        ucb.method(type("Other", (Anchor,), {}))
    again = type("Anchor", (Anchor,), {"__module__": Anchor.__module__})
    assert ucb.method(again) is find_method("anchor") is again  # defined anew, as in a notebook


def offer(folder, package, **entry_points):
    """Install a package: nothing but its description, as pip leaves it behind, and its modules."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name.replace('_', '-')} = {path}" for name, path in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[ucb.methods]", *lines, ""]))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Packages that offer methods, some of which cannot be used."""
    site = tmp_path / "site"
    offer(site, "anchors-away", anchor="my_method:Anchor", broken="my_broken:Broken", other="my_method:Anchor")
    offer(site, "first-of-two", double="my_method:Anchor")
    offer(site, "second-of-two", double="my_other:Anchor", ewc="my_thief:Thief")
    shutil.copy(anchor.__file__, site / "my_method.py")
    (site / "my_broken.py").write_text("raise RuntimeError('too old')")
    (site / "my_thief.py").write_text("from my_method import Anchor\nclass Thief(Anchor):\n    name = 'ewc'\n")
    monkeypatch.syspath_prepend(site)
    return site


def test_an_installed_package_offers_methods_by_their_names(installed):
    assert find_method("anchor").__module__ == "my_method"
    assert find_method("ewc") is EWC
    assert "anchor" not in known_methods()
    assert {"anchor", "broken", "ewc"} <= {*list_names()}
    assert "my_broken" not in sys.modules
    with pytest.raises(ValueError, match="there is no method 'anchr': did you mean anchor"):
        find_method("anchr")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("broken", "of anchors-away cannot be used: the module 'my_broken' cannot be imported: RuntimeError: too old"),
        ("other", "of anchors-away cannot be used: my_method:Anchor is called 'anchor', and its entry point must"),
        ("double", "first-of-two and second-of-two have a method 'double' each: say which, my_method:Anchor or my_o"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_an_offer_that_cannot_be_used_is_named_and_breaks_nothing_else(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_method(name)
    assert sentence in list_offers()[name].obstacle
    assert list_offers()["anchor"].package == "anchors-away"
    assert list_offers()["anchor"].kind is find_method("anchor")


@pytest.mark.usefixtures("installed")
def test_the_list_shows_whose_methods_they_are():
    answer = ask("list", "methods")
    assert answer.exit_code == 0
    said = " ".join(answer.stdout.split())
    assert "anchor weights are pulled towards those of the last task (anchors-away)" in said
    assert said.count("elastic weight consolidation") == 1
    assert [line.split("'")[1] for line in answer.stderr.splitlines()] == ["broken", "double", "ewc", "other"]


def test_a_run_by_the_name_of_an_entry_point_is_resumed_by_it_alone(installed, tmp_path, monkeypatch):
    """What is installed is the user's own choice."""
    monkeypatch.chdir(tmp_path)
    succeed("run", "mnist-5split", "--method", "anchor", *SMALL, "--out", "by-name")
    assert json.loads(Path("by-name/result.json").read_text())["config"]["method"] == "anchor"
    assert read_job(tmp_path / "by-name").method == "anchor"
    succeed("resume", "by-name")


def command(tmp_path, *words, **options):
    """`ucb` as a console script, whose own folder is on Python's path and not the current one."""
    script = tmp_path / "bin" / "ucb"
    script.parent.mkdir(exist_ok=True)
    script.write_text("from ucb.cli.main import main\nmain()\n")
    return launched(*words, program=(str(script),), **options)


def done(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def figures(folder):
    found = json.loads((folder / "result.json").read_text())
    return [found[key] for key in ("method", "config", "accuracy_matrix", "acc", "nll", "steps")]


def test_a_class_in_the_current_folder_runs_is_cut_and_goes_on(here, tmp_path):
    """The cut run is the real command, in processes of its own; the whole one is asked for in this process."""
    with command(tmp_path, *RUN, "--out", "cut", cwd=here) as process:
        for line in process.stdout:
            if "task 1 epoch 1" in line:
                process.send_signal(signal.SIGINT)
                break
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"go on with: ucb resume cut --method {PATH}"
    advice = f"learns with {PATH}, whose code would be imported: if you trust it, add --method {PATH}"
    assert refused("resume", "cut") == f"error: the run in cut {advice}\n"
    with command(tmp_path, "resume", "cut", "--method", PATH, cwd=here) as process:
        done(process)
    assert "mnist-5split, anchor, seed 0" in succeed(*RUN)
    whole = here / "runs" / "mnist-5split-anchor-seed0"
    assert figures(here / "cut") == figures(whole)
    assert json.loads((whole / "config.json").read_text())["method"] == PATH
    assert json.loads((whole / "result.json").read_text())["method"] == "anchor"
    assert f"--method {PATH}" in (whole / "report.html").read_text()
    assert "2 runs in report.html" in succeed("report", "cut", whole)


def test_settings_are_searched_and_the_recipe_is_found_under_the_methods_name(here):
    """With several jobs a trial is a process of its own, which must find the module, too."""
    grid = ["--grid", "strength=1", "--grid", "lr=0.1", "--jobs", 2, "--epochs", 1, "--hidden", 8]
    out = succeed("tune", "mnist-5split", "--method", PATH, *grid)
    assert f"{PATH} on mnist-5split: 1 points, 0 tried before" in out
    assert (here / "results" / "tuning" / "mnist-5split" / "anchor.json").is_file()
    recipe = json.loads((here / "recipes" / "mnist-5split" / "anchor.json").read_text())
    out = succeed(*RUN, "--out", "tuned")
    assert "settings of recipes/mnist-5split/anchor.json, your own recipe" in out
    assert json.loads((here / "tuned" / "config.json").read_text())["settings"] == recipe["settings"]


@pytest.fixture
def strange(here):
    """A folder from a stranger, and what must not happen: its code would leave a file behind."""
    (here / "x.py").write_text("from pathlib import Path\nPath('imported').touch()\nfrom my_method import Anchor\n")
    folder = here / "strange"
    folder.mkdir()
    config = {"benchmark": "mnist-5split", "method": "x:Anchor", "tasks": 1, "net_options": {"hidden": [4]}}
    (folder / "config.json").write_text(json.dumps(config | {"training": {"epochs": 1, "eval_samples": 1}}))
    return folder


def test_nothing_is_imported_that_a_folder_names_and_the_user_does_not(strange, here):
    assert "if you trust it, add --method x:Anchor" in refused("resume", strange)
    assert "learns with x:Anchor, not with my_method:Anchor" in refused("resume", strange, "--method", PATH)
    with pytest.raises(ValueError, match="if you trust it"):
        engine.resume(strange)
    planned = engine.PlannedRun(engine.Job("mnist-5split", "ord-ft", tasks=1), strange)
    (found,) = engine.carry_out_all([planned])
    assert "learns with x:Anchor, not with ord-ft" in str(found)
    refused("report", strange)
    table = here / "runs" / "tables" / "5split-mnist" / "ucb-seed1"
    shutil.copytree(strange, table)
    succeed("reproduce", "5split-mnist", "--methods", "ucb", "--seeds", "1", "--dry-run")
    assert not Path("imported").exists()
    succeed("resume", strange, "--method", "x:Anchor")
    assert Path("imported").exists()


def test_a_run_of_ours_may_be_named_again_and_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeed("run", "mnist-5split", "--method", "ord-ft", *SMALL, "--out", "ours")
    succeed("resume", "ours", "--method", "ord-ft")
    assert "learns with ord-ft, not with ewc" in refused("resume", "ours", "--method", "ewc")
