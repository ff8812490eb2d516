"""Which compiled kernels are loaded: those of this user, whole, from a folder in which nobody else can write."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ucb import kernels
from ucb.kernels import cpu

pytestmark = pytest.mark.skipif(cpu.load_library() is None, reason=kernels.status())
USES = """
import os, sys, torch
from ucb import kernels
from ucb.kernels import cpu
for caches in sys.argv[1:]:
    os.environ["XDG_CACHE_HOME"] = caches
    cpu._load.cache_clear()
    eps, w = torch.full((2, 300), float("nan")).unbind()
    kernels.draw(torch.zeros(300), torch.ones(300), eps, w, None)
    assert eps.isfinite().all()
    print(kernels.status())
"""
PLANTED = '#include <stdio.h>\n__attribute__((constructor)) void run(void) { fclose(fopen("%s", "w")); }\n'
STRANGER = 12345
KEPT = kernels.status().partition(" for this process alone")[0]


def used(*caches, where=None):
    """What a process of its own says of the kernels once it has drawn noise with them, in each of these folders."""
    command = [sys.executable, "-c", USES, *map(str, caches)]
    environment = {**os.environ, "PYTHONPATH": str(Path(kernels.__file__).parents[2])}
    done = subprocess.run(command, env=environment, cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def libraries(caches):
    return sorted(path for path in Path(caches).rglob("*") if not path.is_dir())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A cache folder with kernels, which tests copy before they do something to it."""
    caches = tmp_path_factory.mktemp("caches")
    assert used(caches)[0].startswith("compiled by")
    return caches


@pytest.fixture
def copied(built, tmp_path):
    """Makes copies of the folder with kernels, and says where the library is."""

    def copy(name):
        shutil.copytree(built, tmp_path / name)
        (library,) = libraries(tmp_path / name)
        return tmp_path / name, library

    return copy


@pytest.fixture
def planted(tmp_path):
    """A library that leaves a mark if it is ever loaded."""
    source, library, marker = tmp_path / "planted.c", tmp_path / "planted.so", tmp_path / "was loaded"
    source.write_text(PLANTED % marker)
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    yield library
    assert not marker.exists()


def test_kernels_are_built_once(built):
    (library,) = libraries(built)
    before = library.stat()
    assert before.st_mode & 0o022 == library.parent.stat().st_mode & 0o077 == 0
    assert used(built) == [KEPT]
    assert library.stat().st_mtime_ns == before.st_mtime_ns


def test_a_damaged_library_is_built_anew_and_never_loaded(copied, planted):
    whole = libraries(copied("whole")[0])[0].read_bytes()
    middle = len(whole) // 2
    contents = {
        "empty": b"",
        "cut": whole[:4096],
        "zeros": bytes(len(whole)),
        "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "planted": planted.read_bytes(),
    }
    damaged = {}
    for name, content in contents.items():
        caches, library = copied(name)
        library.write_bytes(content)
        damaged[caches] = library
    caches, library = copied("link")
    library.unlink()
    library.symlink_to(planted)
    damaged[caches] = library
    assert used(*damaged) == [KEPT] * len(damaged)
    for caches, library in damaged.items():
        assert libraries(caches) == [library]
        assert library.read_bytes() == whole
        assert not library.is_symlink()


def test_a_place_that_others_can_write_to_is_not_trusted(copied, tmp_path):
    """Everything in it fits, but for who may write: nothing there is loaded or changed, and the status says why."""
    open_folder, in_open = copied("open")
    in_open.parent.chmod(0o777)
    linked, in_linked = copied("linked")
    in_linked.parent.rename(tmp_path / "elsewhere")
    in_linked.parent.symlink_to(tmp_path / "elsewhere")
    no_folder = tmp_path / "file"
    no_folder.write_text("no folder")
    places = [open_folder, linked, no_folder]
    if os.geteuid() == 0:  # only root can give a folder away
        given, in_given = copied("given")
        os.chown(in_given.parent, STRANGER, STRANGER)
        places.append(given)
    before = {path: path.lstat().st_ctime_ns for path in tmp_path.rglob("*")}
    for place, said in zip(places, used(*places), strict=True):
        assert said.startswith(KEPT)
        assert "for this process alone" in said
        assert str(place) in said
    assert {path: path.lstat().st_ctime_ns for path in tmp_path.rglob("*")} == before


def test_a_file_that_others_can_write_to_is_built_anew(copied):
    caches, library = copied("open")
    library.chmod(0o666)
    assert used(caches) == [KEPT]
    assert library.stat().st_mode & 0o022 == 0


def test_a_stranger_s_library_in_a_shared_folder_never_runs(copied, planted):
    """It has the right name, hash and all; only its place was never this user's alone."""
    caches, library = copied("shared")
    library.write_bytes(planted.read_bytes())
    key = library.name.partition("-")[0]
    library.rename(library.with_name(f"{key}-{hashlib.sha256(planted.read_bytes()).hexdigest()}.so"))
    for folder in (caches, *caches.rglob("*/")):
        folder.chmod(0o777)
    assert "others can write to it" in used(caches)[0]


def test_a_relative_cache_folder_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    assert used("caches", where=tmp_path / "here") == [KEPT]
    assert not any((tmp_path / "here").iterdir())
    (library,) = libraries(tmp_path / "home")
    assert library.is_relative_to(tmp_path / "home" / ".cache")
