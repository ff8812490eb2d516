"""Damaged files of every kind, from a seed: each is read, or refused in one sentence of the right type.

Bytes are flipped, cut, doubled, swapped, spliced with those of another file, and what may be a length changed. No
input may end in an error of programming, take gigabytes, or take long.
"""

import gzip
import io
import random
import resource
import shutil
import signal
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data import archives
from tests.engine.runs import small_job
from tests.incremental.data import blobs, digits
from ucb import engine
from ucb.data.cache import RecordedHashes
from ucb.data.catalogue import find
from ucb.data.parsers import parse
from ucb.data.readers import open_labelled, open_unlabelled
from ucb.data.readers.arrays import read_arrays
from ucb.engine import checkpoint
from ucb.engine.config import own_recipe
from ucb.engine.runner import read_job
from ucb.experiments.report.results import results_at
from ucb.experiments.reproduce.planning import damage_of, result_in
from ucb.experiments.tuning.records import saved_trials
from ucb.experiments.tuning.search import Search
from ucb.incremental import Model, learn, trunks
from ucb.incremental.progress_file import ProgressFile
from ucb.observer import Observer

EACH = 150
ROOM, SECONDS = 4 << 30, 30
SENTENCES = (ValueError, TypeError, OSError, RuntimeError)
"""What the command line answers with a sentence; anything else it calls a defect."""
NOT_SENTENCES = (RecursionError, NotImplementedError, UnicodeError)


def damaged(content, numbers, other):
    """Return bytes with one to three faults."""
    changed = bytearray(content)
    for _ in range(numbers.choice([1, 1, 2, 3])):
        size = len(changed)
        place, length = numbers.randrange(size + 1), numbers.choice([1, 4, 16, 300])
        deed = numbers.randrange(8)
        if deed == 0 and size:
            changed[place % size] ^= 1 << numbers.randrange(8)
        elif deed == 1:
            del changed[place:]
        elif deed == 2:
            changed[place:place] = changed[place : place + length]
        elif deed == 3:
            del changed[place : place + length]
        elif deed == 4:
            second = numbers.randrange(size + 1)
            changed[place : place + length], changed[second : second + length] = (
                changed[second : second + length],
                changed[place : place + length],
            )
        elif deed == 5:
            start = numbers.randrange(len(other) + 1)
            changed[place:] = other[start:]
        elif deed == 6:  # a length of two, four or eight bytes
            value = numbers.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1])
            width = numbers.choice([2, 4, 8])
            order = numbers.choice(["little", "big"])
            near = numbers.choice([place, numbers.randrange(min(size, 200) + 1)])
            changed[near : near + width] = (value % (1 << 8 * width)).to_bytes(width, order)
        else:
            word = numbers.choice([b"null", b"-1", b"1e999", b"[]", b"{}", b'""', b"9" * 400, b"\xff", b"\0", b"\n"])
            changed[place : place + numbers.choice([0, 1, len(word)])] = word
    return bytes(changed)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    engine.start(small_job(), folder)
    return folder


@pytest.fixture
def _bounded():
    """No input may take gigabytes."""
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def feed(path, content, other, read, seed, number=EACH):
    """Read damaged forms of a file; return how many could be read all the same, and how many not."""
    numbers, outcomes = random.Random(f"{path.name} {seed}"), [0, 0]

    def late(_signal, _frame):
        raise AssertionError("it takes too long")

    before = signal.signal(signal.SIGALRM, late)
    try:
        for turn in range(number):
            path.write_bytes(damaged(content, numbers, other))
            signal.alarm(SECONDS)
            try:
                read()
                outcomes[0] += 1
            except Exception as error:
                if not isinstance(error, SENTENCES) or isinstance(error, NOT_SENTENCES) or not str(error):
                    raise AssertionError(f"{path.name}, input {turn}: {error!r}") from error
                outcomes[1] += 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return outcomes


def stored(inside, **arrays):
    """An .npz file; with ``inside`` its members are damaged and have the right checksums."""
    content = io.BytesIO()
    if not inside:
        np.savez_compressed(content, **arrays)
        return content.getvalue()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, array)
            archive.writestr(f"{name}.npy", damaged(one.getvalue(), inside, b"\x93NUMPY\1\0" + bytes(90)))
    return content.getvalue()


def waves(folder, numbers):
    """Files to learn from."""
    x, y = np.linspace(-1, 1, 36).reshape(12, 3), np.array([f"class {n % 2}" for n in range(12)])
    rows = "".join(f"{a:.3f},{b:.3f},{c:.3f},{label}\n" for (a, b, c), label in zip(x, y, strict=True))
    yield folder / "wave.csv", b"u,v,w,label\n" + rows.encode()
    yield folder / "wave.npz", stored(None, x=x, y=y)
    yield folder / "inner.npz", stored(numbers, x=x, y=y)
    images = archives.pixels(6, 12, 12, 3)
    yield folder / "images.npz", stored(None, images=images, labels=np.arange(6) % 2)
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    content = io.BytesIO()
    parquet.write_table(arrow.table({"u": x[:, 0], "v": x[:, 1], "label": y}), content)
    yield folder / "wave.parquet", content.getvalue()


def taken(examples):
    """Read to the last example."""
    return sum(len(x) for _, x in examples.batches(torch.arange(len(examples)), 4))


def official(folder):
    """Official files of data sets, each with the one that is damaged."""
    for name in ("mnist", "raw", "cifar10", "cifar100", "gtsrb", "notmnist", "svhn"):
        (folder / name).mkdir()
    archives.write_idx(folder / "mnist")
    archives.write_idx(folder / "raw", zipped=False)
    archives.tar(folder / "cifar10" / "c.tar.gz", archives.cifar10_members()[0])
    archives.zipped(folder / "cifar100" / "c.zip", archives.cifar100_members()[0])
    archives.write_gtsrb(folder / "gtsrb")
    archives.tar(folder / "notmnist" / "n.tar.gz", archives.notmnist_members(2)[0])
    plain = folder / "notmnist" / "n.tar.gz"
    plain.write_bytes(gzip.decompress(plain.read_bytes()))  # a plain tar: its headers are within reach
    io_ = pytest.importorskip("scipy.io")
    for name in ("train.mat", "test.mat"):
        content = {"X": archives.pixels(32, 32, 3, 2), "y": np.ones((2, 1), np.uint8)}
        io_.savemat(folder / "svhn" / name, content, do_compression=name == "test.mat")
    order = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    yield "mnist", [folder / "mnist" / f"{name}.gz" for name in order], 0
    yield "mnist", [folder / "raw" / name for name in order], 0
    yield "cifar10", [folder / "cifar10" / "c.tar.gz"], 0
    yield "cifar100", [folder / "cifar100" / "c.zip"], 0
    zips = ["GTSRB_Final_Training_Images.zip", "GTSRB_Final_Test_Images.zip", "GTSRB_Final_Test_GT.zip"]
    yield "traffic_signs", [folder / "gtsrb" / name for name in zips], 2
    yield "notmnist", [folder / "notmnist" / "n.tar.gz"], 0
    yield "svhn", [folder / "svhn" / name for name in ("train.mat", "test.mat")], 0
    yield "svhn", [folder / "svhn" / name for name in ("train.mat", "test.mat")], 1


@pytest.mark.slow
@pytest.mark.usefixtures("_bounded")
@pytest.mark.filterwarnings("ignore")
def test_three_thousand_damaged_inputs(tmp_path, monkeypatch, run):
    found = dict(damaged_inputs(tmp_path, monkeypatch, run, EACH))
    readable, refused = (sum(each[place] for each in found.values()) for place in (0, 1))
    assert readable + refused >= 3000
    assert readable > 0
    print(f"{readable + refused} damaged inputs of {len(found)} kinds: {readable} were read, {refused} refused")
    for kind, (read, not_read) in found.items():
        print(f"  {kind}: {read} read, {not_read} refused")


@pytest.mark.usefixtures("_bounded")
@pytest.mark.filterwarnings("ignore")
def test_damaged_inputs_of_every_kind(tmp_path, monkeypatch, run):
    found = dict(damaged_inputs(tmp_path, monkeypatch, run, 3))
    assert all(sum(each) == 3 for each in found.values())


def damaged_inputs(tmp_path, monkeypatch, run, number):
    """Yield each kind with how many of its damaged forms could be read and how many not."""
    monkeypatch.setattr(trunks, "UNITS", 40)
    monkeypatch.setattr(trunks, "FILTERS", 6)
    numbers = random.Random(2)
    other = (run / "result.json").read_bytes() + bytes(range(256))

    def all_of(path, content, read, seed=0):
        return feed(path, content, other, read, seed, number)

    for method, wave in ("fixed", digits([0, 1], 10)), ("ucb-ng", blobs("ab", 10)):
        path = tmp_path / f"{method}.ucb"
        fixed = method == "fixed"
        learn(path, wave, method=method, epochs=None if fixed else 1, keep_sums=fixed)
        yield f"a model of {method}", all_of(path, path.read_bytes(), lambda path=path: Model.open(path).show())

    state = next(iter(run.glob("checkpoint-*"))).read_bytes()
    path = tmp_path / "learner"
    sealed = checkpoint.pack(checkpoint.unpack(state), sealed=True)
    from ucb.engine.learner_file import read_state

    yield "a learner's file", all_of(path, sealed, lambda: read_state(path))
    (tmp_path / "checkpoints").mkdir()
    checkpoints = checkpoint.FolderCheckpoints(tmp_path / "checkpoints")
    checkpoints.save(checkpoint.unpack(state))
    yield "a checkpoint", all_of(checkpoints.path, checkpoints.path.read_bytes(), checkpoints.load)
    keeper = ProgressFile(tmp_path / "m.learning", {}, Observer())
    keeper.save({"number": 1})
    yield "progress of learn", all_of(keeper.path, keeper.path.read_bytes(), keeper.load)

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    yield "a configuration", all_of(copy / "config.json", (run / "config.json").read_bytes(), lambda: read_job(copy))
    result = (run / "result.json").read_bytes()
    yield "a result", all_of(copy / "result.json", result, lambda: results_at([copy / "result.json"]))
    yield (
        "a table's result",
        all_of(copy / "result.json", result, lambda: damage_of(result_in(copy / "result.json"), 0)),
    )
    path = tmp_path / "recipes" / "mnist-5split" / "ucb.json"
    path.parent.mkdir(parents=True)
    recipe = b'{"training": {"epochs": 3}, "settings": {"lr": 0.1}, "found": "by hand", "grid": {}, "tried": 4}'
    yield "a recipe", all_of(path, recipe, lambda: own_recipe("mnist-5split", "ucb", tmp_path / "recipes"))
    path = tmp_path / "trials.json"
    trials = (
        b'{"name": "mnist-5split", "benchmark": "mnist-5split", "method": "ucb", "trials": [{"settings": {"lr": 1}, '
    )
    trials += b'"score": 0.1, "error": 0.1, "risen": 0.0, "acc": 99.0, "bwt": 0.0, "seconds": 1.0}]}'
    yield "trials", all_of(path, trials, lambda: saved_trials(path, Search("mnist-5split", "ucb")))
    (tmp_path / "hashes").mkdir()
    record = RecordedHashes(tmp_path / "hashes")
    record.put("a", "md5:1")
    yield "recorded hashes", all_of(record.path, record.path.read_bytes(), lambda: record.get("a"))

    for path, content in waves(tmp_path, numbers):
        yield path.name, all_of(path, content, lambda path=path: taken(open_labelled(path)))
    for kind, mode in ("png", "RGBA"), ("jpg", "RGB"), ("gif", "P"), ("tiff", "F"):
        folder = tmp_path / kind
        (folder / "a").mkdir(parents=True)
        image = Image.fromarray(archives.pixels(12, 12, 3)).convert("L" if mode == "F" else mode).convert(mode)
        image.save(folder / "a" / f"1.{kind}")
        path = folder / "a" / f"1.{kind}"
        yield kind, all_of(path, path.read_bytes(), lambda folder=folder: taken(open_labelled(folder)))
        yield (
            f"{kind} to predict",
            all_of(path, path.read_bytes(), lambda path=path: taken(open_unlabelled([path], (1, 8, 8)))),
        )
    x, y = archives.pixels(3, 8, 8), np.arange(3)
    arrays = stored(None, x_train=x, y_train=y, x_test=x, y_test=y, class_names=np.array(["a", "b", "c"]))
    path = tmp_path / "set.npz"
    yield "an array file", all_of(path, arrays, lambda: read_arrays(path))
    (tmp_path / "official").mkdir()
    for turn, (name, files, place) in enumerate(official(tmp_path / "official")):
        whole = files[place].read_bytes()
        yield (
            f"{name} {files[place].name}",
            all_of(files[place], whole, lambda name=name, files=files: parse(find(name), files), turn),
        )
        files[place].write_bytes(whole)
