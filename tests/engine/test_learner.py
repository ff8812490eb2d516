import copy
import json
from pathlib import Path

import pytest
import torch

from ucb.data.streams import Scenario
from ucb.engine import Learner, Observer, Schedule, Training, checkpoint
from ucb.engine.result import evaluate
from ucb.nets import mlp
from ucb.testing import tiny_stream

TRAINING = Training(Schedule(epochs=4), batch_size=32)


def learner(stream, seed=0, **settings):
    torch.manual_seed(seed)
    return Learner(mlp((8,), stream.head_sizes, [16]), stream, "ucb", training=TRAINING, lr=0.3, **settings)


def load(path, stream, seed=9, **settings):
    torch.manual_seed(seed)
    net = mlp((8,), stream.head_sizes, [16])
    return Learner.load(path, net, stream, "ucb", training=TRAINING, lr=0.3, **settings)


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
    fresh = load(tmp_path / "model.safetensors", stream)
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
        load(tmp_path / "model", stream, samples=3)
    with pytest.raises(ValueError, match="did you mean ucb"):
        Learner(mlp((8,), stream.head_sizes), stream, "ucbb")
    with pytest.raises(TypeError, match=r"needs a torch.nn.Module to learn with, not a NoneType"):
        Learner(None, stream)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of a learner that has learnt nothing yet, and what it is told from."""
    path, stream = tmp_path_factory.mktemp("learner") / "model", tiny_stream()
    learner(stream).save(path)
    return path.read_bytes(), stream


def refusal(data, stream, path):
    path.write_bytes(data)
    with pytest.raises(OSError, match="damaged") as raised:
        load(path, stream)
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
    made, like = load(tmp_path / "model", stream), learner(stream)
    ours, theirs = made.run.method.net.state_dict(), like.run.method.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_file_of_another_version_is_named(saved, tmp_path):
    data, stream = saved
    header = header_of(data)
    header["__metadata__"] = {"format": "3"}
    (tmp_path / "model").write_bytes(with_header(data, header))
    with pytest.raises(ValueError, match="model: the checkpoint has format 3, and this version reads up to 2"):
        load(tmp_path / "model", stream)


def test_what_was_saved_in_the_first_format_is_loaded_and_goes_on():
    """The file was written when every row had all its figures, and all sigma of all heads, as text."""
    stream = tiny_stream()
    torch.manual_seed(9)
    path, net = Path(__file__).with_name("files") / "learner-of-format-1.safetensors", mlp((8,), stream.head_sizes, [2])
    made = Learner.load(path, net, stream, "ucb", training=TRAINING, lr=0.3)
    at = made.run.progress
    assert (at.rows, at.before) == ([[91.0], [93.66666666666667, 69.66666666666667]], [52.0, 53.0])
    assert [judged.nll for judged in at.metrics_first] == [0.31024491786956787, 0.6192607283592224]
    assert [judged.nll for judged in at.metrics_last] == [0.286734014749527, 0.6192607283592224]
    assert sum(count for bins in at.bins for count, _, _ in bins) == 600
    assert [len(moved) for moved in at.sigma] == [8, 8]
    again = evaluate(made.run.method, stream, 0, TRAINING.eval_samples, made.run.device, (0, 1))
    assert again.nll == pytest.approx(0.286734014749527, rel=1e-4)
    assert len(made.learn(stream.tasks[2])) == 3


def test_the_best_weights_may_be_those_of_all_heads():
    """Earlier versions kept the heads at rest in them, too."""
    stream = tiny_stream()
    whole, fresh = learner(stream).run, learner(stream, seed=9).run
    whole.learn_task()

    class KeepAt(Observer):
        state = None

        def epoch_ended(self, epoch):
            if epoch.epoch == 2:
                KeepAt.state = copy.deepcopy(whole.state_dict())

    whole.observer = KeepAt()
    whole.learn_task()
    best = KeepAt.state["best"]
    assert {name.split(".")[1] for name in best["net"] if name.startswith("heads.")} == {"1"}, "others cannot change"
    best["net"] = {**KeepAt.state["method"]["net"], **best["net"]}
    fresh.load_state_dict(KeepAt.state)
    fresh.learn_task()
    ours, theirs = fresh.method.net.state_dict(), whole.method.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("task", [3, 99, -1])
def test_a_task_that_the_stream_does_not_have_is_told(task):
    made = learner(tiny_stream())
    with pytest.raises(ValueError, match=rf"no task {task}: .* are 0 \('direction 0'\) to 2 \('direction 2'\)"):
        made.predict(torch.randn(5, 8), task)
