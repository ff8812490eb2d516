"""Nets of the transformers library, from small configurations, as they come: no wrapper, no download."""

import pytest
import torch
from torch import nn

import ucb
from ucb.bayes import ELBO, Normal, mean_forward, predict
from ucb.bayes.passes import Pass, run
from ucb.bayes.sampling import choose_sample_batching

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::ucb.bayes.DeterministicWarning")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 3}
ROWS, SAMPLES = 6, 3


def bert_config():
    return transformers.BertConfig(vocab_size=30, max_position_embeddings=16, **SMALL)


def bert():
    tokens, mask = torch.randint(30, (ROWS, 5)), torch.ones(ROWS, 5, dtype=torch.long)
    mask[2:, 3:] = 0
    net = transformers.BertForSequenceClassification(bert_config())
    return net, {"input_ids": tokens, "attention_mask": mask}


def vit():
    config = transformers.ViTConfig(image_size=8, patch_size=4, **SMALL)
    return transformers.ViTForImageClassification(config), torch.randn(ROWS, 3, 8, 8)


def deit():
    config = transformers.DeiTConfig(image_size=8, patch_size=4, **SMALL)
    return transformers.DeiTForImageClassification(config), {"pixel_values": torch.randn(ROWS, 3, 8, 8)}


NETS = [bert, vit, deit]


class Logits(nn.Module):
    """What had to be written by hand: it takes one tensor and answers with one."""

    def __init__(self, net, names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, x):
        parts = x.unbind(1) if len(self.names) > 1 else [x]
        return self.net(**dict(zip(self.names, parts, strict=True))).logits


def wrap(net, x):
    """Return the net inside a wrapper, and its inputs as one tensor."""
    if isinstance(x, torch.Tensor):
        return Logits(net, ["pixel_values"]), x
    return Logits(net, [*x]), torch.stack([*x.values()], 1) if len(x) > 1 else next(iter(x.values()))


@pytest.mark.parametrize("build", NETS)
@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("estimator", ["weights", "flipout"])
def test_it_gives_bit_for_bit_what_a_wrapper_that_returns_logits_gives(build, stack, estimator):
    net, x = build()
    y = torch.randint(3, (ROWS,))
    wrapped, packed = wrap(net, x)
    results = []
    for twin, batch in ((ucb.to_bayesian(net), x), (ucb.to_bayesian(wrapped), packed)):
        torch.manual_seed(5)  # dropout
        generator = torch.Generator().manual_seed(5)
        elbo = ELBO(50, Normal(0.5), samples=SAMPLES, estimator=estimator, stack=stack, generator=generator)
        found = [elbo.backward(twin, batch, y).loss, *(p.grad for p in twin.parameters() if p.grad is not None)]
        found += predict(twin, batch, SAMPLES, stack=stack, generator=generator)
        results.append([*found, mean_forward(twin.eval(), batch)])
    assert len(results[0]) == len(results[1]) > 20
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("build", NETS)
@pytest.mark.parametrize("training", [True, False])
def test_samples_travel_together(build, training):
    """Though ViT and DeiT ask a weight for its dtype; and each sample gives what it gives alone."""
    net, x = build()
    twin = ucb.to_bayesian(net).train(training)
    for estimator in ("weights", "local", "flipout"):
        assert choose_sample_batching(twin, x, Pass(estimator, ROWS, SAMPLES)) != "alone"
    twin.eval()
    p = Pass("weights", ROWS, SAMPLES)
    together = run(twin, x, p, shared=False)
    alone = [run(twin, x, Pass("weights", drawn={g: w[s] for g, w in p.drawn.items()})) for s in range(SAMPLES)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_a_batch_without_padding_does_not_decide_for_one_with_it():
    """BERT drops a mask that is all ones, so that its rows need not be multiplied; the next batch has another."""
    net, x = bert()
    twin = ucb.to_bayesian(net).eval()
    full = {**x, "attention_mask": torch.ones_like(x["attention_mask"])}
    for batch in (full, x, full):
        p = Pass("weights", ROWS, SAMPLES, torch.Generator().manual_seed(1))
        together = ucb.bayes.sampling.walk(twin, batch, p)
        alone = [run(twin, batch, Pass("weights", drawn={g: w[s] for g, w in p.drawn.items()})) for s in range(SAMPLES)]
        torch.testing.assert_close(together, torch.cat(alone))


def test_inputs_of_every_sort_go_along():
    net, x = bert()
    twin = ucb.to_bayesian(net).eval()
    more = {**x, "position_ids": torch.arange(5).unsqueeze(0), "inputs_embeds": None, "return_dict": True}
    seeds = [torch.Generator().manual_seed(2) for _ in range(2)]
    found = [predict(twin, b, 3, batch_size=4, stack=True, generator=g) for b, g in zip((x, more), seeds, strict=True)]
    torch.testing.assert_close(found[0], found[1])
    as_tuple = predict(twin, {**x, "return_dict": False}, 0).probabilities
    assert torch.equal(as_tuple, predict(twin, x, 0).probabilities)


def test_a_trunk_of_transformers_gets_heads():
    _, x = bert()
    net = ucb.HeadedNet(transformers.BertModel(bert_config()), 16, [2, 3])
    twin = ucb.to_bayesian(net.eval())
    expected = net.heads[0](net.trunk(**x).pooler_output)
    torch.testing.assert_close(mean_forward(twin, x), expected)
    torch.testing.assert_close(net(**x), expected)
    terms = ELBO(50, samples=2).backward(twin, x, torch.randint(2, (ROWS,)))
    assert terms.loss.isfinite()
    assert all(g.mu.grad is not None for name, g in ucb.gaussians(twin) if not name.startswith("heads.1"))
    by_first = ucb.HeadedNet(net.trunk, 16, [2], output=lambda answer: answer.last_hidden_state[:, 0])
    assert ucb.to_bayesian(by_first)({**x}).shape == (ROWS, 2)


def test_an_answer_without_logits_says_what_it_has():
    _, x = bert()
    twin = ucb.to_bayesian(transformers.BertModel(bert_config()))
    with pytest.raises(TypeError, match=r"not with a BaseModel\w+ of last_hidden_state, pooler_output: give output="):
        predict(twin, x)
    picks = ucb.to_bayesian(transformers.BertModel(bert_config()), output=lambda answer: answer.pooler_output)
    assert predict(picks, x, 2).probabilities.shape == (ROWS, 16)


def test_a_twin_learns_to_read():
    net, x = bert()
    y = (x["input_ids"][:, 1] > 14).long()
    twin = ucb.to_bayesian(net.eval(), 0.05)
    optimizer = ucb.UCB(ucb.param_groups(twin), lr=0.05)
    objective = ELBO(ROWS, temperature=1e-4)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        losses.append(float(objective.backward(twin, x, y).nll))
        optimizer.step()
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
