"""Data that come again, as they were or slightly changed, do no harm; a wave that came before is refused."""

import json

import numpy as np
import pytest
import torch
from sklearn import datasets

from tests.incremental.data import blobs, digits
from tests.support import ask
from ucb.bayes.conjugate import ConjugateHead
from ucb.incremental import DamagedModelError, Model, learn
from ucb.incremental.checked_file import pack, read_content
from ucb.incremental.familiarity import share_learnt
from ucb.incremental.learning import Copies
from ucb.incremental.predict import predict_batch
from ucb.incremental.ridge import RIDGES, log_evidence
from ucb.incremental.waves import hash_examples, hash_wave


def table(name):
    """Rows to learn and rows to be asked about."""
    data = getattr(datasets, f"load_{name}")()
    rows = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(1))
    x, labels = torch.tensor(data.data, dtype=torch.float32)[rows], [str(data.target[row]) for row in rows]
    cut = 7 * len(rows) // 10
    return (x[:cut], labels[:cut]), (x[cut:], labels[cut:])


def images():
    return digits(range(4), 50), digits(range(4), 100, "test")


def changed(wave, share):
    """The same with noise: a share of a column's spread, or of white."""
    x, labels = wave
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(5))
    if x.dtype == torch.uint8:
        return (x.float() + 255 * share * noise).round().clamp(0, 255).to(torch.uint8), labels
    return x + share * x.std(0) * noise, labels


def judged(model, wave):
    """Percent right and percent unsure."""
    answers = predict_batch(model, wave[0])
    right = answers.prediction.label == model.numbers_of(wave[1])
    return [100 * float(each.double().mean()) for each in (right, answers.unsure)]


MIXES = {
    "all": lambda wave: [wave],
    "half": lambda wave: [(wave[0][::2], wave[1][::2])],
    "three times": lambda wave: [wave] * 3,
    "hardly changed": lambda wave: [changed(wave, 0.01)],
    "slightly changed": lambda wave: [changed(wave, 0.1)],
}


@pytest.mark.usefixtures("medium")
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "images"])
def test_what_comes_again_does_no_harm(data, mix):
    """By at most 1 point, or one example, fewer are right; at most twice as many, or the usual 5 %, are unsure."""
    wave, unseen = images() if data == "images" else table(data)
    model = Model()
    model.learn(wave)
    right, unsure = judged(model, unseen)
    for once_more in MIXES[mix](wave):
        model.learn(once_more, again=True)
    after, unsure_after = judged(model, unseen)
    assert after >= right - max(1.0, 100 / len(unseen[1])) - 1e-9
    assert unsure_after <= max(2 * unsure, 5.0 + 1e-9)


@pytest.mark.parametrize("mix", ["all", "half", "slightly changed"])
def test_what_comes_again_does_a_net_that_goes_on_learning_no_harm(mix):
    """As above."""
    wave, unseen = table("breast_cancer")
    model = Model("ucb-ng")
    model.learn(wave)
    right, unsure = judged(model, unseen)
    for once_more in MIXES[mix](wave):
        model.learn(once_more, again=True)
    after, unsure_after = judged(model, unseen)
    assert after >= right - 1
    assert unsure_after <= max(2 * unsure, 5.0 + 1e-9)


@pytest.mark.usefixtures("medium")
def test_copies_inside_a_first_wave_do_no_harm():
    (x, labels), unseen = table("breast_cancer")
    once, twice = Model(), Model()
    once.learn((x, labels))
    twice.learn((torch.cat([x, x]), labels * 2))
    (right, unsure), (after, unsure_after) = judged(once, unseen), judged(twice, unseen)
    assert after >= right - 1
    assert unsure_after <= max(2 * unsure, 5.0)


def test_the_evidence_of_everything_twice_is_that_of_once_at_twice_the_ridge():
    numbers = torch.Generator().manual_seed(0)
    x, target = torch.randn(30, 40, generator=numbers), torch.randint(2, (30,), generator=numbers)
    once, twice = ConjugateHead(40, 2), ConjugateHead(40, 2)
    once.add(x, target)
    for _ in range(2):
        twice.add(x, target)
    gaps = [log_evidence(once, ridge) - log_evidence(twice, 2 * ridge, 30) for ridge in RIDGES[4:]]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), abs=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_that_was_learnt_is_found(share):
    """Rows of the model itself: weights from the prior, noise, and a head that has learnt some of them."""
    numbers = torch.Generator().manual_seed(3)
    x = torch.randn(800, 300, generator=numbers, dtype=torch.float64)
    y = x @ torch.randn(300, 6, generator=numbers, dtype=torch.float64) + torch.randn(800, 6, generator=numbers) * 10
    learnt, known = x[:400], int(400 * share)
    whole = torch.linalg.inv(learnt.T @ learnt + 100 * torch.eye(300))
    weights = whole @ learnt.T @ y[:400]
    asked = slice(400 - known, 800 - known)
    v = torch.einsum("ni,ij,nj->n", x[asked], whole, x[asked])
    q = ((y[asked] - x[asked] @ weights).square() / 100).mean(1)
    usual = float(torch.einsum("ni,ij,nj->n", learnt, whole, learnt).mean())
    assert share_learnt(v, q, usual) == pytest.approx(share, abs=0.1)


def test_examples_of_classes_that_are_new_were_never_learnt():
    """What the known classes say of them is near 0, as it is of known examples of other classes."""
    numbers = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(60, 40, generator=numbers)
    model = Model(trunk=torch.nn.Identity())
    for first in range(0, 60, 10):
        own = torch.arange(first, first + 10).repeat_interleave(20)
        x = centres[own] + torch.randn(200, 40, generator=numbers)
        model.learn((x, [str(int(label)) for label in own]))
        assert model.learner.repeated == 0, first
    x = centres[own] + torch.randn(200, 40, generator=numbers)
    model.learn((x, [str(int(label)) for label in own]))
    assert model.learner.repeated == 0, "new examples of known classes"


@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
@pytest.mark.usefixtures("small")
def test_a_wave_that_was_learnt_is_refused_in_any_order_until_it_is_wanted_again(method):
    model, (x, labels) = Model(method), blobs("ab", 20)
    epochs = 1 if method == "ucb-ng" else None
    model.learn((x, labels), "monday", epochs=epochs)
    with pytest.raises(ValueError, match="learnt before, as 'monday'"):
        model.learn((x.flip(0), labels[::-1]), epochs=epochs)
    assert len(model.waves) == 1
    assert "no new evidence" in model.learn((x, labels), epochs=epochs, again=True).remarks[0]
    model.learn((x, ["b" if label == "a" else "a" for label in labels]), epochs=epochs)


@pytest.mark.usefixtures("small")
def test_the_command_refuses_and_leaves_the_file(tmp_path):
    x, labels = blobs("ab", 20)
    model, data, copy = tmp_path / "m.ucb", tmp_path / "d.npz", tmp_path / "other.npz"
    for path in data, copy:
        np.savez(path, x=x.numpy(), y=np.array(labels))
    assert ask("learn", model, data).code == 0
    before = model.read_bytes()
    answer = ask("learn", model, copy)
    assert (answer.code, answer.out) == (2, "")
    assert "--again" in answer.err
    assert model.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"m.ucb", "d.npz", "other.npz"}
    assert ask("learn", model, copy, "--again").code == 0


@pytest.mark.usefixtures("small")
def test_what_examples_are_worth_is_kept_in_the_file(tmp_path):
    model = Model()
    model.learn(digits([0, 1], 40))
    model.learn(digits([0, 1], 40), again=True)
    assert 60 < model.learner.repeated <= 80
    model.save(tmp_path / "m.ucb")
    read = Model.open(tmp_path / "m.ucb")
    assert read.learner.repeated == model.learner.repeated
    x = digits([0, 1], 5, "test")[0]
    assert read.predict(x) == model.predict(x)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("odd", [-1, 81, "1", None, True])
def test_a_number_of_repeated_examples_that_cannot_be_is_refused(tmp_path, odd):
    model = Model()
    model.learn(digits([0, 1], 40))
    model.save(tmp_path / "m.ucb")
    values, tensors = read_content(tmp_path / "m.ucb")
    assert "repeated" not in values["way"], "files from before there was such a number can be read"
    values["way"]["repeated"] = odd
    (tmp_path / "m.ucb").write_bytes(pack(values, tensors))
    with pytest.raises(DamagedModelError, match="repeated"):
        Model.open(tmp_path / "m.ucb")


@pytest.mark.parametrize("odd", [[-1.0, 0.0], [0.0, 1.0, -1.0], [0.0, "1", 0.0], None, 1.0])
def test_how_a_net_tells_learnt_examples_from_new_ones_is_kept_in_the_file_and_checked(tmp_path, odd):
    model = Model("ucb-ng")
    x, labels = blobs("ab", 40)
    model.learn((x, labels))
    model.save(tmp_path / "m.ucb")
    assert Model.open(tmp_path / "m.ucb").learner.doubt == model.learner.doubt is not None
    values, tensors = read_content(tmp_path / "m.ucb")
    values["way"].pop("doubt")
    (tmp_path / "m.ucb").write_bytes(pack(values, tensors))
    assert Model.open(tmp_path / "m.ucb").learner.doubt is None, "files from before can be read"
    values["way"]["doubt"] = odd
    (tmp_path / "m.ucb").write_bytes(pack(values, tensors))
    with pytest.raises(DamagedModelError, match="doubt"):
        Model.open(tmp_path / "m.ucb")


def test_prints_tell_content_and_class_apart_and_not_order():
    x = torch.arange(6.0).view(3, 2)
    found = hash_examples(x, ["a", "a", "b"])
    assert hash_wave(found) == hash_wave(hash_examples(x.flip(0), ["b", "a", "a"]))
    assert (
        len(
            {
                hash_wave(found),
                hash_wave(hash_examples(x, ["a", "b", "b"])),
                hash_wave(hash_examples(x + 1, ["a", "a", "b"])),
            }
        )
        == 3
    )


def test_copies_are_counted_unless_the_data_are_nothing_else():
    copies = Copies(torch.tensor([1, 2, 3, 4, 5, 6, 1]), torch.tensor([1, 7]))
    assert copies.of_held_out.tolist() == [2, 0]
    assert copies.different == pytest.approx(7 / 9)
    few = Copies(torch.tensor([1, 2] * 10), torch.tensor([1, 2]))
    assert few.of_held_out.tolist() == [0, 0]
    assert few.different == 1


@pytest.mark.usefixtures("small")
def test_a_wave_judged_wholly_wrong_is_warned_about(tmp_path):
    """Class a under another name: nobody can tell the two apart."""
    model, (x, labels) = Model(), blobs("ab", 40)
    model.learn((x, labels))
    again, _ = blobs("ab", 40, seed=1)
    renamed = ["new" if label == "a" else label for label in labels]
    many = torch.cat([x, again])
    model.learn((many, labels * 2), again=True)
    warnings = model.learn((again[:40], renamed[:40])).warnings
    assert any("no better than chance" in each for each in warnings)
    assert any("'new'" in each and "'a'" in each for each in warnings)
    assert any("cannot be trusted" in each for each in warnings)


@pytest.mark.usefixtures("small")
def test_a_class_that_stands_alone_is_warned_about(tmp_path):
    x, labels = blobs("a", 20)
    np.savez(tmp_path / "d.npz", x=x.numpy(), y=np.array(labels))
    answer = ask("learn", tmp_path / "m.ucb", tmp_path / "d.npz")
    assert answer.code == 0
    assert "warning: the model knows the class 'a' alone" in answer.err
    assert json.loads(ask("show", tmp_path / "m.ucb", "--format", "json").out)["classes"] == {"a": 20}


@pytest.mark.usefixtures("small")
def test_an_ordinary_wave_is_not_warned_about(tmp_path):
    model = learn(tmp_path / "m.ucb", blobs("ab", 40))
    assert model.warnings == []
    assert learn(tmp_path / "m.ucb", blobs("cd", 40)).warnings == []
