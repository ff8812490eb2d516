"""The diagonal of the Gauss-Newton matrix from signed gradients, against one gradient after the other."""

import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, GaussianLikelihood, gaussians, mean_forward, to_bayesian
from ucb.bayes.curvature import class_roots, signed_gradients


def exact(net, x, roots):
    """The sum of all squared gradients of the roots, by every mean."""
    found = {name: torch.zeros_like(g.mu) for name, g in gaussians(net)}
    for row in x:
        for value in roots(mean_forward(net, row.unsqueeze(0))).flatten():
            gradients = torch.autograd.grad(value, [g.mu for _, g in gaussians(net)], retain_graph=True)
            for total, gradient in zip(found.values(), gradients, strict=True):
                total += gradient**2
    return found


def test_squared_gradients_of_the_class_roots_are_the_hessian_of_the_cross_entropy(double):
    logits = torch.randn(5)
    hessian = torch.autograd.functional.hessian(lambda z: nn.functional.cross_entropy(z, torch.tensor(2)), logits)
    jacobian = torch.autograd.functional.jacobian(class_roots, logits)
    torch.testing.assert_close(jacobian.T @ jacobian, hessian)


def test_the_roots_of_a_gaussian_likelihood_are_those_of_its_hessian(double):
    likelihood, target = GaussianLikelihood(0.3), torch.randn(1, 4)
    hessian = torch.autograd.functional.hessian(lambda z: likelihood(z[None], target), torch.randn(4))
    jacobian = torch.autograd.functional.jacobian(likelihood.roots, torch.randn(4))
    torch.testing.assert_close(jacobian.T @ jacobian, hessian)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.end = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.end(self.layer(self.layer(x).tanh()).tanh())


NETS = {
    "dense": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "convolutions and norms": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.Tanh(), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)
        ),
        (1, 3, 3),
    ),
    "a layer used twice": (Twice, (6,)),
}


@pytest.mark.parametrize("kind", NETS)
def test_the_mean_of_squared_signed_gradients_is_the_exact_sum(kind, double):
    """A square of Gaussian-like sums has a relative spread of at most sqrt(2): 4 standard errors of 1200 draws."""
    torch.manual_seed(0)
    make, shape = NETS[kind]
    net, x, draws = to_bayesian(make()), torch.randn(4, *shape), 1200
    (first, *_), generator = [g for _, g in gaussians(net)], torch.Generator().manual_seed(0)
    first.prune(torch.rand_like(first.mu) > 0.2)
    net.eval()
    wanted = exact(net, x, class_roots)
    means = [g.mu for _, g in gaussians(net)]
    found = [torch.zeros_like(mu) for mu in means]
    for _ in range(draws):
        for total, gradient in zip(found, signed_gradients(net, means, x, class_roots, generator), strict=True):
            total += gradient**2 / draws
    for total, expected in zip(found, wanted.values(), strict=True):
        torch.testing.assert_close(total, expected, rtol=4 * (2 / draws) ** 0.5, atol=1e-12)


def test_the_net_is_at_rest_while_it_is_looked_at_and_as_before_afterwards():
    net = to_bayesian(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.9), nn.Linear(8, 2)))
    net[1].eval()
    before = [module.training for module in net.modules()]
    statistics = net[1].running_mean.clone()
    means = [g.mu for _, g in gaussians(net)]
    seeds = [torch.Generator().manual_seed(1) for _ in range(2)]
    x = torch.randn(6, 4)
    one, other = (signed_gradients(net, means, x, class_roots, seed) for seed in seeds)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert [module.training for module in net.modules()] == before
    assert torch.equal(net[1].running_mean, statistics)
    assert all(p.grad is None for p in net.parameters())


def test_weights_that_take_no_part_have_no_gradient():
    net, other = to_bayesian(nn.Linear(4, 2)), to_bayesian(nn.Linear(4, 2))
    means = [net.posterior["weight"].mu, other.posterior["weight"].mu]
    seen, unseen = signed_gradients(net, means, torch.randn(3, 4), class_roots)
    assert seen is not None
    assert unseen is None


def test_what_has_no_known_curvature_is_refused():
    with pytest.raises(TypeError, match="roots"):
        _ = ELBO(10, likelihood=lambda output, target: (output - target).abs().mean()).curvature_roots
    assert ELBO(10, likelihood=GaussianLikelihood(2.0)).curvature_roots(torch.ones(1)) == 0.5
    net = to_bayesian(nn.Linear(4, 2))
    with pytest.raises(ValueError, match="empty"):
        signed_gradients(net, [net.posterior["weight"].mu], torch.randn(0, 4), class_roots)


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_roots_of_classes_make_up_the_hessian_of_the_cross_entropy(scale):
    """diag(p) - p p^T, also where all but one probability underflow."""
    logits = scale * torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in logits:
        jacobian = torch.autograd.functional.jacobian(lambda z: class_roots(z.unsqueeze(0)).squeeze(0), row)
        p = row.softmax(-1)
        torch.testing.assert_close(jacobian.T @ jacobian, p.diag() - p.outer(p))
    single = logits.float().requires_grad_()
    (gradient,) = torch.autograd.grad(class_roots(single).sum(), single)
    assert gradient.isfinite().all()


def test_a_row_that_wavers_between_two_classes_has_one_root_that_counts():
    (root,) = class_roots(torch.tensor([[2.0, -50.0, 1.0, -40.0]], dtype=torch.float64))
    p = torch.tensor([2.0, 1.0], dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(root[0], (p[0] * p[1]).sqrt() * (2.0 - 1.0))
    assert root[1:].abs().max() < 1e-6
