"""Folders of your own images as tasks, with and without images that cannot be read."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.streams.reading import CPU, everything
from tests.incremental.asking import ask
from ucb.data.readers import open_labelled
from ucb.data.streams.folders import folders
from ucb.engine import Job, Learner, Observer, Schedule, Training, resume, start
from ucb.nets import mlp


def make_folder(path, classes, each=8, size=(20, 30)):
    random = np.random.default_rng(len(classes))
    for number, name in enumerate(classes):
        (path / name).mkdir(parents=True)
        for index in range(each):
            pixels = random.integers(0, 100, (*size, 3), np.uint8) + 80 * number
            Image.fromarray(pixels.astype(np.uint8)).save(path / name / f"{index}.png")


@pytest.mark.parametrize("fits", [1 << 30, 0])
def test_a_folder_is_a_task_in_memory_or_from_disk(tmp_path, fits):
    make_folder(tmp_path / "animals", ["cat", "dog"], each=10)
    make_folder(tmp_path / "plants", ["oak", "rose", "树"], each=10)
    stream = folders("mine", [tmp_path / "animals", tmp_path / "plants"], fits=fits, workers=0)
    assert [(task.name, task.classes) for task in stream.tasks] == [
        ("animals", ("cat", "dog")),
        ("plants", ("oak", "rose", "树")),
    ]
    sizes = [[len(part) for part in (task.train, task.validation, task.test)] for task in stream.tasks]
    assert sizes[0] == [14, 2, 4]
    x, y = next(iter(stream.tasks[1].train.batches(torch.arange(5), 5, CPU)))
    assert x.shape == (5, 3, 32, 32)
    assert x.dtype == torch.uint8
    assert set(y.tolist()) <= {0, 1, 2}
    # brighter classes have higher labels: pixels and labels belong together
    assert all((int(image.float().mean()) - 20) // 80 == label for image, label in zip(x, y, strict=True))


def test_folders_of_training_and_test_images_are_used_as_they_are(tmp_path):
    make_folder(tmp_path / "a" / "train", ["x", "y"], each=6)
    make_folder(tmp_path / "a" / "test", ["x", "y"], each=2)
    (task,) = folders("mine", [tmp_path / "a"]).tasks
    assert (len(task.train) + len(task.validation), len(task.test)) == (12, 4)


@pytest.mark.parametrize(
    ("classes", "said"), [([], "not a folder"), (["one"], "at least two classes"), (["a", "b"], "has 1 example")]
)
def test_folders_that_cannot_be_learnt_are_named(tmp_path, classes, said):
    if classes:
        make_folder(tmp_path / "bad", classes, each=1)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        folders("mine", [tmp_path / "bad"])


def contents(stream):
    """All that a stream holds, and how it is prepared."""
    return [
        (task.name, task.classes, task.prepare.mean, task.prepare.std, *(everything(part) for part in parts(task)))
        for task in stream.tasks
    ]


def parts(task):
    return task.train, task.validation, task.test


def same(one, other):
    for a, b in zip(contents(one), contents(other), strict=True):
        assert a[:4] == b[:4]
        for (x, y), (x_other, y_other) in zip(a[4:], b[4:], strict=True):
            assert torch.equal(x, x_other)
            assert torch.equal(y, y_other)


def damage(folder):
    """Three files that cannot be read, of which one only shows when it is decoded."""
    whole = (folder / "y" / "0.png").read_bytes()
    (folder / "x" / "00.png").write_bytes(b"no image")
    (folder / "y" / "half.png").write_bytes(whole[: len(whole) // 2])
    (folder / "y" / "gone.png").symlink_to("nowhere.png")


@pytest.mark.parametrize("fits", [1 << 30, 0])
def test_a_stream_is_what_it_is_without_the_images_that_cannot_be_read(tmp_path, fits):
    make_folder(tmp_path / "a", ["x", "y"], each=12)
    make_folder(tmp_path / "b" / "train", ["p", "q"], each=6)
    make_folder(tmp_path / "b" / "test", ["p", "q"], each=3)
    both = [tmp_path / "a", tmp_path / "b"]
    whole = folders("mine", both, seed=3, fits=fits, workers=0)
    assert whole.remarks == ()
    damage(tmp_path / "a")
    (tmp_path / "b" / "test" / "p" / "bad.jpg").write_bytes(b"")
    (tmp_path / "b" / "test" / "p" / "notes.txt").write_text("words")
    damaged = folders("mine", both, seed=3, fits=fits, workers=0)
    same(whole, damaged)
    assert damaged.remarks == (
        f"{tmp_path}/a: 3 images cannot be read and are left out: y/gone.png (it is a broken link or no plain file), "
        "x/00.png (it is no image of a known format), y/half.png (it is truncated)",
        f"{tmp_path}/b/test: 1 file that is no image is left out",
        f"{tmp_path}/b/test: 1 image cannot be read and is left out: p/bad.jpg (it is no image of a known format)",
    )


def test_of_many_unreadable_images_the_first_are_named(tmp_path):
    make_folder(tmp_path / "a", ["x", "y"])
    for number in range(20):
        (tmp_path / "a" / "x" / f"bad {number:02}.png").write_bytes(b"")
    (remark,) = folders("mine", [tmp_path / "a"]).remarks
    assert "20 images cannot be read and are left out: x/bad 00.png (it is no image of a known format), " in remark
    assert remark.endswith("x/bad 11.png (it is no image of a known format) and 8 more")


def test_a_class_without_a_readable_image_is_one_sentence(tmp_path):
    make_folder(tmp_path / "a", ["x", "y", "z"])
    for file in (tmp_path / "a" / "y").iterdir():
        file.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a: no image of the class 'y' can be read: mend or remove it$"):
        folders("mine", [tmp_path / "a"])
    for file in (tmp_path / "a" / "y").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=r"a: no image of the class 'y' is there$"):
        folders("mine", [tmp_path / "a"])
    make_folder(tmp_path / "b" / "train", ["p", "q"])
    make_folder(tmp_path / "b" / "test", ["p"])
    with pytest.raises(ValueError, match=r"b/test: no image of the class 'q' is there$"):
        folders("mine", [tmp_path / "b"])


def test_an_image_that_becomes_unreadable_while_a_run_reads_it_is_named(tmp_path):
    make_folder(tmp_path / "a", ["x", "y"])
    stream = folders("mine", [tmp_path / "a"], fits=0, workers=0)
    for file in tmp_path.rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"png could be read when the run began, and cannot be read now: it is no im"):
        everything(stream.tasks[0].train)


def test_both_ways_to_learn_skip_the_same_images_for_the_same_reasons(tmp_path):
    make_folder(tmp_path / "a", ["x", "y"])
    damage(tmp_path / "a")
    examples = open_labelled(tmp_path / "a", (3, 32, 32))
    list(examples.batches(torch.arange(len(examples)), 100))
    (remark,) = folders("mine", [tmp_path / "a"]).remarks
    assert len(examples.skipped) == 3
    assert all(f"{skipped.name} ({skipped.why})" in remark for skipped in examples.skipped)


class Notes(Observer):
    def __init__(self):
        self.said = []

    def noted(self, sentence):
        self.said.append(sentence)


class Stop(Notes):
    """Interrupts at the start of the second task."""

    def task_began(self, task, name):
        if task == 1:
            raise KeyboardInterrupt


def test_a_run_names_unreadable_images_goes_on_and_resumes_to_the_same(tmp_path):
    make_folder(tmp_path / "a", ["x", "y"], each=12)
    make_folder(tmp_path / "b", ["p", "q"], each=12)
    clean = {"data": [str(tmp_path / "a"), str(tmp_path / "b")], "net": "mlp", "net_options": {"hidden": [16]}}
    job = Job("folders", "ord-ft", training={"epochs": 3}, **clean)
    expected = start(job, tmp_path / "clean")
    damage(tmp_path / "a")
    notes = Notes()
    found = start(job, tmp_path / "damaged", notes)
    assert [note.count("cannot be read and are left out") for note in notes.said] == [1]
    with pytest.raises(KeyboardInterrupt):
        start(job, tmp_path / "cut", Stop())
    resumed = resume(tmp_path / "cut", again := Notes())
    assert again.said == notes.said
    for result in (found, resumed):
        assert result["accuracy_matrix"] == expected["accuracy_matrix"]


def test_a_run_on_folders(tmp_path):
    make_folder(tmp_path / "a", ["x", "y"], each=12)
    make_folder(tmp_path / "b", ["p", "q"], each=12)
    data = [str(tmp_path / "a"), str(tmp_path / "b")]
    job = Job("folders", "ord-ft", data=data, net="mlp", net_options={"hidden": [16]}, training={"epochs": 3})
    run = job.run()
    run.learn()
    assert run.matrix.learning > 60
    with pytest.raises(ValueError, match="--data goes with"):
        Job("mnist-5split", "ord-ft", data=data).stream()
    with pytest.raises(ValueError, match="number of folders"):
        Job("folders", "ord-ft", data=data, tasks=3).stream()


def test_a_whole_run_reads_from_disk_what_does_not_fit(tmp_path):
    """The same folders in memory and from disk: the same order of examples, and both are learnt."""
    make_folder(tmp_path / "a", ["x", "y"], each=12)
    make_folder(tmp_path / "b", ["p", "q"], each=12)
    learnt = []
    for fits in (1 << 30, 0):
        stream = folders("mine", [tmp_path / "a", tmp_path / "b"], fits=fits, workers=0)
        torch.manual_seed(0)
        training = Training(Schedule(epochs=3), batch_size=8)
        learner = Learner(mlp((3, 32, 32), stream.head_sizes, [16]), stream, "ord-ft", training=training)
        learnt.append([learner.learn(task)[-1].accuracy for task in stream.tasks])
    assert min(min(each) for each in learnt) > 60


def test_the_command_names_what_it_leaves_out_on_the_console_and_in_the_log(tmp_path):
    for name in "ab":
        make_folder(tmp_path / name, ["x", "y"])
    (tmp_path / "a" / "x" / "b\x1b[2Jad.png").write_bytes(b"no image")
    words = ["run", "folders", "--data", str(tmp_path / "a"), "--data", str(tmp_path / "b"), "--method", "ord-ft"]
    words += ["--net", "mlp", "--hidden", "8", "--set", "epochs=1", "--out", str(tmp_path / "out")]
    answer = ask(*words)
    assert answer.code == 0, answer
    said = r"a: 1 image cannot be read and is left out: x/b\x1b[2Jad.png (it is no image of a known format)"
    assert said in answer.out.replace("\n", " ")
    assert said in (tmp_path / "out" / "log.txt").read_text()
