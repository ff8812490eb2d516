"""Transformers' nets learn tasks through the Learner: keyword inputs, masks, answers that are objects."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ucb.bayes import DeterministicWarning
from ucb.engine import Learner, Schedule, Training

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings(f"ignore::{DeterministicWarning.__module__}.{DeterministicWarning.__name__}")

TRAINING = Training(Schedule(epochs=2), batch_size=16, eval_samples=2)
METHODS = ["ucb", "ucb-ng", "ewc", "ucb-p"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def make_bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(**SMALL, vocab_size=20, max_position_embeddings=12, num_labels=8)
    return transformers.BertForSequenceClassification(config)


def make_vit():
    torch.manual_seed(0)
    config = transformers.ViTConfig(**SMALL, image_size=8, patch_size=4, num_channels=1, num_labels=8)
    return transformers.ViTForImageClassification(config)


class Sentences(Dataset):
    """Token sequences of several lengths; the label is which of two tokens comes first."""

    def __init__(self, task, size=64):
        random = torch.Generator().manual_seed(task)
        self.lengths = torch.randint(4, 11, (size,), generator=random)
        self.tokens = torch.randint(3, 20, (size, 10), generator=random)
        self.labels = torch.arange(size) % 2
        self.tokens[:, 1] = 3 + 2 * task + self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, item):
        mask = (torch.arange(10) < self.lengths[item]).long()
        return {"input_ids": self.tokens[item] * mask, "attention_mask": mask, "labels": self.labels[item]}


class Pictures(Dataset):
    """Noise with a bright half, the left or the right one, or the upper or the lower one."""

    def __init__(self, task, size=64):
        random = torch.Generator().manual_seed(task)
        self.pixels, self.labels = torch.randn(size, 1, 8, 8, generator=random), torch.arange(size) % 2
        bright = torch.where(torch.arange(8) < 4, 1.0, -1.0) * (1 - 2 * self.labels)[:, None]
        self.pixels += bright[:, None, None, :] if task else bright[:, None, :, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, item):
        return {"pixel_values": self.pixels[item], "labels": self.labels[item]}


class WrappedBert(nn.Module):
    """What a user would have written: one tensor goes in, one comes out."""

    def __init__(self):
        super().__init__()
        self.inner = make_bert()

    def forward(self, x):
        return self.inner(input_ids=x[:, 0], attention_mask=x[:, 1]).logits


class WrappedViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = make_vit()

    def forward(self, x):
        return self.inner(x).logits


KINDS = {
    "bert": (make_bert, WrappedBert, Sentences, lambda x: torch.stack([x["input_ids"], x["attention_mask"]], 1)),
    "vit": (make_vit, WrappedViT, Pictures, lambda x: x["pixel_values"]),
}


def learn(net, data, method, split=None):
    settings = {} if method == "ewc" else {"samples": 2}
    options = {} if split is None else {"split": split}
    made = Learner(net, method=method, training=TRAINING, lr=0.05, **settings, **options)
    for task in range(2):
        shown = DataLoader(data(task), batch_size=16, shuffle=True)
        made.learn(shown, validation=data(task), test=data(task))
    return made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_net_of_transformers_learns_as_a_wrapper_that_returns_logits(kind, method):
    build, wrap, data, as_one = KINDS[kind]
    plain = learn(build(), data, method)

    def split(batch):
        return as_one(batch), batch["labels"]

    wrapped = learn(wrap(), data, method, split)
    assert plain.matrix.after == wrapped.matrix.after
    ours, theirs = plain.net.state_dict(), wrapped.net.state_dict()
    renamed = {name.replace("trunk.inner.", "trunk."): value for name, value in theirs.items()}
    assert ours.keys() == renamed.keys()
    assert all(torch.equal(ours[name], value) for name, value in renamed.items())
    assert all(math.isfinite(value) for row in plain.matrix.after for value in row)
    first = data(0)[0]
    x = {name: value[None] for name, value in first.items() if name != "labels"}
    assert plain.predict(x, task=0).probabilities.shape == (1, 2)


def pad_to_the_longest(items):
    """As tokenisers do: every batch is as long as its longest sentence."""
    length = max(int(item["attention_mask"].sum()) for item in items)
    return {
        name: torch.stack([item[name] if name == "labels" else item[name][:length] for item in items])
        for name in items[0]
    }


@pytest.mark.parametrize("method", METHODS)
def test_batches_may_have_lengths_of_their_own(method):
    made = Learner(make_bert(), method=method, training=TRAINING, **({} if method == "ewc" else {"samples": 2}))
    for task in range(2):
        data = DataLoader(Sentences(task), batch_size=4, shuffle=True, collate_fn=pad_to_the_longest)
        row = made.learn(data, test=data)
    assert all(math.isfinite(judged.nll) for judged in row)


def test_a_trunk_may_answer_with_pooled_features_or_what_a_function_picks():
    torch.manual_seed(0)
    trunk = transformers.BertModel(transformers.BertConfig(**SMALL, vocab_size=20, max_position_embeddings=12))
    pooled = Learner(trunk, method="ord-ft", training=TRAINING)
    pooled.learn(Sentences(0))
    assert pooled.net.num_features == 16
    picked = Learner(trunk, method="ord-ft", training=TRAINING, output=lambda answer: answer.last_hidden_state[:, 0])
    picked.learn(Sentences(0))
    assert picked.net.num_features == 16
    for made, name in ((pooled, "pooler_output"), (picked, "last_hidden_state")):
        inner, tokens = made.net.trunk.eval(), Sentences(0).tokens
        wanted = inner(tokens)[name] if made is pooled else inner(tokens)[name][:, 0]
        assert torch.equal(made.net.features({"input_ids": tokens}), wanted)
