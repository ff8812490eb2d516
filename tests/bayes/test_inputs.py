"""Batches that are more than a tensor, answers that are more than a tensor, and nets that keep something of a batch."""

import copy
import random
from collections import UserDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ucb
from ucb.bayes import ELBO, Normal, forward, mean_forward, predict, to_bayesian
from ucb.bayes.passes import Pass, count_rows, first_tensor, kind_of, map_rows, run, split_rows, take_rows
from ucb.bayes.sampling import choose_sample_batching

ROWS, SAMPLES = 7, 3


class Reader(nn.Module):
    """Takes tokens, a mask, numbers, a table that all rows share and a flag; the flag turns the table off."""

    def __init__(self):
        super().__init__()
        self.register_buffer("words", torch.randn(9, 4))
        self.first, self.side, self.last = nn.Linear(4, 6), nn.Linear(2, 6), nn.Linear(6, 3)

    def forward(self, tokens, mask, numbers, places=None, plain=False):
        words = self.words[tokens] if places is None or plain else self.words[tokens] + places
        h = torch.tanh(self.first(words)) * mask.unsqueeze(-1)
        return self.last(torch.relu(h.sum(1) / mask.sum(1, keepdim=True) + self.side(numbers)))


class Packed(nn.Module):
    """The same net for one tensor that holds tokens, mask and numbers: what a user had to write by hand."""

    def __init__(self, net, places):
        super().__init__()
        self.net, self.places = net, places

    def forward(self, x):
        return self.net(x[:, :5].long(), x[:, 5:10], x[:, 10:], self.places)


def inputs():
    tokens, mask, numbers = torch.randint(9, (ROWS, 5)), (torch.rand(ROWS, 5) < 0.7).float(), torch.randn(ROWS, 2)
    mask[:, 0] = 1
    places = torch.randn(1, 5, 4)
    named = {"tokens": tokens, "mask": mask, "numbers": numbers, "places": places, "plain": False}
    return named, torch.cat([tokens.float(), mask, numbers], 1), places


FORMS = {"mapping": dict, "UserDict": UserDict, "tuple": lambda x: tuple(x.values()), "list": lambda x: [*x.values()]}


def learn(net, x, y, estimator, stack):
    """Return all that an objective and a prediction say of a net, under fixed noise."""
    generator = torch.Generator().manual_seed(1)
    elbo = ELBO(50, Normal(0.7), samples=SAMPLES, estimator=estimator, stack=stack, generator=generator)
    found = []
    for step in (lambda: elbo.backward(net, x, y), lambda: elbo(net, x, y)):
        net.zero_grad()
        terms = step()
        if terms.loss.requires_grad:
            terms.loss.backward()
        found += [terms.loss.detach(), *(p.grad.clone() for p in net.parameters())]
    net.zero_grad()
    found += [elbo.add_gradients(net, x, y), *(p.grad.clone() for p in net.parameters())]
    found += [*predict(net, x, 4, batch_size=3, stack=stack, generator=generator), *predict(net, x, 0)]
    return [*found, mean_forward(net, x).detach(), forward(net, x, 2, stack=stack, generator=generator).detach()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
def test_every_form_of_a_batch_gives_bit_for_bit_what_one_tensor_gives(form, stack, estimator):
    named, packed, places = inputs()
    net, y = to_bayesian(Reader()), torch.randint(3, (ROWS,))
    wrapped = to_bayesian(Packed(Reader(), places))
    wrapped.net.load_state_dict(net.state_dict())
    expected = learn(wrapped, packed, y, estimator, stack)
    found = learn(net, FORMS[form](named), y, estimator, stack)
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_ucbng_sees_the_curvature_of_every_form(form):
    named, packed, places = inputs()
    seen = []
    plain = to_bayesian(Reader())
    wrapped = to_bayesian(Packed(Reader(), places))
    wrapped.net.load_state_dict(plain.state_dict())
    for net, x in ((wrapped, packed), (plain, FORMS[form](named))):
        elbo = ELBO(50, temperature=0.0, generator=torch.Generator().manual_seed(1))
        optimizer = ucb.UCBNG(ucb.param_groups(net), num_examples=50)
        elbo.backward(net, x, torch.zeros(ROWS, dtype=torch.long))
        optimizer.observe(elbo, net, x)
        assert optimizer.rows == ROWS
        optimizer.step()
        optimizer.measure(elbo, net, x, passes=4)
        seen.append([gaussian.sigma for _, gaussian in ucb.gaussians(net)])
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_rows_travel_with_the_samples_and_the_rest_goes_along():
    """Every sample that travels gives what it gives alone; a table of 1 row is not taken for the batch's."""
    named, _, _ = inputs()
    net = to_bayesian(Reader())
    assert choose_sample_batching(net, named, Pass("weights", ROWS, SAMPLES)) == "expanded"
    p = Pass("weights", ROWS, SAMPLES)
    together = run(net, named, p, shared=False)
    alone = [run(net, named, Pass("weights", drawn={g: w[s] for g, w in p.drawn.items()})) for s in range(SAMPLES)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_what_a_batch_is():
    Pair = namedtuple("Pair", "rows table")
    rows, table = torch.arange(6).reshape(3, 2), torch.arange(4)
    batch = {"scale": torch.tensor(2.0), "x": rows, "more": [Pair(rows + 1, table), None], "flag": True}
    assert first_tensor(batch) is rows
    assert count_rows(batch) == 3
    some = take_rows(batch, torch.tensor([2, 0]))
    assert torch.equal(some["x"], rows[[2, 0]])
    assert torch.equal(some["more"][0].rows, rows[[2, 0]] + 1)
    assert some["more"][0].table is table
    assert some["scale"] is batch["scale"]
    assert (some["more"][1], some["flag"]) == (None, True)
    assert [len(part["x"]) for part in split_rows(batch, 2)] == [2, 1]
    assert [len(part) for part in split_rows(rows[:0], 2)] == [0]
    assert torch.equal(map_rows(lambda t: t * 2, (rows, table))[0], rows * 2)
    for nothing in ({"a": 3}, (), np.ones((2, 3)), torch.tensor(1.0)):
        with pytest.raises(TypeError, match="a batch is a tensor, or a tuple or mapping"):
            forward(to_bayesian(nn.Linear(2, 2)), nothing)
    with pytest.raises(ValueError, match="batch is empty"):
        ELBO(9).backward(to_bayesian(Reader()), take_rows(inputs()[0], slice(0)), torch.zeros(0, dtype=torch.long))


def test_the_kind_of_a_batch_knows_flags_rows_and_axes_but_no_numbers():
    named, _, _ = inputs()
    kind = kind_of(named)
    assert kind == kind_of({**named, "mask": named["mask"] * 0})
    assert kind == kind_of(take_rows(named, slice(4)))
    for name, value in (("plain", True), ("places", None), ("places", named["places"].expand(ROWS, -1, -1))):
        assert kind != kind_of({**named, name: value})
    assert kind != kind_of({**named, "numbers": named["numbers"].double()})


def test_a_table_as_long_as_the_last_piece_is_not_multiplied():
    """Probed with 7 rows and a table of 2, the net goes on to 2 rows: the table must not pass for rows unseen."""

    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 3)

        def forward(self, index, table, x):
            return x + self.first(table[index])

    net = to_bayesian(Looks())
    batch = {"index": torch.randint(2, (ROWS,)), "table": torch.randn(2, 4), "x": torch.randn(ROWS, 3)}
    forward(net, batch, SAMPLES, stack=True)
    few = {name: value[:2] for name, value in batch.items()}
    seeds = [torch.Generator().manual_seed(2) for _ in range(2)]
    together = forward(net, few, SAMPLES, stack=True, generator=seeds[0])
    p = Pass("weights", 2, SAMPLES, seeds[1])
    drawn = {g: p.weight(g) for _, g in ucb.gaussians(net)}
    alone = [run(net, few, Pass("weights", drawn={g: w[s] for g, w in drawn.items()})) for s in range(SAMPLES)]
    torch.testing.assert_close(together, torch.cat(alone))


class Answers(nn.Module):
    """Answers in some form."""

    def __init__(self, form):
        super().__init__()
        self.layer, self.form = nn.Linear(4, 3), form

    def forward(self, x):
        return self.form(self.layer(x))


ANSWERS = {
    "tuple": lambda h: (h, h + 1),
    "list": lambda h: [h],
    "logits": lambda h: {"hidden": h + 1, "logits": h},
    "the only entry": lambda h: {"hidden": h},
    "object": lambda h: SimpleNamespace(loss=None, logits=h),
    "named tuple": lambda h: namedtuple("Answer", "loss logits")(None, h),
}


@pytest.mark.parametrize("form", ANSWERS)
@pytest.mark.parametrize("stack", [True, False])
def test_the_tensor_that_counts_is_found_in_an_answer(form, stack):
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    net, plain = to_bayesian(Answers(ANSWERS[form])), to_bayesian(Answers(lambda h: h))
    plain.load_state_dict(net.state_dict())
    for a, b in zip(*(learn(each, x, y, "weights", stack) for each in (net, plain)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (lambda h: {"a": h, "b": h}, "a dict of a, b"),
        (lambda h: (None, h), "a tuple of NoneType, Tensor"),
        (lambda h: (), "a tuple"),
        (lambda h: SimpleNamespace(hidden=h), "a SimpleNamespace of hidden"),
        (lambda h: {"logits": {"a": h}}, "a dict of logits"),
        (lambda h: 3.0, "a float"),
    ],
)
def test_an_answer_without_such_a_tensor_gets_one_sentence(form, said):
    net, x = to_bayesian(Answers(form)), torch.randn(6, 4)
    for samples in (1, 3):
        with pytest.raises(TypeError, match=rf"the net must answer with one tensor, not with {said}: give output="):
            forward(net, x, samples, stack=True)


def second(answer):
    return answer["b"]


def test_a_function_picks_the_tensor_and_stays_with_copies_states_and_wrappers():
    x = torch.randn(6, 4)
    net = to_bayesian(Answers(lambda h: {"a": h, "b": 2 * h}), output=second)
    plain = to_bayesian(Answers(lambda h: 2 * h)).eval()
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(x), plain(x))
    other = to_bayesian(Answers(lambda h: {"a": h, "b": 2 * h}), output=second)
    other.load_state_dict(net.state_dict(), strict=True)
    for each in (net, copy.deepcopy(net), other, nn.Sequential(net), nn.DataParallel(net)):
        assert torch.equal(mean_forward(each, x), plain(x))
        assert forward(each, x, 3, stack=True).shape == (3, 6, 3)
    with pytest.raises(TypeError, match="output must pick one tensor from the answer of the net, not a NoneType"):
        forward(to_bayesian(nn.Linear(4, 2), output=lambda answer: None), x)


class Pooled(nn.Module):
    """A trunk with keyword inputs that answers as transformers' do."""

    def __init__(self, pools=True):
        super().__init__()
        self.layer, self.pools = nn.Linear(4, 5), pools

    def forward(self, x, mask=None):
        h = self.layer(x)
        h = h if mask is None else h * mask.unsqueeze(-1)
        return SimpleNamespace(last_hidden_state=h, pooler_output=h.mean(1) if self.pools else None)


def test_a_headed_net_runs_every_form_of_a_batch():
    x, mask, y = torch.randn(6, 3, 4), torch.ones(6, 3), torch.randint(2, (6,))
    mask[:, 2] = 0
    net = ucb.HeadedNet(Pooled(), 5, [2, 4])
    expected = net.heads[0]((net.trunk.layer(x) * mask.unsqueeze(-1)).mean(1))
    for found in (net(x, mask), net(x=x, mask=mask), net({"x": x, "mask": mask}), net((x, mask)), net([x, mask])):
        assert torch.equal(found, expected)
    assert torch.equal(net(x), net.heads[0](net.trunk.layer(x).mean(1)))
    assert torch.equal(net.features((x, mask)), (net.trunk.layer(x) * mask.unsqueeze(-1)).mean(1))
    with pytest.raises(TypeError, match="either by place or by name"):
        net(x, mask=mask)
    net.current = None
    assert net({"x": x, "mask": mask}).shape == (6, 6)
    net.current = 1
    twin = to_bayesian(net)
    answers = [
        predict(twin, form, 3, stack=True, generator=torch.Generator().manual_seed(3)).probabilities
        for form in ({"x": x, "mask": mask}, (x, mask))
    ]
    assert answers[0].shape == (6, 4)
    assert torch.equal(*answers)
    assert ELBO(9, samples=2).backward(twin, {"x": x, "mask": mask}, y).loss.isfinite()


def test_a_headed_net_is_traced_by_torch_fx():
    net, x = ucb.HeadedNet(nn.Sequential(nn.Linear(4, 5), nn.ReLU()), 5, [2]), torch.randn(6, 4)
    assert torch.equal(torch.fx.symbolic_trace(net)(x), net(x))


def test_a_headed_net_takes_features_from_its_trunks_answer():
    def first_place(answer):
        return answer.last_hidden_state[:, 0]

    x = torch.randn(6, 3, 4)
    with pytest.raises(
        TypeError, match=r"the trunk must answer with one tensor, not with a SimpleNamespace of last_hid"
    ):
        ucb.HeadedNet(Pooled(pools=False), 5, [2])(x)
    net = ucb.HeadedNet(Pooled(pools=False), 5, [2], output=first_place)
    expected = net.heads[0](net.trunk.layer(x)[:, 0])
    for each in (net, copy.deepcopy(net), to_bayesian(net).eval(), copy.deepcopy(to_bayesian(net)).eval()):
        torch.testing.assert_close(each(x), expected)
    with pytest.raises(TypeError, match="output must pick one tensor from the answer of the trunk, not a SimpleN"):
        ucb.HeadedNet(Pooled(), 5, [2], output=lambda answer: answer)(x)


@pytest.mark.parametrize("kept", ["buffer", "attribute"])
@pytest.mark.parametrize("stack", [True, False])
def test_a_net_that_keeps_a_state_of_every_row_runs_one_sample_at_a_time(double, kept, stack):
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = nn.Linear(4, 5), nn.Linear(5, 3)
            if kept == "buffer":
                self.register_buffer("state", torch.zeros(6, 5))
            else:
                self.state = None

        def forward(self, x):
            before = 0 if self.state is None else self.state
            h = torch.tanh(self.inner(x) + before)
            self.state = h.detach()
            return self.out(h)

    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    net = to_bayesian(Remembers())
    reference = copy.deepcopy(net)
    for seed in range(2):
        found = forward(net, x, SAMPLES, stack=stack, generator=torch.Generator().manual_seed(seed))
        generator = torch.Generator().manual_seed(seed)
        each = [run(reference, x, Pass("weights", 6, 1, generator)) for _ in range(SAMPLES)]
        torch.testing.assert_close(found, torch.cat(each))
        torch.testing.assert_close(net.state, reference.state)
    assert ELBO(9, samples=SAMPLES, stack=stack).backward(net, x, y).loss.isfinite()
    if kept == "buffer":
        with pytest.raises(RuntimeError, match="looks across the rows"):
            forward(net, x, 2, "local")


@pytest.mark.parametrize("answer", [lambda h: h.sum(), lambda h: h.square().mean()])
def test_one_number_for_a_whole_batch_is_sampled_alone_and_is_no_likelihood(answer):
    net, x = to_bayesian(Answers(answer)), torch.randn(6, 4)
    found = forward(net, x, SAMPLES, stack=True, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(found, torch.cat([run(net, x, Pass("weights", 6, 1, generator)) for _ in range(SAMPLES)]))
    for stack in (True, False):
        for elbo in (ELBO(9, samples=2, stack=stack), ELBO(9, stack=stack)):
            with pytest.raises(ValueError, match="one number for the whole batch; the ELBO needs a row for each"):
                elbo.backward(net, x, torch.zeros(6, dtype=torch.long))
    with pytest.raises(RuntimeError, match="looks across the rows"):
        forward(net, x, 2, "local")


class Drops(nn.Module):
    """Skips layers, and a mask, by the random numbers of Python; a mask that does not fit is a ValueError."""

    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), nn.Linear(4, 3)

    def forward(self, x, mask):
        for block in self.blocks:
            if not self.training or random.random() < 0.5:
                x = torch.tanh(block(x))
        if self.training and random.random() < 0.5:
            if len(x) != len(mask):
                raise ValueError(f"the mask has {len(mask)} rows, not {len(x)}")
            x = x * mask
        return self.head(x)


@pytest.mark.parametrize("seed", range(8))
def test_a_net_with_random_depth_takes_a_mapping(double, seed):
    random.seed(seed)
    batch, y = {"x": torch.randn(6, 4), "mask": torch.rand(6, 1)}, torch.randint(3, (6,))
    net = to_bayesian(Drops())
    for _ in range(20):
        forward(net, batch, SAMPLES, stack=True)
        assert ELBO(9, samples=2).backward(net, batch, y).loss.isfinite()
    for seed in range(8):
        p = Pass("weights", 6, SAMPLES, torch.Generator().manual_seed(seed))
        random.seed(seed)
        found = ELBO(9, samples=SAMPLES).nll_on(net, batch, y, p)
        alone = []
        for s in range(SAMPLES):
            random.seed(seed)
            alone.append(
                F.cross_entropy(run(net, batch, Pass("weights", drawn={g: w[s] for g, w in p.drawn.items()}))[0], y)
            )
        torch.testing.assert_close(found, torch.stack(alone).mean())


class ReadsWeight(nn.Module):
    """Reads its layer's weight beside calling it."""

    def __init__(self, read):
        super().__init__()
        self.layer, self.read = nn.Linear(4, 3), read

    def forward(self, x):
        return self.read(self.layer, x)


ASKS = {
    "dtype": lambda layer, x: layer(x.to(layer.weight.dtype)),
    "device": lambda layer, x: layer(x.to(layer.weight.device)),
    "shape": lambda layer, x: layer(x) / layer.weight.shape[0] + layer.weight.size(1) + layer.bias.numel(),
    "is a tensor": lambda layer, x: layer(x) if isinstance(layer.weight, torch.Tensor) else x,
}
USES = {
    "product": lambda layer, x: x @ layer.weight.T,
    "norm": lambda layer, x: layer(x) / layer.weight.norm(),
    "item": lambda layer, x: layer(x) * layer.weight[0, 0].item(),
    "view": lambda layer, x: layer(x) + layer.weight.flatten()[0],
    "in a list": lambda layer, x: layer(x) + torch.stack([layer.bias, layer.bias]).mean(),
    "numpy": lambda layer, x: layer(x) * float(layer.weight.detach().numpy().sum()),
    "as_tensor": lambda layer, x: layer(x) * torch.as_tensor(layer.weight).sum(),
    "tensor": lambda layer, x: layer(x) * torch.tensor(layer.weight.tolist()).sum(),
    "in place": lambda layer, x: layer(x).add_(layer.bias),
    "sizes and values": lambda layer, x: layer(x) * layer.weight.shape[0] * layer.weight.mean(),
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_weight_that_is_asked_for_its_kind_alone_holds_no_sample_up(ask):
    net = to_bayesian(ReadsWeight(ASKS[ask]))
    for estimator in ("weights", "local", "flipout"):
        assert choose_sample_batching(net, torch.randn(6, 4), Pass(estimator, 6, SAMPLES)) == "shared"


@pytest.mark.parametrize("use", USES)
def test_a_weight_whose_values_are_used_is_that_of_each_sample(double, use):
    net, x = to_bayesian(ReadsWeight(USES[use])).requires_grad_(False), torch.randn(6, 4)
    assert choose_sample_batching(net, x, Pass("weights", 6, SAMPLES)) == "alone"
    found = forward(net, x, SAMPLES, stack=True, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    torch.testing.assert_close(
        found, torch.cat([run(net, x, Pass("weights", 6, 1, generator)) for _ in range(SAMPLES)])
    )
    with pytest.raises(RuntimeError, match="no single weight then"):
        run(net, x, Pass("weights", 6, SAMPLES))
