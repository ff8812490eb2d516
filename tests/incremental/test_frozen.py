"""A frozen trunk: waves in any order and any number are one fit, and what it says follows from closed forms."""

import math

import pytest
import torch

from tests.incremental.data import blobs, digits
from ucb.bayes.conjugate import ConjugateHead
from ucb.incremental import Model
from ucb.incremental.ridge import RIDGES, choose_ridge, cross_validated_fit, log_evidence
from ucb.incremental.trunks import FAR, ImageTrunk, RowTrunk, build_trunk


def learnt(*waves, seed=0):
    model = Model(seed=seed)
    for x, labels in waves:
        model.learn((x, labels))
    return model


def fitted_at_once(model, waves):
    """A plain ridge regression on the features of all data together, by another road: singular values."""
    x = torch.cat([x for x, _ in waves])
    labels = [label for _, own in waves for label in own]
    phi = torch.cat([model.learner.features(x).double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)
    y = torch.nn.functional.one_hot(model.numbers_of(labels), len(model.classes)).double()
    u, s, v = torch.linalg.svd(phi, full_matrices=False)
    return v.T @ ((s / (s.square() + model.learner.head.ridge))[:, None] * (u.T @ y))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["images", "rows"])
def test_wave_by_wave_equals_one_fit_of_everything(kind):
    data = digits if kind == "images" else blobs
    waves = [data([0, 1], 40), data([2, 3], 40), data([4, 1], 40)]
    model = learnt(*waves)
    assert model.classes == ["0", "1", "2", "3", "4"]
    torch.testing.assert_close(model.learner.head.weights, fitted_at_once(model, waves), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("small")
def test_the_order_of_later_waves_leaves_no_trace():
    first, second, third = (digits(pair, 40) for pair in ([0, 1], [2, 3], [4, 5]))
    one, other = learnt(first, second, third), learnt(first, third, second)
    x = digits(range(6), 10, "test")[0]
    assert one.learner.head.ridge == other.learner.head.ridge
    mine, theirs = (dict(zip(m.classes, m.learner.head.weights.T, strict=True)) for m in (one, other))
    for name, weights in mine.items():
        torch.testing.assert_close(weights, theirs[name], rtol=1e-6, atol=1e-6)
    assert [row["label"] for row in one.predict(x)] == [row["label"] for row in other.predict(x)]


@pytest.mark.usefixtures("small")
def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    wave = digits([0, 1], 30)
    same = [learnt(wave, seed=seed).learner.head.gram for seed in (0, 0, 1)]
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], same[2])


def test_a_first_wave_of_ten_images_gives_a_working_model():
    model = learnt(digits([0, 1], 5))
    rows = model.predict(digits([0, 1], 50, "test")[0])
    truth = digits([0, 1], 50, "test")[1]
    assert sum(row["label"] == label for row, label in zip(rows, truth, strict=True)) >= 90


@pytest.mark.usefixtures("medium")
def test_ten_images_at_first_do_no_harm_to_later_waves():
    """The filters are made of ten images then: what they show of all digits must serve as well."""
    x, truth = digits(range(6), 100, "test")
    right = []
    for first in ([], [digits([0, 1], 5, skip=1000)]):
        model = learnt(*first, *(digits(pair, 100) for pair in ([0, 1], [2, 3], [4, 5])))
        right.append(sum(row["label"] == label for row, label in zip(model.predict(x), truth, strict=True)) / len(x))
    assert right[0] > 0.95
    assert right[1] > right[0] - 0.015


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 4, 4), (3, 8, 8), (1, 64, 70), (3, 9, 40)])
def test_images_of_any_size_can_be_learnt(shape):
    x = torch.randint(0, 256, (24, *shape), dtype=torch.uint8)
    x[:12] //= 4
    model = learnt((x, ["dark"] * 12 + ["bright"] * 12))
    assert len(model.predict(x)) == 24
    trunk = model.learner.trunk
    with torch.device("meta"):
        like = build_trunk(shape, trunk.facts)
    assert like.features == trunk.features == model.learner.features(x).shape[1]
    assert {name: v.shape for name, v in like.state_dict().items()} == {
        name: v.shape for name, v in trunk.state_dict().items()
    }


@pytest.mark.usefixtures("small")
def test_a_single_class_and_blank_images_are_no_error():
    model = learnt((torch.zeros(6, 1, 8, 8, dtype=torch.uint8), ["nothing"] * 6))
    (row,) = model.predict(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert row["label"] == "nothing"
    assert row["probability"] == pytest.approx(1)
    assert row["entropy"] == pytest.approx(0, abs=1e-6)


@pytest.mark.usefixtures("small")
def test_held_out_examples_are_learnt_too():
    model = learnt(digits([0, 1], 30))
    assert model.learner.head.counts.tolist() == [30, 30]
    assert model.waves[0].examples == {"0": 30, "1": 30}
    assert [pair[0] for pair in model.waves[0].held_out.values()] == [3, 3]


@pytest.mark.usefixtures("small")
def test_a_wave_that_fails_leaves_the_model_as_it_was():
    model = learnt(digits([0, 1], 20))
    before = model.learner.head.gram.clone(), list(model.classes), list(model.waves)
    for data, said in [
        ((torch.zeros(2, 1, 9, 9, dtype=torch.uint8), ["a", "b"]), "shape"),
        ((torch.zeros(2, 5), ["a", "b"]), "shape"),
        ((torch.zeros(0, 1, 28, 28, dtype=torch.uint8), []), "no examples"),
    ]:
        with pytest.raises(ValueError, match=said):
            model.learn(data)
    with pytest.raises(ValueError, match="already"):
        model.learn(digits([2], 5), "wave 1")
    assert torch.equal(model.learner.head.gram, before[0])
    assert (model.classes, model.waves) == before[1:]


def test_the_evidence_is_the_density_of_the_targets():
    """The targets of an output are jointly Gaussian given the noise: their density is the independent reference."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=generator)
    target = (x[:, 0] + 0.3 * torch.randn(30, generator=generator) > 0).long()
    head = ConjugateHead(3, 2)
    head.add(x, target)
    phi = torch.cat([x, torch.ones(30, 1)], 1).double()
    y = torch.nn.functional.one_hot(target, 2).double()

    def density(ridge):
        total = 0.0
        covariance = torch.eye(30, dtype=torch.float64) + phi @ phi.T / ridge
        for column in y.T:
            noise = float(column @ torch.linalg.solve(covariance, column)) / 30
            normal = torch.distributions.MultivariateNormal(torch.zeros(30, dtype=torch.float64), noise * covariance)
            total += float(normal.log_prob(column))
        return total

    for one, other in ((0.1, 1.0), (1.0, 100.0)):
        mine = log_evidence(head, one) - log_evidence(head, other)
        assert mine == pytest.approx(density(one) - density(other), rel=1e-6)
    assert choose_ridge(head) == max(RIDGES, key=density)


@pytest.mark.usefixtures("small")
def test_novelty_is_the_variance_of_a_score_relative_to_that_of_unseen_examples():
    """Without an example of leverage h, its own phi^T A^-1 phi would be h / (1 - h)."""
    wave = digits([0, 1], 40)
    model = learnt(wave)
    head = model.learner.head
    phi = torch.cat([model.learner.features(wave[0]).double(), torch.ones(80, 1, dtype=torch.float64)], 1)
    inverse = torch.linalg.inv(head.gram + head.ridge * torch.eye(len(head.gram)))
    variance = torch.einsum("ni,ij,nj->n", phi, inverse, phi)
    expected = (variance / (variance.mean() / (1 - variance.mean()))).log()
    raw = model.learner.predict_raw(wave[0])
    torch.testing.assert_close(raw.novelty.double(), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(raw.logits.mean(0).double(), phi @ head.weights, rtol=1e-4, atol=1e-4)
    assert model.show()["capacity_left"] == pytest.approx(1 - float(variance.sum()) / len(head.gram), rel=1e-6)


def test_a_wild_number_and_a_constant_column_do_no_harm():
    trunk = build_trunk((3,))
    assert isinstance(trunk, RowTrunk)
    trunk.fit(torch.tensor([[1.0, 5.0, 2.0], [3.0, 5.0, 2.5]]), 0)
    features = trunk(torch.tensor([[1e30, 6.0, -1e30]]))
    assert features[0, :3].tolist() == [FAR, 1.0, -FAR]
    assert isinstance(build_trunk((1, 28, 28)), ImageTrunk)


def test_methods_and_nets_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="method must be one of"):
        Model("magic")
    with pytest.raises(ValueError, match="a net can be chosen with"):
        Model(net="mlp")
    with pytest.raises(ValueError, match="learnt nothing"):
        Model().predict(torch.zeros(1, 3))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["", "x" * 1001])
def test_a_class_that_no_file_could_name_is_refused(name):
    x, labels = blobs(["a", "b"], 6)
    with pytest.raises(ValueError, match="1 to 1000 characters"):
        Model().learn((x, [name if label == "b" else label for label in labels]))


@pytest.mark.usefixtures("small")
def test_classes_of_equally_many_examples_are_compared_by_their_scores():
    model = learnt(digits([0, 1], 40), digits([2, 3], 40))
    assert torch.equal(model.learner.posterior.balance, torch.ones(4, dtype=torch.float64))


@pytest.mark.usefixtures("small")
def test_a_rare_class_is_not_lost_among_frequent_ones():
    model = learnt(digits([0, 1], 6), digits([2, 3], 400), digits([4, 5], 400))
    assert model.learner.posterior.balance[0] > 5 * model.learner.posterior.balance[2]
    for pair, least in (([0, 1], 0.75), ([2, 3, 4, 5], 0.75)):
        x, labels = digits(pair, 60, "test")
        right = [row["label"] == label for row, label in zip(model.predict(x), labels, strict=True)]
        assert sum(right) >= least * len(right)


def test_the_cross_validated_fit_is_that_of_its_definition():
    """With the trace worked out, and every example left out in turn: the leverages of these hardly differ."""
    numbers = torch.Generator().manual_seed(0)
    x, target = torch.randn(3000, 60, generator=numbers), torch.randint(3, (3000,), generator=numbers)
    x[torch.arange(3000), target] += 1.5
    head = ConjugateHead(60, 3)
    head.add(x, target)
    for ridge in (1.0, 1000.0):
        head.set_ridge(ridge)
        phi = torch.cat([x, torch.ones(3000, 1)], 1).double()
        inverse = torch.linalg.inv(head.gram + ridge * torch.eye(61))
        leverage = torch.einsum("ni,ij,nj->n", phi, inverse, phi)
        left = torch.nn.functional.one_hot(target, 3) - phi @ head.weights
        exact = float((left.square().sum(1) / (1 - leverage).square()).mean())
        assert math.exp(-cross_validated_fit(head, ridge)) == pytest.approx(exact, rel=2e-3)
    twice = ConjugateHead(60, 3)
    for _ in range(2):
        twice.add(x, target)
    assert cross_validated_fit(twice, 2000.0, 3000.0) == pytest.approx(cross_validated_fit(head, 1000.0), abs=1e-9)


def test_ridges_are_validated_where_a_trunk_comes_ready_and_examples_are_many():
    numbers = torch.Generator().manual_seed(1)
    x, target = torch.randn(400, 30, generator=numbers), torch.randint(2, (400,), generator=numbers)
    head = ConjugateHead(30, 2)
    for number, judge in ((40, log_evidence), (360, cross_validated_fit)):
        head.add(x[:number], target[:number])
        best = max(RIDGES, key=lambda ridge, judge=judge: judge(head, ridge))
        assert choose_ridge(head, usual=10.0, is_validated=True) == best
