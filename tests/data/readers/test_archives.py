"""Hostile and damaged archives."""

import io
import stat
import tarfile
import zipfile

import pytest

from tests.data import archives
from ucb.data.readers.archives import members, names
from ucb.storage import ceilings


def everything(path):
    return dict(members(path, lambda name: True))


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("write", [archives.tar, archives.zipped])
def test_files_come_one_after_another(tmp_path, write):
    content = {"a/1.bin": b"one", "a/2.bin": b"", "b.bin": b"three"}
    path = write(tmp_path / "archive", content)
    assert everything(path) == content
    assert names(path) == list(content)
    assert dict(members(path, lambda name: name == "b.bin")) == {"b.bin": b"three"}
    assert everything(archives.unpack(tmp_path / "folder", content)) == content


@pytest.mark.parametrize("write", [archives.tar, archives.zipped])
@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:/evil", "C:\\evil"])
def test_names_that_lead_out_are_refused(tmp_path, write, name):
    path = write(tmp_path / "archive", {"good": b"1", name: b"2"})
    with pytest.raises(ValueError, match=r"archive: .*evil leads out of the archive: refused"):
        names(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = archives.tar(tmp_path / "archive", {"passwords": link("passwords", "/etc/passwd", kind)})
    with pytest.raises(ValueError, match="passwords is a link or a device: refused"):
        everything(path)


def test_a_link_in_a_zip_is_refused(tmp_path):
    info = zipfile.ZipInfo("passwords")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match="passwords is a link"):
        everything(tmp_path / "archive")


def test_a_linked_folder_is_named(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "A").symlink_to(tmp_path / "real")
    with pytest.raises(ValueError, match="A is a link to a folder"):
        names(tmp_path / "folder")


@pytest.mark.parametrize("write", [archives.tar, archives.zipped])
@pytest.mark.parametrize(("limit", "value"), [("MEMBER", 999), ("UNPACKED", 1500), ("MEMBERS", 1)])
def test_absurd_sizes_are_refused_before_they_are_read(tmp_path, monkeypatch, write, limit, value):
    path = write(tmp_path / "archive", {"a": bytes(1000), "b": bytes(1000)})
    everything(path)
    monkeypatch.setattr(ceilings, limit, value)
    monkeypatch.setattr(ceilings, "RATIO", 1)
    with pytest.raises(ValueError, match="absurdly large"):
        names(path)


def test_a_tar_that_promises_terabytes_is_refused(tmp_path):
    info = tarfile.TarInfo("bomb")
    info.size = 1 << 42
    path = tmp_path / "archive.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ValueError, match="bomb is refused"):
        names(path)


def test_damaged_archives_are_named(tmp_path):
    path = archives.tar(tmp_path / "archive", {"a": archives.pixels(100_000).tobytes()})
    whole = path.read_bytes()
    beside = tmp_path / "archive.zip"
    zip_bytes = archives.zipped(beside, {"a": archives.pixels(1000).tobytes()}).read_bytes()
    flipped = bytearray(zip_bytes)
    flipped[500] ^= 255
    for content in (b"", b"rubbish", whole[:5000], b"\x1f\x8b" + bytes(50), bytes(flipped), zip_bytes[:-30]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="archive is damaged, or no archive"):
            everything(path)


def test_a_missing_file_is_still_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        names(tmp_path / "nothing")


def test_an_encrypted_zip_is_named(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("secret", b"1")
    raw = bytearray(content.getvalue())
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "archive").write_bytes(raw)
    with pytest.raises(ValueError, match="secret is encrypted"):
        names(tmp_path / "archive")


def test_a_name_that_is_no_text_is_damage(tmp_path):
    """A flag says that it is UTF-8, and it is not."""
    path = archives.zipped(tmp_path / "archive", {"é": b"1"})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xe9("))
    with pytest.raises(ValueError, match="archive is damaged, or no archive"):
        names(path)
