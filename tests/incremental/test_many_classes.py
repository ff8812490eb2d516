"""Thousands of classes: what is at work at a time is bounded, and so is how many examples are asked."""

import pytest
import torch

from ucb.incremental import Model, calibration, learning
from ucb.incremental.frozen import PAIRS, FrozenTrunkModel
from ucb.incremental.learning import choose_asked


@pytest.fixture
def sizes(monkeypatch):
    """Rows and numbers of all logits that are made, under bounds that a small test can reach."""
    monkeypatch.setattr(learning, "MOST_HELD_OUT", 40)
    monkeypatch.setattr(calibration, "VALUES", 20_000)
    made, whole = [], FrozenTrunkModel.predict_features

    def noted(learner, features):
        found = whole(learner, features)
        made.append(found.logits.shape)
        return found

    monkeypatch.setattr(FrozenTrunkModel, "predict_features", noted)
    return made


def many(classes, each=5, columns=4):
    generator = torch.Generator().manual_seed(0)
    centres = 4 * torch.randn(classes, 1, columns, generator=generator)
    x = (centres + torch.randn(classes, each, columns, generator=generator)).flatten(0, 1)
    return x, [str(number) for number in range(classes) for _ in range(each)]


@pytest.mark.usefixtures("small")
def test_what_learning_has_at_work_does_not_grow_with_the_square_of_the_classes(sizes):
    total = []
    for classes in (100, 400):
        sizes.clear()
        model = Model()
        model.learn(many(classes))
        assert max(shape.numel() for shape in sizes) <= calibration.VALUES
        assert sum(asked for asked, _ in model.waves[0].held_out.values()) == 40
        assert int(model.learner.head.counts.sum()) == 5 * classes, "those that were not asked are learnt too"
        total.append(sum(shape.numel() for shape in sizes))
    assert total == [2 * 40 * 2 * PAIRS * classes for classes in (100, 400)], "each is asked twice"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("classes", "columns"), [(2, 4), (300, 4), (2, 9000)])
def test_batches_follow_the_size_of_inputs_and_outputs(sizes, classes, columns):
    x, labels = many(classes, 4, columns)
    model = Model()
    model.learn((x, labels))
    sizes.clear()
    rows = model.predict(x.repeat(400 // len(x) + 1, 1)[:400])
    assert len(rows) == 400
    together = [shape[1] for shape in sizes]
    assert sum(together) == 400
    assert max(together) * (columns + model.learner.trunk.features + 2 * PAIRS * classes) <= calibration.VALUES
    assert max(together) > 1


def test_which_are_asked_depends_on_the_seed_alone():
    some = choose_asked(5000, 0)
    assert len(some.unique()) == len(some) == 1000
    assert torch.equal(some, choose_asked(5000, 0))
    assert not torch.equal(some, choose_asked(5000, 1))
    assert torch.equal(choose_asked(7, 0), torch.arange(7))
