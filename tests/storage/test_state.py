import math
import os

import pytest
import torch

from tests.engine.runs import small_run
from ucb.engine import checkpoint
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.storage import StateCopy, flatten, move_state, unflatten

STATE = {
    "weights": {"a.b": torch.randn(3, 2), "half": torch.randn(2).half(), "bits": torch.tensor([True, False])},
    "optimizer": {"state": {0: {"scale": torch.rand(2)}, 7: {}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
    "numbers": [1, 2.5, 1e-300, math.pi, 2**62, True, None, "word", math.inf, -math.inf],
    "pair": (1, (2, torch.arange(3))),
    "empty": [{}, [], ()],
}


def same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b


def test_flattening_is_undone_exactly():
    same(unflatten(*flatten(STATE)), STATE)
    back = unflatten(*flatten({"nan": math.nan}))
    assert math.isnan(back["nan"])


def test_flat_tensors_are_apart_from_any_gradient():
    weight = torch.ones(2, requires_grad=True)
    _, tensors = flatten({"leaf": weight, "result": weight * 2, "plain": torch.ones(1)})
    assert not any(tensor.requires_grad for tensor in tensors.values())
    assert tensors["/leaf"].data_ptr() == weight.data_ptr()


def test_a_copy_stands_by_itself_and_is_renewed_in_its_own_memory():
    state = {"net": {"w": torch.ones(2), "n": torch.tensor(3)}, "lr": [0.1, float("inf")], "task": None}
    copy = StateCopy(state)
    state["net"]["w"] += 1
    state["lr"][0] = 0.2
    same(copy.state, {"net": {"w": torch.ones(2), "n": torch.tensor(3)}, "lr": [0.1, float("inf")], "task": None})
    place = copy.state["net"]["w"].data_ptr()
    copy.renew(state)
    same(copy.state, state)
    assert copy.state["net"]["w"].data_ptr() == place != state["net"]["w"].data_ptr()
    state["net"] = {"w": torch.zeros(3)}  # other tensors than before
    copy.renew(state)
    same(copy.state, state)


def test_a_state_goes_to_a_device_and_a_generator_stays():
    state = {"net": {"w": torch.ones(2)}, "kept": [(torch.ones(1), 3)], "generator": torch.zeros(4), "task": None}
    found = move_state(torch.device("meta"), state)
    assert found["net"]["w"].is_meta
    assert found["kept"][0][0].is_meta
    assert found["kept"][0][1] == 3
    assert found["generator"] is state["generator"]
    assert not state["net"]["w"].is_meta


def test_what_is_no_state_is_named():
    with pytest.raises(TypeError, match=r"a state cannot hold a set \(at /a/0\)"):
        flatten({"a": [set()]})


def test_checkpoints_come_back_and_two_are_kept(tmp_path):
    checkpoints = FolderCheckpoints(tmp_path)
    assert checkpoints.load() is None
    for number in range(5):
        checkpoints.save({**STATE, "number": number})
    assert len(list(tmp_path.iterdir())) == 2
    same(checkpoints.load(), {**STATE, "number": 4})
    assert checkpoints.damaged == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "header"])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(tmp_path, damage):
    checkpoints = FolderCheckpoints(tmp_path)
    checkpoints.save({**STATE, "number": 1})
    before = checkpoints.path
    checkpoints.save({**STATE, "number": 2})
    newest = checkpoints.path
    data = bytearray(newest.read_bytes())
    if damage == "truncate":
        data = data[: len(data) // 2]
    elif damage == "empty":
        data = bytearray()
    else:
        data[len(data) // 2 if damage == "flip" else 3] ^= 1
    newest.write_bytes(data)
    assert checkpoints.load()["number"] == 1
    assert (checkpoints.path, checkpoints.damaged) == (before, [newest])
    before.write_bytes(b"")
    with pytest.raises(OSError, match=newest.name):
        checkpoints.load()


def test_a_write_that_is_cut_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch):
    checkpoints = FolderCheckpoints(tmp_path)
    checkpoints.save({"number": 1})

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save({"number": 2})
    monkeypatch.undo()
    assert checkpoints.load()["number"] == 1
    assert [p.suffix for p in tmp_path.iterdir()] == [".safetensors"]


def test_a_pickle_in_a_checkpoints_clothes_runs_nothing(tmp_path):
    """Loading reads JSON and raw numbers; a file of any other kind is damaged by its name's hash, or not parsed."""
    hostile = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    path = tmp_path / f"checkpoint-000001-{checkpoint._digest(hostile)}.safetensors"
    path.write_bytes(hostile)
    with pytest.raises(Exception):  # noqa: B017, PT011 (any refusal will do)
        FolderCheckpoints(tmp_path).load()
    assert not (tmp_path / "ran").exists()


def test_the_next_checkpoint_does_not_take_the_place_of_the_only_whole_one(tmp_path):
    run = small_run("ord-ft", tmp_path)
    run.learn()
    newest = max(tmp_path.glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    (tmp_path / "checkpoint-000001-0123456789abcdef.safetensors.part").write_bytes(b"a kill left this")
    again = small_run("ord-ft", tmp_path)
    assert again.resume()
    again.save()
    checkpoints = FolderCheckpoints(tmp_path)
    assert checkpoints.load() is not None
    assert [checkpoints.damaged, len(list(tmp_path.glob("checkpoint-*")))] == [[], 2]
    newest = max(tmp_path.glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    assert checkpoints.load() is not None
    assert checkpoints.damaged == [newest], "the one before is whole"
