"""Two text tasks with a BERT of the transformers library: keyword inputs, an attention mask, and `ucb.Learner`.

    python examples/text_with_transformers.py [--quick]      # needs `pip install transformers`; downloads nothing

Reviews are put together from a few words. The first task is whether a review praises or complains, the second whether
it is about food or about music. Sentences differ in length: every batch is padded to its longest one, and the mask says
what is padding. The net is built from a configuration; a pretrained one is used in the same way. UCB turns all its
linear and normalisation layers into Bayesian ones (embeddings stay ordinary, which a warning says), and the learner
adds a head for each task. After both tasks (half a minute on one core) it prints:

    ord-ft: opinion 47.2 %, subject 100.0 %
    ucb: opinion 66.8 %, subject 100.0 %
    ucb-p: opinion 93.6 %, subject 91.6 %
    'the concert was superb': praise, entropy 0.03 nats
    'we found the concert there': praise, entropy 0.69 nats

Fine-tuning forgets the first task, UCB part of it; UCB-P keeps it, and leaves the second task fewer weights. The second
review says nothing either way, and an entropy of 0.69 nats, log 2, is what a coin has.
"""

import argparse
import random
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel

import ucb
from ucb.bayes import DeterministicWarning

PRAISE, COMPLAINT = ["lovely", "superb", "delightful", "great"], ["awful", "dull", "dreadful", "poor"]
FOOD, MUSIC = ["soup", "bread", "dinner", "dessert"], ["concert", "song", "band", "violin"]
FILLING = ["the", "was", "we", "found", "it", "and", "very", "really", "last", "night", "again", "there"]
WORDS = ["[PAD]", "[CLS]", *PRAISE, *COMPLAINT, *FOOD, *MUSIC, *FILLING]

Example = tuple[list[int], int]


def write_review(chance: random.Random, opinion: list[str], subject: list[str]) -> list[int]:
    """Return the numbers of a review's words, in any order, after the token that begins it."""
    words = [*chance.choices(FILLING, k=chance.randint(2, 9)), chance.choice(opinion), chance.choice(subject)]
    chance.shuffle(words)
    return [WORDS.index(word) for word in ["[CLS]", *words]]


def make_task(name: str, count: int, seed: int) -> list[Example]:
    """Return labelled reviews: by their opinion, or by their subject."""
    chance = random.Random(f"{name} {seed}")
    found = []
    for _ in range(count):
        opinion, subject = chance.randrange(2), chance.randrange(2)
        review = write_review(chance, (PRAISE, COMPLAINT)[opinion], (FOOD, MUSIC)[subject])
        found.append((review, opinion if name == "opinion" else subject))
    return found


def collate(examples: list[Example]) -> dict[str, Tensor]:
    """Pad a batch to its longest review; the learner finds the targets under ``labels``."""
    longest = max(len(words) for words, _ in examples)
    tokens = torch.tensor([words + [0] * (longest - len(words)) for words, _ in examples])
    return {
        "input_ids": tokens,
        "attention_mask": (tokens > 0).long(),
        "labels": torch.tensor([y for _, y in examples]),
    }


def make_loader(name: str, count: int, seed: int) -> DataLoader[Any]:
    """Return reviews in shuffled batches of 32."""
    return DataLoader(make_task(name, count, seed), batch_size=32, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]


def make_net() -> BertModel:
    """Return a small BERT. It begins with larger weights than a large one would, and needs no dropout."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        max_position_embeddings=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertModel(config)


def learn(method: str, quick: bool, **settings: Any) -> ucb.Learner:
    """Learn both tasks with a method, and print how well they are known."""
    training = ucb.Training(ucb.Schedule(epochs=1 if quick else 12))
    learner = ucb.Learner(make_net(), method=method, training=training, lr=0.1, **settings)
    for name in ("opinion", "subject"):
        train, test = make_loader(name, 64 if quick else 1000, seed=0), make_loader(name, 64 if quick else 500, seed=1)
        metrics = learner.learn(train, test=test, name=name)
    print(f"{method}: opinion {metrics[0].accuracy:.1f} %, subject {metrics[1].accuracy:.1f} %")
    return learner


def main(quick: bool = False) -> None:
    """Compare fine-tuning, UCB and UCB-P, and ask the last one about two reviews."""
    warnings.simplefilter("ignore", DeterministicWarning)
    learn("ord-ft", quick)
    for method in ("ucb", "ucb-p"):
        learner = learn(method, quick, samples=2, estimator="weights", init_std_ratio=0.1)
    for text in ("the concert was superb", "we found the concert there"):
        tokens = torch.tensor([[WORDS.index(word) for word in ["[CLS]", *text.split()]]])
        said = learner.predict({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, task=0)
        print(f"{text!r}: {('praise', 'complaint')[int(said.label)]}, entropy {float(said.entropy):.2f} nats")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few reviews, in seconds")
    main(parser.parse_args().quick)
