"""Powers of per-example gradients, summed: what Fisher information and sensitivity to weights are made of.

A batch's mean gradient is not enough for either: its square is not the mean of the squares. For a linear layer the
sum comes from one backward pass, since example i's gradient is the outer product of delta_i and its input a_i, so that
sum_i |delta_i a_i^T|^p = (|delta|^p)^T |a|^p. All other parameters get their gradients example by example.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from ucb.bayes.passes import Batch, count_rows, first_tensor, join_rows, list_rows, map_rows, split_rows, take_rows
from ucb.methods.base import TaskData, Weights
from ucb.methods.ordinary import OrdinaryMethod

Values = Callable[[Tensor], Tensor]
"""Takes logits [rows, outputs] to the values [rows, k] whose gradients are wanted; no row may look at another."""

_ROWS = 64
_NUMBERS = 2**23
"""How many numbers the gradients of a few examples may fill at a time."""


def some_inputs(data: TaskData, most: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the inputs of at most ``most`` training examples, chosen at random, in batches; 0 is all of them."""
    if most == 0:
        yield from (x for x, _ in data.train())
        return
    size = sum(len(y) for _, y in data.train())
    taken = torch.zeros(size, dtype=torch.bool)
    taken[torch.randperm(size, generator=generator, device=generator.device)[:most].cpu()] = True
    parts = taken.split([len(y) for _, y in data.train()])
    chosen = zip((x for x, _ in data.train()), parts, strict=True)
    for x in join_rows(take_rows(x, part.to(first_tensor(x).device)) for x, part in chosen):
        yield from split_rows(x, _ROWS)


def fisher(method: OrdinaryMethod, data: TaskData, most: int) -> Weights:
    """Return the diagonal of the Fisher information: how sharply a task's answers pin down each shared weight.

    It is E_x E_{c ~ p(.|x)} (d log p(c|x) / d theta)^2, from at most ``most`` training examples (0: all), and always
    above 0. The inner expectation is the sum over all classes, under the net's own probabilities: the labels play no
    part.
    """
    inputs = some_inputs(data, most, method.generator)
    mean = mean_powers(method.net, method.shared(), inputs, method.roots, power=2)
    # a weight that no task needs must be able to take part in a weighted mean, away from slow subnormal numbers
    return {name: value.clamp_min(max(1e-20, torch.finfo(value.dtype).tiny)) for name, value in mean.items()}


def mean_powers(
    net: nn.Module, parameters: Mapping[str, Tensor], inputs: Iterable[Batch], values: Values, power: int
) -> Weights:
    """Return the mean over examples of sum_k |d values_k / d theta|^power for the parameters, with the net at rest."""
    net.eval()
    total, rows = {name: torch.zeros_like(p) for name, p in parameters.items()}, 0
    for x in inputs:
        linear = _linear_powers(net, parameters, x, values, power)
        others = {name: p.detach() for name, p in parameters.items() if name not in linear}
        for name, summed in {**linear, **_other_powers(net, others, x, values, power)}.items():
            total[name] += summed
        rows += count_rows(x)
    return {name: summed / max(rows, 1) for name, summed in total.items()}


@torch.enable_grad()
def _linear_powers(net: nn.Module, parameters: Mapping[str, Tensor], x: Batch, values: Values, power: int) -> Weights:
    """Return the sums for linear layers that are called once, on a row an example.

    Of code that uses a layer's weights without calling it, nothing is known here.
    """
    logits, calls = _record_calls(net, x)
    once = {layer: made[0] for layer, made in calls.items() if len(made) == 1 and made[0][0].dim() == 2}
    used_once = {layer: made for layer, made in once.items() if made[1].requires_grad}  # frozen ones may have none
    if not used_once:
        return {}
    wanted, outputs = values(logits), [output for _, output in used_once.values()]
    deltas = [torch.zeros_like(output) for output in outputs]
    for k in range(wanted.shape[1]):
        gradients = torch.autograd.grad(wanted[:, k].sum(), outputs, retain_graph=True, materialize_grads=True)
        for delta, gradient in zip(deltas, gradients, strict=True):
            delta += gradient.abs().pow(power)
    sums = {}
    for (layer, (given, _)), delta in zip(used_once.items(), deltas, strict=True):
        sums[id(layer.weight)] = delta.T @ given.abs().pow(power)
        sums[id(layer.bias)] = delta.sum(0)
    return {name: sums[id(p)] for name, p in parameters.items() if id(p) in sums}


def _record_calls(net: nn.Module, x: Batch) -> tuple[Tensor, dict[nn.Linear, list[tuple[Tensor, Tensor]]]]:
    """Return the net's answer, and input and output of each call of each linear layer that shares no parameter."""
    calls: dict[nn.Linear, list[tuple[Tensor, Tensor]]] = {}

    def watch(layer: nn.Linear, given: tuple[Tensor], output: Tensor) -> Tensor:
        calls.setdefault(layer, []).append((given[0].detach(), output))
        return output.clone()  # what changes it in place leaves alone what is watched

    owners = Counter(id(p) for module in net.modules() for p in module.parameters(recurse=False))
    layers = [m for m in net.modules() if type(m) is nn.Linear and all(owners[id(p)] == 1 for p in m.parameters())]
    with ExitStack() as watching:
        for layer in layers:
            watching.enter_context(layer.register_forward_hook(watch))
        return net(x), calls


def _other_powers(net: nn.Module, parameters: Weights, x: Batch, values: Values, power: int) -> Weights:
    """Return the sums for any parameters: all gradients of a few examples at a time, or of one after the other."""
    if not parameters:
        return {}

    one = take_rows(x, slice(1))

    def values_of_one(weights: Weights, rows: list[Tensor]) -> Tensor:
        own = iter(rows)
        example = map_rows(lambda _: next(own).unsqueeze(0), x)
        return values(functional_call(net, weights, (example,))).squeeze(0)

    with torch.no_grad():
        count = values(net(one)).shape[1]
    size = sum(p.numel() for p in parameters.values())
    gradients = vmap(jacrev(values_of_one, chunk_size=max(1, _NUMBERS // size)), (None, 0))
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for few in split_rows(x, max(1, _NUMBERS // (size * count))):
        rows = list_rows(few)
        try:
            found = [gradients(parameters, rows)]
        except Exception:  # whatever a net raises that looks at numbers, a mask say, to choose its way
            found = [_gradients_of_one(values_of_one, parameters, list(own)) for own in zip(*rows, strict=True)]
        for name, gradient in ((name, g) for each in found for name, g in each.items()):
            sums[name] += gradient.abs().pow(power).sum((0, 1))
    return sums


@torch.enable_grad()
def _gradients_of_one(
    values_of_one: Callable[[Weights, list[Tensor]], Tensor], parameters: Weights, rows: list[Tensor]
) -> Weights:
    """Return the gradients of one example's values, [1, values, ...], by ordinary backward passes."""
    weights = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    found = values_of_one(weights, rows)
    leaves = list(weights.values())
    each = [torch.autograd.grad(v, leaves, retain_graph=True, materialize_grads=True) for v in found]
    return {name: torch.stack(columns)[None] for name, columns in zip(weights, zip(*each, strict=True), strict=True)}
