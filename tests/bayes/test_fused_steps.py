"""Fused steps against the optimisers in PyTorch."""

import pytest
import torch
from torch import nn

from tests.bayes import reference
from tests.bayes.fused_weights import close, normal, weights
from tests.bayes.triton_tests import DEVICE, MARKS
from ucb.bayes import gaussians, to_bayesian
from ucb.kernels.triton import fused
from ucb.optim import UCB, UCBNG, param_groups

pytestmark = MARKS


@pytest.mark.parametrize("scaled", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("pruned", [False, True])
def test_descend_follows_the_reference(scaled, pruned):
    mu, rho, keep = weights((41, 17), pruned)
    before = torch.stack([mu, rho])
    grads = normal(2, 41, 17)
    scales = [torch.rand(41, 17, device=DEVICE) if wanted else None for wanted in scaled]
    m, r = mu.double(), rho.double()
    fused.descend(mu, rho, *grads, *scales, keep, 0.3, 0.05)
    reference.descend(m, r, *grads.double(), *scales, keep, 0.3, 0.05)
    close(mu, m)
    close(rho, r)
    if keep is not None:
        assert torch.equal(torch.stack([mu, rho])[:, ~keep], before[:, ~keep])


def test_autograd_sees_that_a_step_has_written():
    mu, rho, _ = weights((6,))
    mu.requires_grad_()
    loss = (mu * mu).sum()
    with torch.no_grad():
        fused.descend(mu, rho, mu.detach().clone(), rho.clone(), None, None, None, 0.1, 0.1)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def small_net(pruned):
    net = to_bayesian(nn.Linear(31, 43)).to(DEVICE)
    if pruned:
        for _, g in gaussians(net):
            g.prune(torch.rand(g.mu.shape, device=DEVICE) < 0.7)
    return net


def set_gradients(net, size):
    for p in net.parameters():
        p.grad = size * torch.randn_like(p)


@pytest.mark.parametrize("pruned", [False, True])
def test_descend_steps_as_ucb_does(pruned, monkeypatch):
    monkeypatch.setenv("UCB_KERNELS", "off")  # the optimiser shall not use what it is compared with
    net = small_net(pruned)
    optimizer = UCB(param_groups(net), lr=0.1, rho_lr=0.02)
    for _ in range(2):
        set_gradients(net, 1.0)
        copies = [(g, g.mu.detach().clone(), g.rho.detach().clone()) for _, g in gaussians(net)]
        for g, mu, rho in copies:
            scales = [optimizer.state[p].get("scale") for p in (g.mu, g.rho)]
            fused.descend(mu, rho, g.mu.grad, g.rho.grad, *scales, g.keep, 0.1, 0.02)
        optimizer.step()
        for g, mu, rho in copies:
            close(mu, g.mu, atol=1e-6)
            close(rho, g.rho, atol=1e-6)
        optimizer.consolidate()


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("prior_sigma", [None, 3.0, 1e-3])
def test_natural_steps_as_ucbng_does(pruned, prior_sigma, monkeypatch):
    monkeypatch.setenv("UCB_KERNELS", "off")  # the optimiser shall not use what it is compared with
    net = small_net(pruned)
    settings = {"temperature": 0.07, "beta": 0.05}
    optimizer = UCBNG(param_groups(net), num_examples=500, lr=0.1, prior_sigma=prior_sigma, **settings)
    for task in range(2):
        copies = []
        for _, g in gaussians(net):
            state = optimizer.state[g.mu]
            assert ("scale" in state) == (task > 0)
            copies.append((g, g.mu.detach().clone(), g.rho.detach().clone(), state["curvature"].clone()))
        for _ in range(3):
            set_gradients(net, 1e-3)
            signed = [normal(*g.mu.shape) for g, *_ in copies]
            for (g, mu, rho, h), found in zip(copies, signed, strict=True):
                state = optimizer.state[g.mu]
                known = (h, state["precision"], state["seen"] + 1, state.get("scale"), g.keep)
                fused.natural(mu, rho, g.mu.grad, found, *known, 0.1, 0.07, 500, 0.05, 8)
            optimizer.add_curvature([g.mu for g, *_ in copies], signed, 8)
            optimizer.step()
            for g, mu, rho, h in copies:
                delta = optimizer.state[g.mu]["precision"] * (0.07 / 500)  # the curvature counts beside it
                close(h + delta, optimizer.state[g.mu]["curvature"] + delta, atol=0)
                close(mu, g.mu, atol=1e-6)
                close(rho, g.rho, atol=1e-5)
                assert h.any()
        optimizer.consolidate()


@pytest.mark.parametrize("pruned", [False, True])
def test_natural_follows_the_reference_in_double_precision(pruned):
    mu, rho, keep = weights((41, 17), pruned)
    grads = normal(2, 41, 17) * 1e-3
    h, precision = torch.rand(2, 41, 17, device=DEVICE).unbind()
    h, precision = h**4, 10 ** (9 * precision - 3)  # spreads from 0.001 to 1 and more
    state = [mu, rho, *grads, h, precision, torch.tensor(3.0, device=DEVICE)]
    wide = [t.double() for t in state]
    before = torch.stack([mu, rho])
    fused.natural(*state, None, keep, 0.1, 0.5, 200, 0.01, 8)
    reference.natural(*wide, None, keep, 0.1, 0.5, 200, 0.01, 8)
    for i in (0, 1, 4):
        close(state[i], wide[i], rtol=1e-4)
    if keep is not None:
        assert torch.equal(torch.stack([mu, rho])[:, ~keep], before[:, ~keep])
