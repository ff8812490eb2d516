"""Folders of class folders: which images are found, and of which class."""

import os
import shlex
import unicodedata

import pytest
import torch

from ucb.data.readers import ExampleReader, fingerprint, open_labelled

from .files import drawn, everything, whys, write


def test_classes_are_folders_and_images_lie_at_any_depth(tmp_path):
    write(tmp_path / "cat" / "b.png", drawn(1))
    write(tmp_path / "cat" / "deep" / "deeper" / "a.PNG", drawn(2))
    write(tmp_path / "dog" / "c.jpg", drawn(3))
    write(tmp_path / "dog" / "d.tiff", drawn(4))
    examples = open_labelled(tmp_path)
    assert isinstance(examples, ExampleReader)
    assert examples.names == ["cat/b.png", "cat/deep/deeper/a.PNG", "dog/c.jpg", "dog/d.tiff"]
    assert examples.labels == ["cat", "cat", "dog", "dog"]
    assert examples.columns is None
    assert examples.shape == (1, 10, 12)
    assert (examples.skipped, examples.remarks) == ([], [])
    positions, x = everything(examples, 3)
    assert positions == [0, 1, 2, 3]
    assert x.dtype == torch.uint8
    assert torch.equal(x[0, 0], torch.tensor(list(drawn(1).tobytes()), dtype=torch.uint8).view(10, 12))


def test_batches_follow_the_indices(tmp_path):
    for number in range(5):
        write(tmp_path / "a" / f"{number}.png", drawn(number))
    examples = open_labelled(tmp_path)
    _, x = everything(examples)
    (first, second) = examples.batches(torch.tensor([4, 0, 0, 2]), 3)
    assert first[0].tolist() == [4, 0, 0]
    assert torch.equal(torch.cat([first[1], second[1]]), x[[4, 0, 0, 2]])
    assert list(examples.batches(torch.tensor([], dtype=torch.int64), 3)) == []
    with pytest.raises(ValueError, match="size must be at least 1"):
        list(examples.batches(torch.arange(2), 0))


def test_hidden_files_are_not_seen_and_others_are_counted(tmp_path):
    for name in ("a/1.png", "a/2.png", "a/.3.png", "a/.git/4.png", ".b/5.png", "__MACOSX/a/6.png"):
        write(tmp_path / name)
    for name in ("a/notes.txt", "a/Thumbs.db", "README"):
        (tmp_path / name).write_text("words")
    examples = open_labelled(tmp_path)
    assert examples.names == ["a/1.png", "a/2.png"]
    assert examples.remarks == ["3 files that are no images are left out"]


def test_one_class_is_fine_and_rare_ones_are_remarked(tmp_path):
    write(tmp_path / "only" / "1.png")
    (tmp_path / "nothing").mkdir()
    write(tmp_path / "loose.png")
    remarks = open_labelled(tmp_path).remarks
    assert remarks == [
        "1 image lies in no class folder and is left out",
        "class folder 'nothing' holds no images",
        "class 'only' has one example",
    ]


def test_names_in_any_script(tmp_path):
    composed, separate = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    assert composed != separate
    for folder in (composed, separate, "猫", "кошка", "قطة", "🐈"):
        write(tmp_path / folder / "ß é.png")
        write(tmp_path / folder / "2.png")
    examples = open_labelled(tmp_path)
    assert set(examples.labels) == {composed, "猫", "кошка", "قطة", "🐈"}
    assert examples.labels.count(composed) == 4
    assert len(set(examples.names)) == 12


def test_one_example_in_each_form_of_a_name_makes_two(tmp_path):
    for form in ("NFC", "NFD"):
        write(tmp_path / unicodedata.normalize(form, "über") / "1.png")
    assert open_labelled(tmp_path).remarks == []


def test_a_name_that_is_no_text(tmp_path):
    folder = os.fsdecode(b"caf\xe9")
    try:
        write(tmp_path / folder / "1.png")
    except OSError:
        pytest.skip("this disk takes text only")
    examples = open_labelled(tmp_path)
    assert examples.labels == ["caf\\xe9"]
    assert examples.names == ["caf\\xe9/1.png"]
    assert everything(examples)[0] == [0]
    fingerprint(examples)


def test_links_in_circles_do_no_harm(tmp_path):
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    write(root / "a" / "1.png")
    write(root / "b" / "2.png")
    write(elsewhere / "3.png")
    write(tmp_path / "far" / "4.png")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "higher").symlink_to(tmp_path)
    (root / "a" / "self").symlink_to(root / "a")
    (root / "a" / "sibling").symlink_to(root / "b")
    (root / "a" / "more").symlink_to(elsewhere)
    (root / "a" / "more again").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root / "a")
    (root / "a" / "circle.png").symlink_to("circle.png")
    (root / "a" / "broken.png").symlink_to("nowhere.png")
    (root / "c").symlink_to(tmp_path / "far")
    examples = open_labelled(root)
    assert list(zip(examples.names, examples.labels, strict=True)) == [
        ("a/1.png", "a"),
        ("a/more/3.png", "a"),
        ("b/2.png", "b"),
        ("c/4.png", "c"),
    ]
    assert set(whys(examples)) == {"a/circle.png", "a/broken.png"}


def test_a_pipe_is_not_waited_for(tmp_path):
    write(tmp_path / "a" / "1.png")
    os.mkfifo(tmp_path / "a" / "2.png")
    examples = open_labelled(tmp_path)
    assert examples.names == ["a/1.png"]
    assert whys(examples) == {"a/2.png": "it is a broken link or no plain file"}


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "holds no class folders: expected is a folder for each class"),
        (["1.png", "2.png"], "holds images, but no class folders: expected is a folder for each class"),
        (["a/notes.txt"], "its class folders hold no images"),
        (["train/a/1.png", "test/a/2.png"], "holds test and train, which are no classes"),
    ],
)
def test_other_folders_are_answered_with_what_is_expected(tmp_path, files, why):
    for name in files:
        write(tmp_path / name, format="PNG")
    with pytest.raises(ValueError, match=why):
        open_labelled(tmp_path)


def test_a_vehicle_called_train_is_a_class(tmp_path):
    write(tmp_path / "train" / "1.png")
    write(tmp_path / "bus" / "1.png")
    assert set(open_labelled(tmp_path).labels) == {"train", "bus"}


def test_a_missing_folder_and_a_file_of_another_kind(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        open_labelled(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"neither a folder of class folders nor a file \.csv"):
        open_labelled(write(tmp_path / "1.png"))
    write(tmp_path / "a" / "1.png")
    with pytest.raises(ValueError, match="is a folder of images, and the model learnt rows of 4"):
        open_labelled(tmp_path, (4,))
    with pytest.raises(ValueError, match="is no table: it has no column 'sort'"):
        open_labelled(tmp_path, label="sort")


def test_what_cannot_be_read_is_left_out_and_listed_once(tmp_path):
    good = write(tmp_path / "a" / "good.png", drawn(1, (60, 60)))
    whole = good.read_bytes()
    (tmp_path / "a" / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "a" / "empty.png").write_bytes(b"")
    (tmp_path / "a" / "words.jpg").write_text("no image")
    write(tmp_path / "a" / "later.png")
    examples = open_labelled(tmp_path)
    assert examples.skipped == []
    (tmp_path / "a" / "later.png").unlink()
    for _ in range(2):
        positions, x = everything(examples)
        assert [examples.names[place] for place in positions] == ["a/good.png"]
        assert len(x) == 1
        assert whys(examples) == {
            "a/half.png": "it is truncated",
            "a/empty.png": "it is no image of a known format",
            "a/words.jpg": "it is no image of a known format",
            "a/later.png": "the file is gone",
        }
        assert len(examples.skipped) == 4


def test_a_folder_with_nothing_readable(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_text("no image")
    with pytest.raises(ValueError, match="none of its images can be read"):
        open_labelled(tmp_path)
    examples = open_labelled(tmp_path, (1, 8, 8))
    assert everything(examples) == ([], None)


def test_fingerprint_changes_with_the_data_and_with_nothing_else(tmp_path):
    root = tmp_path / "data"
    paths = [write(root / "a" / f"{number}.png", drawn(number)) for number in range(3)]
    examples = open_labelled(root)
    first = fingerprint(examples)
    everything(examples)
    assert fingerprint(examples) == first == fingerprint(open_labelled(root))
    moved = root.rename(tmp_path / "moved")
    assert fingerprint(open_labelled(moved)) == first
    moved.rename(root)
    seen = {first}
    changed = paths[0].stat()
    os.utime(paths[0], ns=(changed.st_atime_ns, changed.st_mtime_ns + 1))
    seen.add(fingerprint(open_labelled(root)))
    write(root / "a" / "3.png")
    seen.add(fingerprint(open_labelled(root)))
    (root / "a").rename(root / "b")
    seen.add(fingerprint(open_labelled(root)))
    seen.add(fingerprint(open_labelled(root, (1, 9, 9))))
    assert len(seen) == 5


def nested(folder, *names):
    """A folder in which each of these is an image's path without its ending."""
    for name in names:
        write(folder / f"{name}.png")
    return open_labelled(folder)


@pytest.mark.parametrize(
    ("names", "classes", "inner", "meant"),
    [
        (["2023/cat/1", "2023/dog/2", "2024/cat/3"], "'2023', '2024'", "'cat', 'dog'", "2023"),
        (["a b/cat/1", "a b/dog/old/2"], "'a b'", "'cat', 'dog'", "a b"),
        (["train/cat/1"], "'train'", "'cat'", "train"),
    ],
)
def test_folders_that_look_like_classes_but_lie_too_deep_are_warned_about(tmp_path, names, classes, inner, meant):
    (said,) = nested(tmp_path, *names).warnings
    command = f"`ucb learn MODEL {shlex.quote(f'{tmp_path}/{meant}')}`"
    assert said == (
        f"the classes are the folders {classes} of {tmp_path}, not those inside them, {inner}: "
        f"if these are meant, the command is {command}"
    )


@pytest.mark.parametrize(
    "names",
    [
        ["cat/1", "dog/2"],
        ["cat/monday/1", "cat/tuesday/2", "dog/3"],
        ["cat/images/1", "dog/images/2"],
        ["cat/monday/1"],
    ],
)
def test_usual_folders_are_not_warned_about(tmp_path, names):
    assert nested(tmp_path, *names).warnings == []
    assert "`" not in str(nested(tmp_path, *names).remarks)


def test_train_beside_test_is_refused_with_what_to_give(tmp_path):
    with pytest.raises(ValueError, match=f"which are no classes: give one of them, as in {tmp_path}/train"):
        nested(tmp_path, "train/cat/1", "test/cat/2")
