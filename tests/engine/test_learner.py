import pytest
import torch

from tests.streams import tiny_stream
from ucb.engine import Learner, Schedule, Training
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
