"""The conjugate head against the closed form of Bayesian regression, fitted at once."""

import pytest
import torch

from ucb.bayes.conjugate import ConjugateHead


def data(rows=60, features=7, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, features, generator=generator), torch.randint(classes, (rows,), generator=generator)


def closed_form(x, y, classes, ridge):
    """Weights, A^-1 and s^2, written down from the book."""
    phi = torch.cat([x.double(), torch.ones(len(x), 1).double()], 1)
    targets = torch.nn.functional.one_hot(y, classes).double()
    inverse = torch.linalg.inv(phi.T @ phi + ridge * torch.eye(phi.shape[1]).double())
    weights = inverse @ phi.T @ targets
    return phi, weights, inverse, targets


def test_the_posterior_is_that_of_bayesian_regression():
    x, y = data()
    head = ConjugateHead(7, 3, ridge=0.5)
    head.add(x, y)
    phi, weights, inverse, targets = closed_form(x, y, 3, 0.5)
    torch.testing.assert_close(head.weights, weights)
    found = head.scores(x.double())
    torch.testing.assert_close(found.mean, phi @ weights)
    torch.testing.assert_close(found.variance, (phi @ inverse * phi).sum(1))
    torch.testing.assert_close(head(x.double()), phi @ weights)
    # y^T y - b^T A^-1 b: the residual, and what the prior takes of the weights
    explained = (targets.T @ phi @ weights).diagonal()
    torch.testing.assert_close(head.noise(), (targets.square().sum(0) - explained) / len(x))


@pytest.mark.parametrize("portions", [1, 2, 7, 60])
def test_portions_in_any_order_give_the_head_of_all_at_once(portions):
    x, y = data()
    whole, recursive = ConjugateHead(7, 3), ConjugateHead(7, 3)
    whole.add(x, y)
    order = torch.randperm(len(x))
    for some in order.chunk(portions):
        recursive.add(x[some], y[some])
        recursive(x[:2])  # asking in between changes nothing
    torch.testing.assert_close(recursive.weights, whole.weights, rtol=0, atol=1e-10)


def test_new_classes_find_room_and_old_ones_stay():
    x, y = data(classes=2)
    head = ConjugateHead(7, 2)
    head.add(x, y)
    before = head.weights.clone()
    head.grow(4)
    torch.testing.assert_close(head.weights[:, :2], before)
    assert not head.weights[:, 2:].any()
    more, labels = data(seed=1, classes=4)
    head.add(more, labels)
    together = ConjugateHead(7, 4)
    together.add(torch.cat([x, more]), torch.cat([y, labels]))
    torch.testing.assert_close(head.weights, together.weights)


def test_what_it_knows_is_in_its_state():
    x, y = data()
    head, fresh = ConjugateHead(7, 3), ConjugateHead(7, 2)
    head.add(x, y)
    fresh(x)
    fresh.load_state_dict(head.state_dict())
    assert torch.equal(fresh.weights, head.weights)


def test_it_is_unsure_far_from_what_it_has_seen():
    x, y = data(rows=500)
    head = ConjugateHead(7, 3)
    head.add(x, y)
    near, far = head.scores(x[:50]).variance, head.scores(20 * x[:50]).variance
    assert float(far.min()) > 5 * float(near.max())


def test_features_that_are_no_numbers_are_refused_and_change_nothing():
    x, y = data()
    head = ConjugateHead(7, 3)
    head.add(x, y)
    before = head.weights.clone()
    x[3, 2] = float("nan")
    with pytest.raises(ValueError, match="the features"):
        head.add(x, y)
    assert torch.equal(head.weights, before)


def test_without_data_it_expects_nothing():
    head = ConjugateHead(4, 3, ridge=2.0)
    found = head.scores(torch.ones(1, 4))
    assert not found.mean.any()
    assert float(found.variance) == pytest.approx(5 / 2)
    assert not head.noise().any()
