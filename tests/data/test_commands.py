"""`ucb data` as a user meets it."""

import dataclasses
import gzip
import json
import shutil

import numpy as np
import pytest

from tests.data import archives
from tests.data.test_download import Handler
from tests.support import make_output_plain, ucb
from ucb.data import cache, catalogue
from ucb.data import download as downloading
from ucb.data.cache import load
from ucb.data.catalogue import OfficialFile


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    make_output_plain(monkeypatch)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(downloading, "PAUSE", 0.0)


def data(*words):
    return ucb("data", *words)


def done(*words):
    answer = data(*words)
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == ""
    return answer.stdout


def refused(*words, code=2):
    answer = data(*words)
    assert answer.exit_code == code, answer.output
    assert "Traceback" not in answer.output
    assert len(answer.stderr.splitlines()) == 1
    return answer.stderr


@pytest.fixture
def files(tmp_path):
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def cifar(folder):
    members, expected = archives.cifar10_members()
    return archives.tar(folder / "cifar-10-binary.tar.gz", members), expected


def test_list(cache_folder):
    listed = done("list")
    assert [line.split()[0] for line in listed.splitlines()[2:11]] == list(catalogue.CATALOGUE)
    assert str(cache_folder) in listed
    row = next(line for line in listed.splitlines() if line.startswith("traffic_signs"))
    assert row.split()[-5:] == ["39,209", "+", "12,630", "32x32x3", "no"]
    cache_folder.mkdir()
    (cache_folder / "traffic_signs.npz").touch()
    row = next(line for line in done("list").splitlines() if line.startswith("traffic_signs"))
    assert row.endswith("yes")
    assert "https://sid.erda.dk" in done("list", "--sources")


def test_import_and_verify(files, published, cache_folder):
    path, expected = cifar(files)
    published("cifar10", files, train=10, test=2)
    told = done("import", "cifar10", path)
    assert told == f"cifar10: 10 + 2 images 32x32x3, 10 classes in {cache_folder / 'cifar10.npz'}\n"
    for found, wanted in zip(load("cifar10"), expected, strict=False):
        np.testing.assert_array_equal(found, wanted)
    assert done("verify") == "cifar10: 10 + 2 images 32x32x3, 10 classes; its hash is the recorded one\n"
    assert "there already: --replace" in refused("import", "cifar10", path)
    done("import", "cifar10", path, "--replace")
    assert path.exists()


def test_verify_finds_changed_files(files, published, cache_folder):
    path, _ = cifar(files)
    published("cifar10", files, train=10, test=2)
    done("import", "cifar10", path)
    arrays = cache_folder / "cifar10.npz"
    found = dict(np.load(arrays))
    found["x_train"][0, 0, 0, 0] ^= 1
    np.savez(arrays, **found)
    assert "as recorded when it was made" in refused("verify", "cifar10", code=1)
    arrays.write_bytes(arrays.read_bytes()[:1000])
    assert f"{arrays} is not an array file" in refused("verify", code=1)
    assert "svhn.npz is not there" in refused("verify", "svhn", code=1)
    arrays.unlink()
    assert "there are no array files" in done("verify")


def test_a_wrong_file_is_refused(files, tmp_path):
    path, _ = cifar(files)
    told = refused("import", "cifar10", path)
    assert f"{path} is not the expected file: its hash is sha256:" in told
    assert catalogue.CATALOGUE["cifar10"].files[0].digest in told
    assert "its hash was not compared" in done("import", "cifar10", path, "--unverified")
    other = files / "train.zip"
    other.touch()
    assert f"{other} is not a file of SVHN" in refused("import", "svhn", other)
    assert "wanted are train_32x32.mat, test_32x32.mat" in refused("import", "svhn", other)
    assert f"{tmp_path / 'nothing'} is not there" in refused("import", "svhn", tmp_path / "nothing")
    assert "holds no file of SVHN" in refused("import", "svhn", tmp_path)
    assert "there is no data set 'cifar'" in refused("import", "cifar", path)


def test_the_python_version_of_cifar_is_refused(files):
    path = archives.tar(files / "cifar-100-python.tar.gz", {"cifar-100-python/train": b"cos\nsystem\n(S'exit'\ntR."})
    assert "fetch the binary version, cifar-100-binary.tar.gz" in refused("import", "cifar100", path)
    renamed = path.rename(files / "cifar-100-binary.tar.gz")
    assert "fetch the binary version" in refused("import", "cifar100", renamed, "--unverified")


def test_a_missing_file_is_named(files, published):
    archives.write_idx(files)
    (files / "t10k-labels-idx1-ubyte.gz").unlink()
    published("mnist", files)
    assert "mnist needs t10k-labels-idx1-ubyte.gz (https://" in refused("import", "mnist", files)


def test_idx_files_raw_or_gzipped_anew(files, published, monkeypatch):
    archives.write_idx(files)
    published("fashion_mnist", files)
    known = catalogue.CATALOGUE["fashion_mnist"]
    raw = files / "raw"
    raw.mkdir()
    archives.write_idx(raw, zipped=False)
    slots = []
    for slot in known.files:
        name = slot.instead[0].name
        digest = cache.digest_of(raw / name, "md5")
        slots.append(dataclasses.replace(slot, instead=(OfficialFile(name, (), digest),)))
    monkeypatch.setitem(catalogue.CATALOGUE, "fashion_mnist", dataclasses.replace(known, files=tuple(slots)))
    done("import", "fashion_mnist", raw)
    anew = files / "train-images-idx3-ubyte.gz"
    anew.write_bytes(gzip.compress(gzip.decompress(anew.read_bytes()), compresslevel=1, mtime=5))
    done("import", "fashion_mnist", *files.glob("*.gz"), "--replace")
    anew.write_bytes(gzip.compress(gzip.decompress(anew.read_bytes())[:-1] + b"!", mtime=5))
    assert "train-images-idx3-ubyte.gz is not the expected file" in refused(
        "import", "fashion_mnist", files, "--replace"
    )


def test_a_hash_that_nobody_publishes_is_recorded_on_first_use(files, cache_folder):
    people = {f"Person_{number:03}": 2 for number in range(100)}
    archives.unpack(files, archives.faces("", people, size=8))
    told = done("import", "facescrub100", files)
    assert "no hash is published for mine" in told
    assert str(cache_folder / "hashes.json") in told
    assert json.loads((cache_folder / "hashes.json").read_text()).keys() == {"facescrub100/folder", "facescrub100.npz"}
    assert "no hash is published" not in done("import", "facescrub100", files, "--replace")
    (files / "Person_000" / "Person_000_0000.png").write_bytes(b"changed")
    assert f"recorded in {cache_folder / 'hashes.json'}" in refused("import", "facescrub100", files, "--replace")


def test_unreadable_images_are_counted(files, published):
    members, _ = archives.notmnist_members()
    path = archives.tar(files / "notMNIST_small.tar.gz", members)
    published("notmnist", files)
    assert "notmnist: 2 images could not be read and were skipped" in done("import", "notmnist", path)


class Files(Handler):
    """Gives the files of a folder; the first answer ends half-way."""

    def do_GET(self):
        path = self.server.folder / self.path.strip("/")
        content = path.read_bytes()
        begin = int(self.headers["Range"][6:-1]) if "Range" in self.headers else 0
        self.server.asked.append(self.headers.get("Range"))
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:] if len(self.server.asked) > 1 else content[: len(content) // 2])
        self.close_connection = True


@pytest.fixture
def site(files):
    import threading
    from http.server import ThreadingHTTPServer

    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as serving:
        serving.asked, serving.folder = [], files
        serving.url = f"http://127.0.0.1:{serving.server_port}/"
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_get(files, published, site, cache_folder):
    expected = archives.write_gtsrb(files)
    published("traffic_signs", files, site=site.url, train=4, test=3)
    told = done("get", "traffic_signs")
    assert f"fetching GTSRB_Final_Test_GT.zip from {site.url}" in told
    assert len(site.asked) == 4  # the first was cut
    assert site.asked[1].startswith("bytes=")
    for found, wanted in zip(load("traffic_signs"), expected, strict=False):
        np.testing.assert_array_equal(found, wanted)
    assert "there already" in done("get", "traffic_signs")
    assert "its hash is the recorded one" in done("verify", "traffic_signs")


def test_get_uses_what_lies_in_its_folder(files, published, cache_folder):
    path, _ = cifar(files)
    published("cifar10", files, site="http://127.0.0.1:1/")
    told = refused("get", "cifar10", code=1)
    folder = cache_folder / "downloads" / "cifar10"
    assert f"http://127.0.0.1:1/{path.name} (Connection refused); fetch it elsewhere, put it into {folder}" in told
    brought = shutil.copy(path, folder)
    assert "10 + 2 images" in done("get", "cifar10")
    (cache_folder / "cifar10.npz").unlink()
    (folder / path.name).write_bytes(b"damaged")
    assert f"{brought} is not the expected file" in refused("get", "cifar10")
    assert (folder / path.name).exists()  # the user brought it: it is not ours to remove


def test_get_removes_what_it_fetched_in_vain(files, published, site, cache_folder):
    path, _ = cifar(files)
    published("cifar10", files, site=site.url, digest="sha256:" + "0" * 64)
    told = refused("get", "cifar10", code=1)
    assert f"{cache_folder / 'downloads' / 'cifar10' / path.name} is not the expected file" in told
    assert list((cache_folder / "downloads" / "cifar10").iterdir()) == []


def test_get_refuses_what_cannot_be_had():
    assert "facescrub100 cannot be downloaded: run `ucb data import facescrub100 FOLDER`" in refused(
        "get", "facescrub100"
    )
    assert "did you mean svhn" in refused("get", "svhm")


def test_an_interruption_says_how_to_go_on(monkeypatch):
    def interrupted(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(downloading, "get", interrupted)
    assert "the same command goes on from there" in refused("get", "svhn", code=130)


def test_debug_shows_where(files):
    answer = data("import", "svhn", files, "--debug")
    assert "Traceback" in answer.stderr
    assert answer.exit_code == 2
