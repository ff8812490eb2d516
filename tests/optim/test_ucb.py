import copy

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ucb.bayes import ELBO, Normal, gaussians, to_bayesian
from ucb.optim import UCB, RateScale, UniformLR, gaussian_group, param_groups
from ucb.optim.base import drop_groups


@pytest.fixture
def net(double):
    net = to_bayesian(nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3)), init_std_ratio=0.5)
    for _, gaussian in gaussians(net):
        gaussian.set_sigma(torch.rand_like(gaussian.mu) * 0.5 + 0.01)
    return net


pytestmark = pytest.mark.filterwarnings("ignore::ucb.bayes.DeterministicWarning")


def give_gradients(net, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def moves(net, optimizer):
    """How far one step moves each parameter, over its gradient: the rate of every weight."""
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    give_gradients(net)
    optimizer.step()
    return {name: (before[name] - p.detach()) / p.grad for name, p in net.named_parameters()}


def test_in_the_first_task_every_parameter_learns_at_the_base_rate(net):
    for rate in moves(net, UCB(param_groups(net), 0.25)).values():
        torch.testing.assert_close(rate, torch.full_like(rate, 0.25))


@pytest.mark.parametrize("on", ["mu", "rho", "both"])
def test_certainty_scales_the_rate_by_sigma(net, on):
    optimizer = UCB(param_groups(net), 0.25, on=on)
    optimizer.consolidate()
    sigma = {name: g.sigma.detach().clone() for name, g in gaussians(net)}
    rates = moves(net, optimizer)
    for layer in ("0", "2"):
        for weight in ("weight", "bias"):
            for part in ("mu", "rho"):
                scaled = on in (part, "both")
                expected = 0.25 * (sigma[f"{layer}.{weight}"] if scaled else 1)
                rate = rates[f"{layer}.posterior.{weight}.{part}"]
                torch.testing.assert_close(rate, torch.ones_like(rate) * expected)
    torch.testing.assert_close(rates["1.weight"], torch.full((1,), 0.25))  # ordinary parameters keep the base rate


def test_snr_scales_the_rate_by_sigma_over_mu_up_to_the_cap(net):
    weight = net[0].posterior["weight"]
    with torch.no_grad():
        weight.mu[0, 0] = 0
    for cap in (1.0, 3.0):
        optimizer = UCB(param_groups(net), 0.25, scale=RateScale("snr", cap=cap))
        optimizer.consolidate()
        scale = optimizer.state[weight.mu]["scale"]
        torch.testing.assert_close(scale, (weight.sigma / weight.mu.abs()).clamp_max(cap).detach())
        assert scale[0, 0] == cap


def test_the_cap_holds_until_it_is_lifted(net):
    weight = net[0].posterior["weight"]
    weight.set_sigma(torch.full_like(weight.mu, 3.0))
    capped, lifted, gained = (
        UCB(param_groups(net), 0.25, scale=RateScale(cap=cap, gain=gain))
        for cap, gain in ((1, 1), (None, 1), (None, 5))
    )
    for optimizer, expected in ((capped, 1.0), (lifted, 3.0), (gained, 15.0)):
        optimizer.consolidate()
        torch.testing.assert_close(optimizer.state[weight.mu]["scale"], torch.full_like(weight.mu, expected))


@pytest.mark.parametrize("cumulative", [False, True])
def test_a_second_task_replaces_the_scale_or_multiplies_it(net, cumulative):
    optimizer = UCB(param_groups(net), 0.25, cumulative=cumulative)
    weight = net[0].posterior["weight"]
    optimizer.consolidate()
    first = weight.sigma.detach().clone()
    weight.set_sigma(first / 2)
    optimizer.consolidate()
    expected = first * first / 2 if cumulative else first / 2
    torch.testing.assert_close(optimizer.state[weight.mu]["scale"], expected)


def test_two_optimisers_can_be_made_from_the_same_groups(net):
    groups = param_groups(net)
    first, second = UCB(groups, 0.1), UCB(groups, 0.2)
    weight = net[0].posterior["weight"]
    weight.prune(torch.rand(5, 4) > 0.5)
    for optimizer in (first, second):
        assert optimizer.keep_mask(weight.mu) is weight.keep
        assert all("gaussian" not in group for group in optimizer.state_dict()["param_groups"])
    assert {g["lr"] for g in first.param_groups} == {0.1}
    assert {g["lr"] for g in second.param_groups} == {0.2}


def test_a_new_head_starts_at_the_base_rate(net):
    optimizer = UCB(param_groups(net), 0.25)
    optimizer.consolidate()
    head = to_bayesian(nn.Linear(5, 2))
    for name, gaussian in gaussians(head):
        optimizer.add_param_group(gaussian_group(f"head.{name}", gaussian))
    for rate in moves(head, optimizer).values():
        torch.testing.assert_close(rate, torch.full_like(rate, 0.25))


def test_weights_that_leave_are_forgotten_and_the_others_are_not(net):
    head = to_bayesian(nn.Linear(2, 2))
    optimizer = UCB([*param_groups(net, "trunk."), *param_groups(head, "heads.1.")], momentum=0.9)
    for parameter in [*net.parameters(), *head.parameters()]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.consolidate()
    known = {name: {k: v.clone() for k, v in optimizer.state[p].items()} for name, p in net.named_parameters()}
    whole = optimizer.state_dict()
    optimizer.remove_param_groups("heads.1.")
    assert {group["name"].split(".")[0] for group in optimizer.param_groups} == {"trunk"}
    assert not any(p in known for p in head.parameters() for known in (optimizer.state, optimizer.gaussians))
    assert all(p.grad is None for p in head.parameters())
    assert all(p.grad is not None for p in net.parameters())
    fresh = UCB(param_groups(net, "trunk."), momentum=0.9)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        fresh.load_state_dict(whole)
    fresh.load_state_dict(drop_groups(whole, lambda name: name.startswith("heads.")))
    assert len(fresh.state) == len(optimizer.state)
    for name, parameter in net.named_parameters():
        for which, value in known[name].items():
            assert torch.equal(fresh.state[parameter][which], value)
            assert torch.equal(optimizer.state[parameter][which], value)


def test_a_plateau_lowers_every_rate_and_keeps_every_parameter(net):
    """Also after a task's end: the scales stay, the base rate drops, nothing leaves the optimiser."""
    optimizer = UCB(param_groups(net), 0.25, rho_lr=0.1)
    optimizer.consolidate()
    full = moves(net, optimizer)
    schedule = ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
    schedule.step(1.0)
    schedule.step(1.0)
    lowered = moves(net, optimizer)
    assert lowered.keys() == full.keys() == dict(net.named_parameters()).keys()
    for name, rate in lowered.items():
        torch.testing.assert_close(rate, 0.3 * full[name])


def test_momentum_is_torchs_own_in_the_first_task(net):
    other = copy.deepcopy(net)
    ours, reference = UCB(param_groups(net), 0.1, momentum=0.9), torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
    for seed in range(5):
        give_gradients(net, seed)
        give_gradients(other, seed)
        ours.step()
        reference.step()
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)


OPTIMISERS = {
    "ucb": lambda groups: UCB(groups, 0.05, momentum=0.5, scale=RateScale(gain=2.0)),
    "ucb literal": lambda groups: UCB(groups, 0.05, on="both", cumulative=True),
    "uniform": lambda groups: UniformLR(groups, 0.05, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_loading_the_state_into_a_fresh_optimiser_continues_bit_for_bit(net, name):
    x, y = torch.randn(16, 4), torch.randint(3, (16,))

    def train(net, optimizer, schedule, steps, seed):
        elbo = ELBO(50, Normal(), samples=2, generator=torch.Generator().manual_seed(seed))
        for _ in range(steps):
            optimizer.zero_grad()
            schedule.step(elbo.backward(net, x, y).loss)
            optimizer.step()

    def pair(net):
        optimizer = OPTIMISERS[name](param_groups(net))
        return optimizer, ReduceLROnPlateau(optimizer, patience=1, factor=0.5)

    optimizer, schedule = pair(net)
    train(net, optimizer, schedule, 5, seed=1)
    optimizer.consolidate()
    train(net, optimizer, schedule, 5, seed=2)
    saved = [copy.deepcopy(thing.state_dict()) for thing in (net, optimizer, schedule)]
    train(net, optimizer, schedule, 5, seed=3)
    optimizer.consolidate()
    train(net, optimizer, schedule, 5, seed=4)

    fresh = to_bayesian(nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3)))
    other, other_schedule = pair(fresh)
    for thing, state in zip((fresh, other, other_schedule), saved, strict=True):
        thing.load_state_dict(state)
    train(fresh, other, other_schedule, 5, seed=3)
    other.consolidate()
    train(fresh, other, other_schedule, 5, seed=4)
    for a, b in zip(net.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b)


def test_two_nets_in_one_optimiser_do_not_mix(double):
    trunk, head = to_bayesian(nn.Linear(3, 3), 0.1), to_bayesian(nn.Linear(3, 3), 0.8)
    for optimizer in (UCB, UniformLR):
        both = optimizer([*param_groups(trunk, "trunk."), *param_groups(head, "head.")], 0.1)
        both.consolidate()
        for net in (trunk, head):
            weight = net.posterior["weight"]
            scale = both.state[weight.mu]["scale"]
            torch.testing.assert_close(scale, weight.sigma.detach())


def test_a_lifted_cap_on_snr_breaks_nothing_at_mean_0(net):
    weight = net[0].posterior["weight"]
    with torch.no_grad():
        weight.mu[0, 0] = 0
    optimizer = UCB(param_groups(net), 0.1, scale=RateScale("snr", cap=None))
    optimizer.consolidate()
    weight.mu.grad = torch.zeros_like(weight.mu)
    optimizer.step()
    assert weight.mu.isfinite().all()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_copy_of_the_optimiser_works_like_it(net, name):
    optimizer = OPTIMISERS[name](param_groups(net))
    copied, twin = copy.deepcopy((optimizer, net))
    for opt, its in ((optimizer, net), (copied, twin)):
        opt.consolidate()
        give_gradients(its)
        opt.step()
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_closure_is_called(net):
    optimizer = UCB(param_groups(net), 0.1)
    x, y = torch.randn(8, 4), torch.randint(3, (8,))

    def closure():
        optimizer.zero_grad()
        return float(ELBO(8, Normal()).backward(net, x, y).loss)

    assert isinstance(optimizer.step(closure), float)


def test_uniform_gives_every_weight_of_a_layer_ucbs_mean_rate(net):
    ucb, uniform = UCB(param_groups(net), 0.25), UniformLR(param_groups(net), 0.25)
    ucb.consolidate()
    uniform.consolidate()
    for layer in (net[0], net[2]):
        mus = [g.mu for g in layer.posterior.values()]
        theirs = torch.cat([ucb.state[mu]["scale"].flatten() for mu in mus])
        ours = torch.cat([uniform.state[mu]["scale"].flatten() for mu in mus])
        torch.testing.assert_close(ours, theirs.mean().expand_as(ours))
        assert theirs.std() > 0


def test_uniform_with_a_constant(net):
    optimizer = UniformLR(param_groups(net), 0.5, constant=0.25)
    optimizer.consolidate()
    rates = moves(net, optimizer)
    for name, rate in rates.items():
        torch.testing.assert_close(rate, torch.full_like(rate, 0.125 if name.endswith("mu") else 0.5))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda g: UCB(g, 0), "lr"),
        (lambda g: UCB(g, 0.1, momentum=1.0), "momentum"),
        (lambda g: UCB(g, 0.1, momentum=-0.1), "momentum"),
        (lambda g: UCB(g, 0.1, on="sigma"), "mu, rho, both"),
        (lambda g: UCB(g, 0.1, rho_lr=-1), "rho_lr"),
        (lambda g: UCB(g, 0.1, scale=RateScale("size")), "certainty, snr"),
        (lambda g: UCB(g, 0.1, scale=RateScale(cap=0)), "cap"),
        (lambda g: UCB(g, 0.1, scale=RateScale(gain=-1)), "gain"),
        (lambda g: UCB([g[0]["params"]], 0.1), "param_groups"),
        (lambda g: UCB(g[0]["params"], 0.1), "param_groups"),
        (lambda g: UCB([*g, {**g[0], "params": [nn.Parameter(torch.zeros(1))]}], 0.1), "prefix"),
        (lambda g: UniformLR(g, 0.1, constant=0), "constant"),
    ],
)
def test_bad_options_are_refused(net, make, word):
    with pytest.raises(ValueError, match=word):
        make(param_groups(net))
