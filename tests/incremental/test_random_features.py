"""Random features on trunks that come ready: drawn from a seed, never stored, the same bits everywhere."""

import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from tests.incremental.data import blobs, digits
from tests.incremental.test_pretrained import joined, photographs, same_head, small_net
from tests.support import refused, succeed
from ucb.incremental import DamagedModelError, Model, checked_file, inputs, learn, random_features
from ucb.incremental.frozen import FrozenTrunkModel
from ucb.incremental.pretrained import ModuleTrunk
from ucb.incremental.random_features import RandomFeatures, draw_directions
from ucb.observer import Observer


def rows_net(seed=0):
    """A trunk for rows of six numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 20), nn.Tanh())


def test_directions_are_those_of_the_seed_on_every_machine():
    """The bits of a few entries by whole numbers alone, and the hash of many as it was when this was written."""
    found = draw_directions(3, 5, 7)
    draws = np.random.PCG64(random_features.derive_seed("random features", 7)).random_raw(15).tolist()
    wanted = [sum((draw >> 16 * place) & 65535 for place in range(4)) - 2 * 65535 for draw in draws]
    spread = (4 * (2**32 - 1) / 12 * 3) ** 0.5
    assert found.tolist() == np.divide(wanted, spread).reshape(3, 5).tolist()
    digest = hashlib.sha256(draw_directions(50, 40, 0).tobytes()).hexdigest()
    assert digest == "ba012bce88f9a3d2c334cf43c3338708f8afc82cc49223fd7d8d6ac0de8c5919"


def test_directions_have_the_moments_of_a_normal_variable():
    found = draw_directions(400, 500, 1) * 20
    error = 1 / len(found.ravel()) ** 0.5
    assert abs(found.mean()) < 4 * error
    assert abs(found.var() - 1) < 4 * error * 2**0.5
    assert abs((found**4).mean() - (3 - 0.3)) < 0.05  # four uniform numbers have an excess kurtosis of -1.2 / 4
    assert np.abs(np.corrcoef(found.T[:40]) - np.eye(40)).max() < 5 / 400**0.5
    assert not np.array_equal(draw_directions(400, 500, 2) * 20, found)


def test_features_are_positive_parts_of_combinations():
    base = ModuleTrunk(small_net(), (3, 32, 32))
    trunk = RandomFeatures(base, 300, 5)
    x = photographs("ab", 4)[0]
    z = base(x)
    wanted = np.maximum(z.double().numpy() @ draw_directions(base.features, 300, 5), 0).astype(np.float32) / 2
    found = trunk(x).numpy()
    assert np.array_equal(found[:, : base.features], z.numpy())
    found = found[:, base.features :]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    assert trunk.features == 300 + base.features
    assert 0.4 < (found > 0).mean() < 0.6
    ratio = np.square(found).mean() / (z.square().mean() / 8)
    assert 0.7 < ratio < 1.4, "about an eighth of the trunk's own mean square, whatever the trunk"


def test_an_example_shows_the_same_bits_in_any_batch():
    """Products of rows depend on the place in a batch in their last bits; once they are rounded nothing is left."""
    trunk, x = RandomFeatures(ModuleTrunk(rows_net(), (6,)), 700, 0), torch.randn(400, 6)
    show = FrozenTrunkModel(trunk, 1).features
    whole = show(x)
    assert torch.equal(torch.cat([show(each[None]) for each in x[:20]]), whole[:20])
    order = torch.randperm(len(x))
    assert torch.equal(show(x[order]), whole[order])
    assert torch.equal(show(x[3:]), whole[3:])
    assert trunk(x[:0]).shape == (0, 720)
    assert not trunk(x).is_inference()


def test_building_draws_no_random_numbers():
    before = torch.get_rng_state()
    RandomFeatures(ModuleTrunk(nn.Flatten(), (3, 8, 8)), 10, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_waves_one_by_one_are_one_fit_and_no_wave_enters():
    waves = [photographs("ab", 12), photographs("bc", 12, 1), photographs("d", 12, 2)]
    one, other = (Model(trunk=small_net(), features=90) for _ in range(2))
    for wave in waves:
        one.learn(wave)
    other.learn(joined(*waves))
    assert len(one.learner.head.gram) == 91 + 48
    same_head(one, other)
    x = waves[1][0]
    raw = RandomFeatures(ModuleTrunk(small_net(), x.shape[1:]), 90, 0)(x)
    torch.testing.assert_close(one.learner.features(x), raw, rtol=0, atol=2.0**-one.learner.grid)


def test_they_tell_apart_what_the_trunk_alone_does_not():
    """Classes by the sign of a product: no linear head on the numbers themselves knows it."""
    x = torch.randn(1200, 3, generator=torch.Generator().manual_seed(0))
    labels = ["same" if same else "other" for same in (x[:, 0] * x[:, 1] > 0)]
    right = {}
    for features in None, 200:
        model = Model(trunk=nn.Identity(), features=features)
        model.learn((x[:800], labels[:800]))
        said = [row["label"] for row in model.predict(x[800:])]
        right[features] = np.mean([a == b for a, b in zip(said, labels[800:], strict=True)])
    assert right[None] < 0.65
    assert right[200] > 0.9


def test_a_file_holds_the_seed_and_no_directions(tmp_path):
    model, (x, labels) = Model(trunk=rows_net(), features=400, seed=3), blobs("ab", 10)
    model.learn((x, labels))
    model.save(tmp_path / "m.ucb")
    features = 400 + 20
    sums = 8 * ((features + 1) * (features + 2) // 2 + (features + 1) * 2)
    assert sums < (tmp_path / "m.ucb").stat().st_size < sums + 12_000
    opened = Model.open(tmp_path / "m.ucb", trunk=rows_net())
    assert opened.features == 400
    assert opened.predict(x) == model.predict(x)
    opened.learn(blobs("c", 10))
    assert len(opened.learner.head.gram) == features + 1
    with pytest.raises(OSError, match="is not the one that the model learnt with"):
        Model.open(tmp_path / "m.ucb", trunk=rows_net(1))
    with pytest.raises(ValueError, match="cannot be put into the model's file"):
        model.save(tmp_path / "m.ucb", embed=True)
    assert "400 random features" in model.show()["layers"][0]["note"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda facts: facts.update(number=10**9), r"1,000,000,000 random features would make .* larger than 150 MB"),
        (lambda facts: facts.update(number=0), "way.trunk.number is no whole number"),
        (lambda facts: facts.update(number=41), r"the tensor head.gram is .* not torch.float64 of \(1953,\)"),
        (lambda facts: facts.update(seed=-1), "way.trunk.seed is no whole number"),
        (lambda facts: facts.update(more=1), "way.trunk.'more' is unknown"),
        (lambda facts: facts.update(of=dict(facts)), "way.trunk.of.kind is none of"),
        (lambda facts: facts.pop("of"), "way.trunk.of is missing"),
    ],
)
def test_damaged_facts_are_named(tmp_path, change, why):
    model = Model(trunk=rows_net(), features=40)
    model.learn(blobs("ab", 10))
    model.save(tmp_path / "m.ucb")
    values, tensors = checked_file.read_content(tmp_path / "m.ucb")
    change(values["way"]["trunk"])
    (tmp_path / "m.ucb").write_bytes(checked_file.pack(values, tensors))
    with pytest.raises(DamagedModelError, match=why):
        Model.open(tmp_path / "m.ucb", trunk=rows_net())


def test_the_file_stays_under_150_megabytes():
    with pytest.raises(ValueError, match=r"^6,000 random features .* file larger than 150 MB: 5,914 are the most$"):
        Model(trunk=rows_net(), features=6000)
    Model(trunk=rows_net(), features=5914)
    size = 5915 * 5916 // 2 * 8
    assert size <= random_features.LARGEST_SUMS < 5916 * 5917 // 2 * 8
    with pytest.raises(ValueError, match=r"5,894 are the most"):
        RandomFeatures(ModuleTrunk(rows_net(), (6,)), 5895, 0)


def test_what_they_do_not_go_with(small):
    with pytest.raises(ValueError, match=r"go with a trunk that comes ready, not with one that the first wave makes"):
        Model(trunk="own", features=10)
    model = Model(features=10)
    with pytest.raises(ValueError, match=r"go with a trunk that comes ready"):
        model.learn(digits([0, 1], 9))
    with pytest.raises(ValueError, match=r"^random features go with the method fixed; ucb-ng trains its own net$"):
        Model("ucb-ng", features=10)
    for wrong in -1, 2.5, True:
        with pytest.raises(ValueError, match="features is no whole number from 0"):
            Model(trunk=rows_net(), features=wrong)


def test_an_interrupted_wave_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PORTION", 16)
    notes = []

    class Stopping(Observer):
        def moved(self, done, total):
            if done >= 48:
                raise KeyboardInterrupt

    class Listening(Observer):
        def noted(self, text):
            notes.append(text)

    how = {"trunk": rows_net(), "pause": 0.0}
    learn(tmp_path / "whole.ucb", blobs("ab", 60), features=50, **how)
    for features in 50, 60:
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path / "m.ucb", blobs("ab", 60), features=features, observer=Stopping(), **how)
        learn(tmp_path / "m.ucb", blobs("ab", 60), features=50, observer=Listening(), **how)
        assert (tmp_path / "m.ucb").read_bytes() == (tmp_path / "whole.ucb").read_bytes()
        (tmp_path / "m.ucb").unlink()
    assert notes[0] == "going on from m.ucb.learning"
    assert "is of other settings: learning starts anew" in notes[1]
    learn(tmp_path / "m.ucb", blobs("ab", 60), features=50, **how)
    with pytest.raises(ValueError, match=r"m.ucb has 50 random features, not 60: leave --features out$"):
        learn(tmp_path / "m.ucb", blobs("c", 60), features=60, **how)


def test_a_first_wave_of_a_thousand_photographs_begins_with_some():
    assert [random_features.choose_number(examples, 1280) for examples in (40, 999, 1000, 50_000)] == [0, 0, 4000, 4000]
    assert random_features.choose_number(5000, 4096) == 5914 - 4096, "what a file has room for"
    assert random_features.choose_number(5000, 9000) == 0


def test_the_estimator_takes_them():
    base = pytest.importorskip("sklearn.base")
    from ucb import IncrementalClassifier

    x, labels = photographs("ab", 10)
    estimator = base.clone(IncrementalClassifier(trunk=small_net(), features=60)).fit(x.numpy(), labels)
    assert estimator.model_.learner.trunk.features == 60 + 48
    assert estimator.score(x.numpy(), labels) == 1.0


def test_the_command_refuses_them_without_a_trunk(tmp_path, small):
    x, labels = blobs("ab", 12)
    np.savez(tmp_path / "w.npz", x=x.numpy(), y=np.array(labels))
    why = refused("learn", tmp_path / "m.ucb", tmp_path / "w.npz", "--features", 50)
    assert "random features go with a trunk that comes ready" in why
    succeed("learn", tmp_path / "m.ucb", tmp_path / "w.npz")
    assert "has no random features, not 50" in refused(
        "learn", tmp_path / "m.ucb", tmp_path / "w.npz", "--features", 50
    )
