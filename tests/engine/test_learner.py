import json

import pytest
import torch

from tests.streams import tiny_stream
from ucb.engine import Learner, Schedule, Training, checkpoint
from ucb.nets import mlp
from ucb.stream import Scenario

TRAINING = Training(Schedule(epochs=4), batch_size=32)


def learner(stream, seed=0, **settings):
    torch.manual_seed(seed)
    return Learner(mlp((8,), stream.head_sizes, [16]), stream, "ucb", training=TRAINING, lr=0.3, **settings)


def test_learn_predict_save_and_load(tmp_path):
    stream = tiny_stream()
    whole, cut = learner(stream), learner(stream)
    for task in stream.tasks:
        row = whole.learn(task)
    assert len(row) == 3
    assert row[0].accuracy > 80
    x, y = next(iter(stream.tasks[0].test.batches(torch.arange(300), 300, torch.device("cpu"))))
    said = whole.predict(x, task=0)
    assert float((said.label == y).float().mean()) > 0.8
    cut.learn(stream.tasks[0])
    cut.save(tmp_path / "model.safetensors")
    fresh = learner(stream, seed=9)
    fresh.load(tmp_path / "model.safetensors")
    for task in stream.tasks[1:]:
        fresh.learn(task)
    assert torch.equal(fresh.predict(x, task=1).probabilities, whole.predict(x, task=1).probabilities)


def test_a_hidden_task_need_not_be_named():
    stream = tiny_stream(scenario=Scenario("one", task_known=False))
    made = learner(stream)
    made.learn(stream.tasks[0])
    assert made.predict(torch.randn(5, 8)).probabilities.shape == (5, 6)


def test_mistakes_are_told(tmp_path):
    stream = tiny_stream()
    made = learner(stream)
    with pytest.raises(ValueError, match="next is 'direction 0'"):
        made.learn(stream.tasks[1])
    with pytest.raises(ValueError, match="say its index"):
        made.predict(torch.randn(5, 8))
    made.save(tmp_path / "model")
    with pytest.raises(ValueError, match="samples was None and is 3"):
        learner(stream, samples=3).load(tmp_path / "model")
    with pytest.raises(ValueError, match="did you mean ucb"):
        Learner(mlp((8,), stream.head_sizes), stream, "ucbb")
    with pytest.raises(TypeError, match=r"Linear has none: give it HeadedNet\("):
        Learner(torch.nn.Linear(8, 2), stream)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of a learner that has learnt nothing yet, and what it is told from."""
    path, stream = tmp_path_factory.mktemp("learner") / "model", tiny_stream()
    learner(stream).save(path)
    return path.read_bytes(), stream


def refusal(data, stream, path):
    path.write_bytes(data)
    with pytest.raises(OSError, match="damaged") as raised:
        learner(stream).load(path)
    return str(raised.value)


def header_of(data):
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def with_header(data, header):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + int.from_bytes(data[:8], "little") :]


@pytest.mark.parametrize("content", [b"", b"dear", b"{}", b"x" * 5000, None], ids=["empty", "text", "{}", "x", "cut"])
def test_what_is_no_learner_is_named(saved, tmp_path, content):
    data, stream = saved
    path = tmp_path / "model"
    said = refusal(data[: len(data) // 2] if content is None else content, stream, path)
    assert said == f"{path} is damaged, or no learner's file"


def test_a_file_of_another_kind_is_named(saved, tmp_path):
    path = tmp_path / "model"
    assert str(path) in refusal(checkpoint.pack({"weights": torch.ones(2)}), saved[1], path)
    assert str(path) in refusal(checkpoint.pack([1, 2]), saved[1], path)


def test_a_changed_bit_is_found_wherever_it_is(saved, tmp_path):
    data, stream = saved
    path, first = tmp_path / "model", data.index(b"{")
    numbers = 8 + int.from_bytes(data[:8], "little")
    places = [3, first, data.index(b"progress"), data.index(b"F32"), numbers, (numbers + len(data)) // 2, len(data) - 1]
    for place in [*places, data.index(header_of(data)["__metadata__"]["sha256"].encode())]:
        changed = bytearray(data)
        changed[place] ^= 1
        assert refusal(bytes(changed), stream, path) == f"{path} is damaged, or no learner's file", place


def test_what_was_saved_before_files_held_their_hash_is_loaded(saved, tmp_path):
    data, stream = saved
    header = header_of(data)
    del header["__metadata__"]["sha256"]
    (tmp_path / "model").write_bytes(with_header(data, header))
    made, like = learner(stream, seed=9), learner(stream)
    made.load(tmp_path / "model")
    ours, theirs = made.run.method.net.state_dict(), like.run.method.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_file_of_another_version_is_named(saved, tmp_path):
    data, stream = saved
    header = header_of(data)
    header["__metadata__"] = {"format": "2", "state": header["__metadata__"]["state"]}
    (tmp_path / "model").write_bytes(with_header(data, header))
    with pytest.raises(ValueError, match="model: the checkpoint has format 2, and this version reads format 1"):
        learner(stream).load(tmp_path / "model")


@pytest.mark.parametrize("task", [3, 99, -1])
def test_a_task_that_the_stream_does_not_have_is_told(task):
    made = learner(tiny_stream())
    with pytest.raises(ValueError, match=rf"no task {task}: .* are 0 \('direction 0'\) to 2 \('direction 2'\)"):
        made.predict(torch.randn(5, 8), task)
