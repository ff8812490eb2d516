"""How samples travel through a net whose forward knows nothing of them."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ucb.bayes import ELBO, Normal, forward, mean_forward, to_bayesian
from ucb.bayes.passes import Pass
from ucb.bayes.sampling import walk


class Residual(nn.Module):
    """Adds its own input to a later layer's output, so the input must have a row for each sample."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


class Twice(nn.Module):
    """Uses one layer twice."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x):
        return self.cell(torch.tanh(self.cell(x)))


class ReadsWeight(nn.Module):
    """Goes around the layer's forward."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 3)

    def forward(self, x):
        return nn.functional.linear(x, self.cell.weight, self.cell.bias)


class FoldsTime(nn.Module):
    """Turns [batch, time, features] into batch * time rows."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 3)

    def forward(self, x):
        return self.cell(x.reshape(-1, 4)).reshape(x.shape[0], -1)


class AveragesOverItsInputsRows(nn.Module):
    """Reshapes by the number of rows of the input: shared rows would silently mix the samples."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        h = self.first(x)
        return self.second(h.reshape(x.shape[0], 6, -1).mean(-1))


def loop_and_stack(net, x, samples=5):
    """The same weight samples, sent together and one by one."""
    p = Pass("weights", len(x), samples)
    together = walk(net, x, p)
    alone = [
        walk(net, x, Pass("weights", len(x), drawn={g: p.all_drawn(g)[s] for g in p.drawn}))[0] for s in range(samples)
    ]
    return together, torch.stack(alone)


@pytest.mark.parametrize("build", [Residual, Twice, AveragesOverItsInputsRows])
@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_samples_together_equal_samples_one_by_one(double, build, rows):
    net = to_bayesian(build())
    torch.testing.assert_close(*loop_and_stack(net, torch.randn(rows, 4)))


def test_a_net_met_first_with_one_row_is_not_misjudged(double):
    net = to_bayesian(Residual())
    forward(net, torch.randn(1, 4), 3, stack=True)
    assert forward(net, torch.randn(6, 4), 3, stack=True).shape == (3, 6, 4)


def test_looking_whether_input_can_be_shared_leaves_no_trace(double):
    net = to_bayesian(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))
    net[0].eval()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    forward(net, torch.randn(6, 4), 3, stack=True)
    assert [m.training for m in net] == [False, True, True]
    assert int(net[1].num_batches_tracked) == 3
    assert torch.equal(net[0].posterior["weight"].mu, state["0.posterior.weight.mu"])


def test_a_layer_used_twice_sees_one_sample(double):
    net = to_bayesian(Twice())
    p = Pass("weights", 2)
    x = torch.randn(2, 4)
    out = walk(net, x, p)[0]
    w, b = (p.drawn[net.cell.posterior[name]] for name in ("weight", "bias"))
    torch.testing.assert_close(out, torch.tanh(x @ w.T + b) @ w.T + b)


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_noise_on_activations_refuses_a_layer_used_twice(estimator):
    with pytest.raises(RuntimeError, match=r"used twice.*estimator='weights'"):
        forward(to_bayesian(Twice()), torch.randn(2, 4), 1, estimator)


def test_code_that_reads_a_weight_directly_gets_this_passs_weight(double):
    net = to_bayesian(ReadsWeight())
    x = torch.randn(5, 4)
    torch.testing.assert_close(mean_forward(net, x), net.cell.eval()(x))
    net.train()
    outs = forward(net, x, 20, stack=False)
    assert outs.std(0).min() > 0
    ELBO(5, Normal(), nn.functional.mse_loss, samples=3).backward(net, x, torch.zeros(5, 3))
    assert all(p.grad.abs().min() > 0 for p in net.parameters())
    torch.testing.assert_close(*loop_and_stack(net, x))


@pytest.mark.parametrize("samples", [1, 3, 5])  # 3 is also the length of time, so B * T rows look like B * S
def test_a_net_that_folds_time_into_the_batch_is_right_or_refused(double, samples):
    net, x = to_bayesian(FoldsTime()), torch.randn(2, 3, 4)
    torch.testing.assert_close(*loop_and_stack(net, x, samples))
    for estimator in ("local", "flipout"):
        with pytest.raises(RuntimeError, match=r"folds another axis.*estimator='weights'"):
            forward(net, x, samples, estimator)


class TimeFirst(nn.Module):
    """Puts time in front of the batch: when both are equally long, nothing in the shapes tells them apart."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 3)

    def forward(self, x):
        return self.cell(x.transpose(0, 1)).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("time", [2, 3, 5, 6])
@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_rows_that_are_not_examples_are_refused_even_where_the_lengths_agree(double, time, estimator):
    net, x = to_bayesian(TimeFirst()), torch.randn(5, time, 4)
    for samples in (1, 3):
        with pytest.raises(RuntimeError, match="estimator='weights'"):
            forward(net, x, samples, estimator)
    torch.testing.assert_close(*loop_and_stack(net, x))


@pytest.mark.parametrize("build", [ReadsWeight, Residual])
def test_trying_the_ways_leaves_buffers_and_random_numbers_alone(build):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            assert len(x) >= 5, "a net may need some rows"
            return self.inner(nn.functional.dropout(x, 0.5))

    net = to_bayesian(Counting())
    state = torch.get_rng_state()
    outs = []
    for _ in range(2):
        torch.set_rng_state(state)
        outs.append(forward(net, torch.ones(5, 4), 3, stack=True, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(*outs)  # the first call tried the ways, the second did not
    assert float(net.calls) == (6 if build is ReadsWeight else 2)


def test_a_net_that_changes_is_tried_again(double):
    class Switch(Residual):
        residual = False

        def forward(self, x):
            return super().forward(x) if self.residual else self.second(self.first(x))

    net, x = to_bayesian(Switch()), torch.randn(6, 4)
    forward(net, x, 3, stack=True)
    net.residual = True
    torch.testing.assert_close(*loop_and_stack(net, x))


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_is_right_or_refused(double, reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            inner = checkpoint(self.inner, x, use_reentrant=reentrant) if self.training else self.inner(x)
            return self.head(torch.tanh(inner))

    net = to_bayesian(Checkpointed())
    x, y = torch.randn(5, 4, requires_grad=True), torch.randint(2, (5,))
    found = []
    for training in (True, False):
        net.train(training).zero_grad()
        ELBO(5, Normal(), samples=2, generator=torch.Generator().manual_seed(0)).backward(net, x, y)
        found.append([p.grad.clone() for p in net.parameters()])
    torch.testing.assert_close(*found)
    net.train()
    with pytest.raises(RuntimeError, match="checkpointing"):
        ELBO(5, Normal(), samples=2)(net, x, y).loss.backward()


def test_a_generator_fixes_the_noise_and_the_global_state_stays(double):
    net = to_bayesian(nn.Linear(4, 3))
    x = torch.randn(5, 4)
    state = torch.get_rng_state()
    for estimator in ("weights", "local", "flipout"):
        for stack in (True, False):
            a, b, c = (
                forward(net, x, 3, estimator, stack=stack, generator=torch.Generator().manual_seed(seed))
                for seed in (1, 1, 2)
            )
            assert torch.equal(a, b)
            assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_pass_that_fails_does_not_linger(double):
    net = to_bayesian(nn.Linear(4, 3)).eval()
    with pytest.raises(RuntimeError):
        forward(net, torch.randn(5, 7), 3)
    x = torch.randn(5, 4)
    assert torch.equal(net(x), net(x))
