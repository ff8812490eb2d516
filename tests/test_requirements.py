"""What make installs is fixed by version and by hash, and so is what builds the package."""

import itertools
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
HASHED = ("dev", "run", "bench", "lock")


def pins(name):
    """Every requirement of a file by its name, with the SHA-256 sums that it may have."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", "")
    found = {}
    for line in re.findall(r"^[^#\n].*", text, re.MULTILINE):
        requirement, *sums = re.split(r"\s+--hash=sha256:", line.strip())
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums), line
        found[canonicalize_name(Requirement(requirement).name)] = Requirement(requirement), sums
    return found


def exact(pin):
    (specifier,) = pin.specifier
    assert specifier.operator == "=="
    return specifier.version


@pytest.mark.parametrize("name", [*HASHED, "torch"])
def test_every_line_is_one_version_with_its_hashes_and_names_no_place(name):
    for pin, sums in pins(name).values():
        assert exact(pin)
        assert sums or name == "torch", f"{pin} has no hash"
        assert pin.url is None
    assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()


def test_all_that_the_package_needs_is_pinned_within_its_limits():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed, extras = pyproject["project"]["dependencies"], pyproject["project"]["optional-dependencies"]
    wanted = {"run": needed, "bench": extras.pop("bench")}
    wanted["dev"] = [*needed, *pyproject["build-system"]["requires"], *itertools.chain(*extras.values())]
    for name, requirements in wanted.items():
        for need in map(Requirement, requirements):
            pin, _ = pins("torch" if need.name == "torch" else name)[canonicalize_name(need.name)]
            assert need.specifier.contains(exact(pin)), f"{pin} is not {need}"


def test_the_build_back_end_is_pinned_with_all_that_it_imports():
    back_end = {"editables", "hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"}
    assert back_end <= pins("dev").keys()


def test_the_files_agree_and_no_build_of_torch_is_chosen():
    versions = {}
    for name in (*HASHED, "torch"):
        for package, (pin, _) in pins(name).items():
            assert versions.setdefault(package, exact(pin)) == exact(pin), f"{package} has two versions"
    for name in HASHED:
        assert not [package for package in pins(name) if package == "torch" or package.startswith(("cuda", "nvidia"))]


def test_make_installs_nothing_that_is_not_pinned_and_builds_with_the_pinned_back_end():
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--dry-run", "--always-make", "setup", "lint", "wheel", "bench", "lock"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    installs = [line for line in done.stdout.splitlines() if re.search(r"-m pip .*\b(install|wheel)\b", line)]
    assert installs
    for line in installs:
        if re.search(r"-e '?\.|\.whl|wheel-dir", line):  # our own package, which has no hash
            assert "--no-build-isolation" in line
            assert "--no-index" in line or "--no-deps" in line
        else:
            assert "--only-binary :all:" in line
            assert "--require-hashes" in line or line.endswith("-c requirements/torch.txt torch")
