"""A fixed trunk and an exact head: the order of tasks leaves no trace, and nobody need know the task."""

import pytest
import torch
from torch import nn

from tests.engine.runs import figures, small_run
from tests.methods.data import Given
from ucb.data.streams import Scenario
from ucb.methods import EvalContext, TaskInfo, known_methods
from ucb.methods.conjugate import ConjugateSettings
from ucb.nets import build_net, mlp
from ucb.seeds import generator_for
from ucb.testing import tiny_stream

HIDDEN = Scenario("one", task_known=False)
CONJUGATE = known_methods()["conjugate"]


def made(net, **settings):
    return CONJUGATE(net, ConjugateSettings(**settings), generator_for("noise"))


def tasks(count=3, size=40):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, 8, generator=generator), torch.randint(2, (size,), generator=generator) + 2 * index)
        for index in range(count)
    ]


def learnt(order):
    method = made(mlp((8,), [6], [16]), trunk="given")
    for index, which in enumerate(order):
        x, y = tasks()[which]
        method.begin_task(TaskInfo(index, len(x), 0, range(2 * which, 2 * which + 2)))
        assert method.phases() == ()
        method.end_task(Given(x, y))
    return method


def test_tasks_in_any_order_leave_the_same_head():
    torch.manual_seed(0)
    first = learnt([0, 1, 2])
    torch.manual_seed(0)
    second = learnt([2, 0, 1])
    torch.testing.assert_close(first.head.weights, second.head.weights, rtol=0, atol=1e-9)
    x = tasks()[0][0]
    said = [m.logits(x, EvalContext(0), 0, generator_for()) for m in (first, second)]
    torch.testing.assert_close(said[0], said[1])


def test_the_trunk_learns_the_first_task_and_then_stays():
    run = small_run("conjugate", stream=tiny_stream(scenario=HIDDEN))
    run.learn_task()
    assert run.progress.epochs_used == [2]
    trunk = {name: value.clone() for name, value in run.method.net.trunk.state_dict().items()}
    run.learn()
    assert run.progress.epochs_used == [2, 0, 0]
    assert all(torch.equal(trunk[name], value) for name, value in run.method.net.trunk.state_dict().items())
    assert run.method.head.counts.sum() == sum(len(task.train) for task in run.stream.tasks)


def test_with_heads_of_their_own_tasks_share_one_layer_and_answer_with_their_outputs():
    run = small_run("conjugate", trunk="given")
    run.learn()
    assert run.method.head.moments.shape[1] == 6
    x = torch.randn(5, 8)
    whole = run.method.settings.sharpness * run.method.head(run.method.net.trunk(x))
    for index in range(3):
        own = run.method.logits(x, EvalContext(index, index), 0, generator_for())
        torch.testing.assert_close(own[0], whole[:, 2 * index : 2 * index + 2])


def test_samples_have_the_posteriors_spread():
    method = learnt([0, 1, 2])
    x = tasks()[1][0][:3]
    drawn = method.logits(x, EvalContext(0), 20_000, generator_for("samples")) / method.settings.sharpness
    scores = method.head.scores(method.net.trunk(x))
    torch.testing.assert_close(drawn.mean(0), scores.mean, rtol=0, atol=0.01)
    expected = scores.variance[:, None] * method.head.noise().float()
    torch.testing.assert_close(drawn.var(0), expected, rtol=0.05, atol=1e-4)


def test_a_cut_run_goes_on_to_the_same_figures(tmp_path):
    whole, cut = small_run("conjugate"), small_run("conjugate", tmp_path)
    whole.learn()
    cut.learn_task()
    again = small_run("conjugate", tmp_path)
    assert again.resume()
    again.learn()
    assert figures(whole) == figures(again)


def test_filters_are_patches_of_the_first_task_with_mean_0_and_norm_1():
    torch.manual_seed(0)
    net = build_net("patches", (1, 12, 12), [2, 2], {"filters": 5, "size": 3, "cells": 2})
    method = made(net)
    x, y = torch.rand(30, 1, 12, 12), torch.arange(30) % 2
    method.begin_task(TaskInfo(0, 30, 0, range(2)))
    assert method.phases() == ()  # it has nothing to train
    before = net.trunk.filters.clone()
    method.end_task(Given(x, y))
    filters = net.trunk.filters
    assert not torch.equal(before, filters)
    torch.testing.assert_close(filters.flatten(1).norm(dim=1), torch.ones(5))
    torch.testing.assert_close(filters.mean((1, 2, 3)), torch.zeros(5), rtol=0, atol=1e-6)
    cut = nn.functional.unfold(x, 3).transpose(1, 2).reshape(-1, 9)
    cut = cut - cut.mean(1, keepdim=True)
    cosine = cut @ filters.flatten(1).T / cut.norm(dim=1, keepdim=True).clamp_min(1e-9)
    torch.testing.assert_close(cosine.max(0).values, torch.ones(5), rtol=0, atol=1e-5)
    method.begin_task(TaskInfo(1, 30, 1, range(2)))
    held = filters.clone()
    method.end_task(Given(1 - x, y))
    assert torch.equal(held, filters)


def test_a_filter_answers_the_cosine_of_its_patch_whatever_the_contrast():
    torch.manual_seed(0)
    trunk = build_net("patches", (1, 4, 4), [2], {"filters": 3, "size": 4, "cells": 1, "threshold": 0.3}).trunk
    x = 1000 * trunk.filters.detach()[:1] + 7
    patch = (x - x.mean()).flatten()
    expected = torch.relu(trunk.filters.flatten(1) @ patch / (patch.norm() + 1) - 0.3)
    torch.testing.assert_close(trunk(x)[0], expected, rtol=1e-3, atol=1e-3)
    assert float(trunk(x)[0, 0]) == pytest.approx(0.7, abs=2e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"size": 40}, "size must be at most 12"), ({"filters": 0}, "filters must be at least 1")],
)
def test_a_net_of_patches_that_cannot_be_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        build_net("patches", (1, 12, 12), [2], options)


def test_images_without_contrast_have_no_patches():
    trunk = build_net("patches", (1, 12, 12), [2], {"filters": 5, "size": 3}).trunk
    with pytest.raises(ValueError, match="too few patches"):
        trunk.fit(torch.zeros(4, 1, 12, 12), generator_for())


def test_features_that_are_no_numbers_are_refused():
    method = made(mlp((8,), [6], [16]), trunk="given")
    method.begin_task(TaskInfo(0, 40, 0, range(2)))
    with pytest.raises(ValueError, match="the features"):
        method.end_task(Given(torch.full((40, 8), torch.nan), torch.zeros(40, dtype=torch.long)))
    assert not method.head.gram.any()
