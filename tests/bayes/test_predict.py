import math

import pytest
import torch
from torch import nn

from ucb.bayes import predict, to_bayesian
from ucb.bayes.predict import from_logits


def test_summaries_of_known_distributions(double):
    """Two samples that are sure of different classes: all uncertainty is about the weights. Two that agree on a coin
    toss: none of it is."""
    sure = 50.0
    disagree = from_logits(torch.tensor([[[sure, 0.0]], [[0.0, sure]]]))
    torch.testing.assert_close(disagree.probabilities, torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(disagree.entropy, torch.tensor([math.log(2)]))
    torch.testing.assert_close(disagree.mutual_information, torch.tensor([math.log(2)]))
    toss = from_logits(torch.zeros(2, 1, 2))
    torch.testing.assert_close(toss.entropy, torch.tensor([math.log(2)]))
    torch.testing.assert_close(toss.mutual_information, torch.zeros(1))


def test_entropy_splits_into_what_is_known_and_unknown(double):
    logits = 3 * torch.randn(20, 7, 5)
    said = from_logits(logits)
    each = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(said.probabilities, each.probs.mean(0))
    torch.testing.assert_close(said.entropy, torch.distributions.Categorical(probs=each.probs.mean(0)).entropy())
    torch.testing.assert_close(said.mutual_information, said.entropy - each.entropy().mean(0))
    assert (said.mutual_information >= 0).all()
    assert torch.equal(said.label, each.probs.mean(0).argmax(-1))


def test_a_class_that_is_masked_out_is_no_trouble(double):
    said = from_logits(torch.tensor([[[1.0, 2.0, -math.inf]]]))
    torch.testing.assert_close(
        said.entropy, torch.distributions.Categorical(logits=torch.tensor([1.0, 2.0])).entropy()[None]
    )
    torch.testing.assert_close(said.mutual_information, torch.zeros(1))


def test_predictions_average_samples_batch_by_batch_and_restore_the_mode():
    net = to_bayesian(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 3)), init_std_ratio=0.5)
    net[0].eval()
    x = torch.randn(50, 4)
    said = predict(net, x, 200, batch_size=16)
    assert said.probabilities.shape == (50, 3)
    torch.testing.assert_close(said.probabilities.sum(1), torch.ones(50))
    assert [m.training for m in net] == [False, True, True]
    assert not said.probabilities.requires_grad
    again = predict(net, x, 200, batch_size=50, stack=True)
    torch.testing.assert_close(said.probabilities, again.probabilities, rtol=0, atol=0.1)
    mean = predict(net, x, 0)
    torch.testing.assert_close(mean.probabilities, net.eval()(x).softmax(-1))
    assert (mean.mutual_information < 1e-6).all()


def test_inputs_far_from_the_data_are_less_certain(double):
    """The weights' uncertainty shows more, the further an input lies from 0."""
    net = to_bayesian(nn.Linear(2, 3), init_std_ratio=1.0)
    near, far = predict(net, 0.1 * torch.randn(200, 2), 100), predict(net, 10 * torch.randn(200, 2), 100)
    assert far.mutual_information.mean() > 5 * near.mutual_information.mean()


def test_bad_numbers_are_refused():
    net = to_bayesian(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="samples"):
        predict(net, torch.zeros(1, 2), -1)
    with pytest.raises(ValueError, match="batch_size"):
        predict(net, torch.zeros(1, 2), batch_size=0)


def test_a_little_mutual_information_is_right_in_single_precision():
    """Against the closed form for small differences: half the variance of p over its mean, summed over classes."""
    logits = torch.randn(1, 50, 5, dtype=torch.float64) + 1e-4 * torch.randn(20, 50, 5, dtype=torch.float64)
    logits = logits.float()
    said, p = from_logits(logits), logits.double().softmax(-1)
    expected = (p.var(0, correction=0) / p.mean(0)).sum(-1) / 2
    assert expected.max() < 1e-7
    torch.testing.assert_close(said.mutual_information.double(), expected, rtol=1e-3, atol=0)
    assert said.mutual_information.dtype == said.probabilities.dtype == torch.float32
