"""Files that somebody laid: pipes, devices and links are told from plain files before anything is done to them."""

import errno
import os
import subprocess
import sys

import pytest

from ucb.storage import (
    HeldError,
    RefusedFileError,
    ceilings,
    hold_lock,
    open_checked,
    open_for_append,
    read_bytes,
    read_json,
    replace_atomically,
)
from ucb.storage import write_atomically as write

PRECIOUS = b"somebody's, and precious"


def laid(path, kind):
    """Lay a pipe, a link to a file of somebody's, or one to nothing; return what a link leads to."""
    victim = path.with_name("victim")
    victim.write_bytes(PRECIOUS)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(victim)
    elif kind == "broken link":
        path.symlink_to(path.with_name("made through a link"))
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    return victim


def untouched(victim):
    assert victim.read_bytes() == PRECIOUS
    assert not victim.with_name("made through a link").exists()


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_neither_pipes_nor_devices_are_read(tmp_path, kind):
    path = tmp_path / "file"
    laid(path, kind)
    for read in (lambda: open_checked(path, 10), lambda: read_bytes(path, 10), lambda: read_json(path)):
        with pytest.raises(RefusedFileError, match="file is a pipe or a device, no plain file"):
            read()


def test_folders_and_what_is_not_there_keep_their_errors(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing", 10)


def test_a_link_that_somebody_made_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", 7) == b"content"


def test_what_is_too_large_is_named_with_its_size_and_the_ceiling(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(1001))
    with pytest.raises(RefusedFileError, match=r"file has 1,001 bytes, and ucb reads 1,000 of such a file at most"):
        open_checked(path, 1000)
    monkeypatch.setattr(ceilings, "memory", lambda: 500)
    with pytest.raises(RefusedFileError, match="1,001 bytes, and this machine has memory for 500 more"):
        read_bytes(path, 2000)


def test_a_sparse_file_larger_than_memory_is_refused_at_once(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(RefusedFileError, match="memory for"):
        read_bytes(path, 1 << 43)


def test_files_that_hide_their_size_are_cut_off_at_the_ceiling():
    with pytest.raises(RefusedFileError, match="larger than 10 bytes"):
        read_bytes("/proc/self/smaps", 10)


def test_an_empty_file_takes_no_room(tmp_path):
    """Whatever its ceiling is: reading up to there would make room for it first."""
    (tmp_path / "file").touch()
    assert read_bytes(tmp_path / "file", 1 << 50) == b""


def test_deep_json_is_a_value_error(tmp_path):
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "deep")


@pytest.mark.parametrize("kind", ["left by a kill", "pipe", "link", "broken link"])
def test_whatever_lies_at_the_scratch_name_a_file_is_written_and_no_link_followed(tmp_path, kind):
    path, scratch = tmp_path / "file", tmp_path / "file.part"
    victim = laid(scratch, kind)
    if kind == "left by a kill":
        scratch.write_bytes(b"half")
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert not path.is_symlink()
    assert not os.path.lexists(scratch)
    untouched(victim)


def test_a_scratch_file_that_another_process_exchanges_is_not_put_in_place(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def exchanged():
        with replace_atomically(path) as file:
            file.write(b"new")
            (tmp_path / "file.part").unlink()
            (tmp_path / "file.part").write_bytes(b"half of another's")

    with pytest.raises(OSError, match="another process writes there"):
        exchanged()
    assert path.read_bytes() == b"old"


def test_a_disk_without_room_is_told_with_the_file(tmp_path):
    with pytest.raises(OSError, match="No space") as error, replace_atomically(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pipe", "link", "broken link", "link to a device"])
def test_locks_and_logs_are_neither_links_nor_pipes(tmp_path, kind):
    path = tmp_path / "lock"
    victim = laid(path, kind)
    for use in (lambda: hold_lock(path).__enter__(), lambda: open_for_append(path)):
        with pytest.raises(RefusedFileError, match="lock is a link or a pipe, and ucb writes to neither there: remove"):
            use()
    untouched(victim)


def test_a_pipe_that_somebody_reads_is_no_lock_either(tmp_path):
    os.mkfifo(tmp_path / "lock")
    reader = os.open(tmp_path / "lock", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(RefusedFileError, match="a pipe or a device"):
            open_for_append(tmp_path / "lock")
    finally:
        os.close(reader)


def test_a_lock_is_held_by_one_and_loses_nothing(tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(PRECIOUS)
    program = "import sys, pathlib\nfrom ucb.storage import hold_lock\nwith hold_lock(pathlib.Path(sys.argv[1])): pass"
    with hold_lock(path):
        with pytest.raises(HeldError), hold_lock(path):
            pass
        other = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
        assert "HeldError" in other.stderr
    with hold_lock(path):
        assert path.read_bytes() == PRECIOUS


def test_a_lock_that_its_holder_removes_is_taken_anew(tmp_path, monkeypatch):
    """Between opening and locking the holder leaves and removes the file: what was locked has no name any more."""
    import fcntl

    path, whole, times = tmp_path / "lock", fcntl.flock, []

    def slow(file, how):
        times.append(how)
        if len(times) == 1:
            path.unlink()
        whole(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with hold_lock(path):
        assert len(times) == 2
        assert path.exists()
