"""A trunk that goes on learning: a head for each wave, and the least uncertain one has the say."""

import math
from pathlib import Path

import pytest
import torch

from tests.incremental.data import blobs, digits
from ucb.bayes import gaussians, mean_forward
from ucb.incremental import Model, learn
from ucb.incremental.bayesian_net import NETS, build_wave_net, check_net, choose_net
from ucb.incremental.model_file import to_bytes
from ucb.incremental.progress_file import progress_path
from ucb.observer import Observer


@pytest.fixture(scope="module")
def learnt():
    model = Model("ucb-ng")
    for names in ("ab", "cd", "ef"):
        model.learn(blobs(names, 60), epochs=8)
    return model


def right(model, names):
    x, labels = blobs(names, 40, seed=7)
    answers = [row["label"] for row in model.predict(x)]
    return sum(a == b for a, b in zip(answers, labels, strict=True)) / len(labels)


def test_each_wave_has_a_head_and_is_known_by_it(learnt):
    assert learnt.learner.heads == [[0, 1], [2, 3], [4, 5]]
    assert learnt.waves[0].accuracy == 100.0
    for index, names in enumerate(("ab", "cd", "ef")):
        assert head_alone(learnt, index, names) > 0.9, "the wave's own head still tells its classes apart"


def test_the_logit_of_a_class_is_its_log_probability_less_its_heads_entropy(learnt):
    x, _ = blobs("ace", 5, seed=3)
    from ucb.bayes import forward
    from ucb.seeds import generator_for

    net = learnt.learner.method.net.eval()
    with net.using(None), torch.no_grad():
        both = forward(net, learnt.learner.normalise(x), 10, generator=generator_for("opinion"))
    raw = learnt.learner.predict_raw(x)
    for head in range(3):
        log_p = both[..., 2 * head : 2 * head + 2].log_softmax(-1)
        mean = log_p.exp().mean(0)
        entropy = -(mean * mean.log()).sum(-1)
        torch.testing.assert_close(raw.logits[..., 2 * head : 2 * head + 2], log_p - entropy[:, None])


def test_a_class_that_comes_again_is_judged_by_the_surest_head():
    model = Model("ucb-ng")
    model.learn(blobs("ab", 60), epochs=6)
    model.learn(blobs("bc", 60, seed=1), epochs=6)
    assert model.learner.heads == [[0, 1], [1, 2]]
    assert model.classes == ["a", "b", "c"]
    raw = model.learner.predict_raw(blobs("b", 5, seed=4)[0])
    assert raw.logits.shape[-1] == 3
    assert bool(raw.logits.isfinite().all())
    assert right(model, "b") > 0.8


@pytest.mark.parametrize("again", ["abc", "ca"])
def test_a_wave_of_classes_that_a_head_knows_goes_on_with_it_and_the_file_does_not_grow(again):
    model = Model("ucb-ng")
    model.learn(blobs("abc", 60), epochs=6)
    model.learn(blobs("de", 60), epochs=6)
    size = len(to_bytes(model))
    old = {name: g.mu.detach().clone() for name, g in gaussians(model.learner.method.net)}
    for seed in (1, 2):
        model.learn(blobs(again, 60, seed=seed), epochs=6)
    assert model.learner.heads == [[0, 1, 2], [3, 4]]
    assert len(model.waves) == 4
    assert len(to_bytes(model)) < size + 2 * 2700, "a wave's figures, and no weights"
    new = dict(gaussians(model.learner.method.net))
    assert torch.equal(new["heads.1.weight"].mu, old["heads.1.weight"]), "the other head rests"
    assert not torch.equal(new["heads.0.weight"].mu, old["heads.0.weight"])
    assert right(model, again) > 0.8
    assert head_alone(model, 0, "abc") > 0.9, "and it still knows the class that did not come again"


def head_alone(model, head, names):
    """The share of rows that a head judges right when nobody asks the others."""
    x, labels = blobs(names, 40, seed=7)
    net = model.learner.method.net.eval()
    with net.using(head), torch.no_grad():
        said = mean_forward(net, model.learner.normalise(x)).argmax(1)
    truth = torch.tensor([names.index(label) for label in labels])
    return float((said == truth).double().mean())


def test_a_wave_that_mixes_known_classes_has_a_head_once():
    model = Model("ucb-ng")
    for seed, names in enumerate(("ab", "cd", "bc", "bc", "cb")):
        model.learn(blobs(names, 20, seed=seed), epochs=1)
    assert model.learner.heads == [[0, 1], [2, 3], [1, 2]]


def test_a_model_whose_head_was_used_again_is_read_as_it_was(tmp_path):
    model = Model("ucb-ng")
    for seed, names in enumerate(("ab", "cd", "ab")):
        model.learn(blobs(names, 20, seed=seed), epochs=1)
    model.save(tmp_path / "m.ucb")
    read = Model.open(tmp_path / "m.ucb")
    x = blobs("abcd", 5, seed=9)[0]
    assert read.predict(x) == model.predict(x)
    for each in (model, read):
        each.learn(blobs("cd", 20, seed=5), epochs=1)
    assert read.predict(x) == model.predict(x)


class Stops(Observer):
    """Is interrupted half-way."""

    def moved(self, done, total):
        if done > total / 2:
            raise KeyboardInterrupt


def test_an_interrupted_wave_with_a_head_used_again_goes_on_to_the_same_model(tmp_path):
    path, whole = tmp_path / "m.ucb", tmp_path / "whole.ucb"
    for seed, names in enumerate(("ab", "cd")):
        learn(path, blobs(names, 20, seed=seed), method="ucb-ng", epochs=1)
    whole.write_bytes(path.read_bytes())
    again = blobs("ab", 800, seed=5)
    learn(whole, again, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        learn(path, again, epochs=2, pause=0.0, observer=Stops())
    assert progress_path(path).exists()
    learn(path, again, epochs=2)
    assert path.read_bytes() == whole.read_bytes()


def test_earlier_heads_rest_and_effects_are_in_units_of_sigma():
    model = Model("ucb-ng")
    model.learn(blobs("ab", 40), epochs=3)
    before = model.learner
    old = {name: (g.mu.detach().clone(), g.sigma.detach().clone()) for name, g in gaussians(before.method.net)}
    (effect,) = model.learn(blobs("cd", 40), epochs=3).effects
    new = dict(gaussians(model.learner.method.net))
    assert torch.equal(new["heads.0.weight"].mu, old["heads.0.weight"][0])
    total = weight = 0.0
    for name, (mu, sigma) in old.items():
        if name.startswith("trunk."):
            total += float((((new[name].mu.detach() - mu) / sigma) ** 2 / sigma**2).double().sum())
            weight += float((1 / sigma.double() ** 2).sum())
    assert effect.change == pytest.approx(math.sqrt(total / weight), rel=1e-4)
    assert effect.change > 0


def test_the_same_seed_gives_the_same_answers():
    answers = []
    for _ in range(2):
        model = Model("ucb-ng", seed=3)
        model.learn(blobs("ab", 20), epochs=2)
        answers.append(model.predict(blobs("ab", 5, seed=2)[0]))
    assert answers[0] == answers[1]


def test_show_tells_how_certain_each_layer_is(learnt):
    facts = learnt.show()
    assert {layer["layer"] for layer in facts["layers"]} >= {"trunk.1.weight", "heads.0.weight", "heads.2.bias"}
    assert all(0 < layer["sigma"] <= 1 for layer in facts["layers"])
    assert 0 < facts["capacity_left"] <= 1


def test_images_are_learnt_by_the_small_net():
    model = Model("ucb-ng")
    report = model.learn(digits([0, 1], 60), epochs=2)
    assert model.learner.net_name == "small"
    assert report.wave.accuracy > 80


def test_a_wave_that_holds_out_nothing_is_learnt():
    model = Model("ucb-ng")
    report = model.learn(blobs("ab", 4), epochs=1)
    assert report.wave.accuracy is None
    assert len(model.predict(blobs("ab", 2)[0])) == 4


def test_what_it_cannot_do_is_a_sentence():
    with pytest.raises(ValueError, match="one class"):
        Model("ucb-ng").learn(blobs("a", 10))
    with pytest.raises(ValueError, match="no net"):
        Model("ucb-ng", net="magic").learn(blobs("ab", 10))
    with pytest.raises(ValueError, match="choose mlp"):
        Model("ucb-ng", net="alexnet").learn(blobs("ab", 10))


@pytest.mark.parametrize("name", NETS)
def test_every_net_is_made_for_its_smallest_image_and_grows_heads_without_changing(name):
    shape = (3, 22, 22)
    assert check_net(name, shape) == name
    one, two = (build_wave_net(name, shape, sizes, 0) for sizes in ([2], [2, 3]))
    assert two(torch.zeros(2, *shape)).shape == (2, 2)
    later = dict(two.named_parameters())
    assert all(torch.equal(value, later[key]) for key, value in one.named_parameters())


def test_default_nets():
    assert [choose_net(shape) for shape in ((1, 28, 28), (3, 9, 9), (7,))] == ["small", "mlp", "mlp"]


def test_a_model_that_was_written_with_the_former_curvature_answers_as_before_and_learns_on():
    """The file holds precisions and rates, which mean what they meant; the answers are those of their version."""
    model = Model.open(Path(__file__).parent / "written_before.ucb")
    x, _ = blobs("abcd", 5, seed=7, columns=2)
    assert "".join(row["label"] for row in model.predict(x)) == "ddddabbbbbaccacdddda"
    before = model.learner.optimizer.state[model.learner.optimizer.learning_means()[0]]["precision"].clone()
    model.learn(blobs("ef", 30, columns=2), epochs=1)
    after = model.learner.optimizer.state[model.learner.optimizer.gaussian_groups()[0]["params"][0]]["precision"]
    assert (after >= before).all()
    assert (after > before).any()
