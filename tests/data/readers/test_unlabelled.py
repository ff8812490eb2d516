"""Input to answer about: files, folders, patterns and standard input."""

import io
import os

import pytest

from ucb.data.readers import open_unlabelled

from .files import everything, whys, write

LIKE = (1, 10, 12)


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png", "in/c.png", "in/deep/d.png", "in/.hidden.png", "[1].png"):
        write(tmp_path / name)
    (tmp_path / "in" / "notes.txt").write_text("words")
    return tmp_path


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (["a.png"], ["a.png"]),
        (["b.png", "a.png", "b.png", "./a.png"], ["b.png", "a.png"]),
        (["in"], ["in/c.png", "in/deep/d.png"]),
        (["in/"], ["in/c.png", "in/deep/d.png"]),
        (["?.png"], ["a.png", "b.png"]),
        (["[1].png"], ["[1].png"]),
        (["[ab].png"], ["a.png", "b.png"]),
        (["in/*"], ["in/c.png", "in/deep/d.png"]),
        (["in/**"], ["in/c.png", "in/deep/d.png"]),
        (["**/d.png"], ["in/deep/d.png"]),
        (["**/*.png"], ["[1].png", "a.png", "b.png", "in/c.png", "in/deep/d.png"]),
        (["**/**/*.png"], ["[1].png", "a.png", "b.png", "in/c.png", "in/deep/d.png"]),
        (["*/deep/*.png", "a.png"], ["in/deep/d.png", "a.png"]),
        (["*/*/*"], ["in/deep/d.png"]),
    ],
)
def test_what_inputs_stand_for(pictures, inputs, names):
    examples = open_unlabelled(inputs, LIKE)
    assert examples.names == names
    assert examples.labels is None
    assert examples.shape == LIKE


def test_absolute_patterns(pictures):
    assert open_unlabelled([f"{pictures}/in/**/*.png"], LIKE).names == [
        f"{pictures}/in/c.png",
        f"{pictures}/in/deep/d.png",
    ]


def test_standard_input(pictures, monkeypatch):
    lines = "a.png\r\n\nin\nb.png"
    expected = ["a.png", "in/c.png", "in/deep/d.png", "b.png"]
    assert open_unlabelled(["-"], LIKE, stdin=io.StringIO(lines)).names == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert open_unlabelled(["-"], LIKE).names == expected


def test_paths_on_standard_input_that_are_not_there_are_left_out(pictures):
    examples = open_unlabelled(["-", "b.png"], LIKE, stdin=["none.png\n", "a.png\n", "*.gif\n"])
    assert examples.names == ["a.png", "b.png"]
    assert whys(examples) == {"none.png": "there is no such file", "*.gif": "nothing fits the pattern"}
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder gone\.png"):
        open_unlabelled(["-", "gone.png"], LIKE, stdin=["none.png\n"])


def test_a_file_that_is_named_is_tried_whatever_it_is_called(pictures):
    write(pictures / "odd.dat", format="PNG")
    (pictures / "words.dat").write_text("no image")
    examples = open_unlabelled(["odd.dat", "words.dat"], LIKE)
    assert everything(examples)[0] == [0]
    assert whys(examples) == {"words.dat": "it is no image of a known format"}


def test_others_are_counted(pictures):
    assert open_unlabelled(["in"], LIKE).remarks == ["1 file that is no image is left out"]


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (["a.png", "none.png"], "there is no file or folder none.png"),
        (
            ["none.png", "neither.png"],
            r"no file or folder none\.png \(and 1 more of the inputs cannot be found\)",
        ),
        (["*.gif"], r"nothing fits the pattern \*\.gif"),
    ],
)
def test_missing_files(pictures, inputs, why):
    with pytest.raises(FileNotFoundError, match=why):
        open_unlabelled(inputs, LIKE)


def test_no_images_at_all(pictures):
    (pictures / "empty").mkdir()
    with pytest.raises(ValueError, match="the input holds no images"):
        open_unlabelled(["empty"], LIKE)
    with pytest.raises(ValueError, match="the input holds no images"):
        open_unlabelled([], LIKE)
    with pytest.raises(ValueError, match="the model learnt rows of 4: give one file"):
        open_unlabelled(["a.png"], (4,))


def test_patterns_and_folders_survive_links_in_circles(pictures):
    for number in range(12):
        (pictures / "in" / f"loop{number}").symlink_to(pictures)
    (pictures / "in" / "broken.png").symlink_to("nowhere")
    assert "in/deep/d.png" in open_unlabelled(["**/*.png"], LIKE).names
    assert sum(name.endswith("d.png") for name in open_unlabelled(["in"], LIKE).names) == 1
    assert "in/broken.png" in whys(open_unlabelled(["in"], LIKE))


def test_a_pipe_is_not_waited_for(pictures):
    os.mkfifo("pipe.png")
    examples = open_unlabelled(["a.png", "pipe.png"], LIKE)
    assert examples.names == ["a.png"]
    assert list(whys(examples)) == ["pipe.png"]


def test_accents_in_patterns_match_in_either_form(pictures):
    write(pictures / "cafe\u0301.png")
    assert open_unlabelled(["caf\u00e9*"], LIKE).names == ["cafe\u0301.png"]
