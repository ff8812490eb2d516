"""A Bayesian net whose trunk goes on learning with UCB-NG, and heads that tell a wave's classes apart.

A wave whose classes one of the heads knows already, all of them, goes on with that head, and the net does not grow. Any
other wave has a new head, even if it mixes known classes of several: none of these has learnt to tell them apart.

A wave is learnt by the engine's training loop, on the one wave whose data are there.

An example is shown to all heads. Head h answers with class probabilities p_h under samples of the weights and is unsure
by the entropy H_h of their mean; a class gets the logit log p_h - H_h, the greatest over the heads that know it. So the
least uncertain head has the say, and a class that came in several waves is judged by the head that is surest of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ucb.bayes import forward, gaussians
from ucb.bayes.passes import Pass, run
from ucb.bayes.posterior import Gaussian
from ucb.bayes.predict import from_logits
from ucb.checks import nearest
from ucb.data.streams.tasks import Examples as StreamExamples
from ucb.data.streams.tasks import Stream, Task, TensorExamples
from ucb.engine.checkpoint import Progress
from ucb.engine.loop import Run
from ucb.engine.training import Schedule, Training
from ucb.incremental.calibration import ERRORS_TO_BE_SURE, RawPrediction, RawPredictionBatches, rows_per_batch
from ucb.incremental.inputs import ROWS
from ucb.incremental.learning import WaveOutcome, WaveRequest, choose_asked
from ucb.incremental.model import Model
from ucb.incremental.progress_file import ProgressFile
from ucb.incremental.waves import Effect, Wave, describe_change, hash_examples, sum_hashes
from ucb.methods.base import TaskInfo
from ucb.methods.ucb_ng import UCBNGMethod, UCBNGSettings
from ucb.nets import HeadedNet, alexnet, mlp, resnet18
from ucb.observer import Observer
from ucb.optim import UCBNG
from ucb.seeds import derive_seed, generator_for

NETS = {"small": 10, "mlp": 1, "alexnet": 22, "resnet18": 8}
"""The nets, and the least side of an image that each can read."""
HIDDEN = 400
SAMPLES = 10
"""Weight samples in an answer."""
CHANNELS = 32
"""Roughly how many activations a convolutional net has for each pixel of an image."""
USUAL, LEAST = 1e-3, 1e-5
"""The mutual information of a familiar example, and what is added so that the logarithm of 0 is finite."""
SHARED = {"power": 2.0, "samples": 2}
DENSE = SHARED | {"lr": 0.5, "temperature": 5e-5, "clip": 1.0}
CONVOLUTIONAL = SHARED | {"lr": 0.15, "temperature": 1e-4, "init_std_ratio": 0.1, "estimator": "weights"}
"""What held-out data chose for the project's benchmarks on MNIST (dense) and CIFAR (convolutional; the temperature is
lower, which held-out images of five waves of CIFAR10 preferred)."""
ON_WEIGHTS = "how far the weights it leans on move, in units of their own uncertainty, the important ones foremost"
Pair = tuple[Tensor, Tensor]
EPOCHS = 10
MOST_NUMBERS = 1 << 29
"""The most numbers that a wave may have: all are kept in memory, since every epoch needs them."""


def small_net(shape: Sequence[int], head_sizes: Sequence[int]) -> HeadedNet:
    """Return two convolutions and a dense layer: 0.4 million weights for 28x28 images."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    height, width = (((side - 2) // 2 - 2) // 2 for side in shape[1:])
    layers += [nn.Linear(64 * height * width, 256), nn.ReLU()]
    return HeadedNet(nn.Sequential(*layers), 256, head_sizes)


def choose_net(shape: Sequence[int]) -> str:
    """Return the name of the default net for a shape."""
    return "small" if len(shape) == 3 and min(shape[1:]) >= NETS["small"] else "mlp"


def check_net(name: str, shape: Sequence[int]) -> str:
    """Return the name of a net, if it can read examples of this shape."""
    if name not in NETS:
        raise ValueError(f"there is no net {name!r}: {nearest(name, NETS)}")
    if name != "mlp" and (len(shape) != 3 or min(shape[1:]) < NETS[name]):
        raise ValueError(f"the net {name} reads images of at least {NETS[name]} pixels a side: choose mlp")
    return name


def build_wave_net(name: str, shape: Sequence[int], head_sizes: Sequence[int], seed: int) -> HeadedNet:
    """Return a net before it has learnt anything; later heads do not change the others' first weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("weights", seed))
        if name == "mlp":
            return mlp(shape, head_sizes, [HIDDEN])
        if name == "small":
            return small_net(shape, head_sizes)
        # statistics of batches that all waves share would follow the last wave
        return alexnet(shape, head_sizes) if name == "alexnet" else resnet18(shape, head_sizes, norm="group")


class DoublePass(Pass):
    """Draws weights as ever and lets products be in double precision: rounded, no row depends on those beside it."""

    def weight(self, gaussian: Gaussian) -> Tensor:
        """Return the weights of this pass with room for more digits."""
        return super().weight(gaussian).double()


class Doubt(NamedTuple):
    """The mean log entropy of answers to examples that were learnt, and to some that were held out, with its error."""

    learnt: float
    held_out: float
    error: float


class BayesianNetModel:
    """A net with several heads; ``heads`` lists the numbers of their classes."""

    def __init__(self, shape: Sequence[int], net: str, heads: Sequence[Sequence[int]], seed: int) -> None:
        self.shape, self.net_name, self.seed = tuple(shape), net, seed
        self.heads = [list(head) for head in heads]
        self.mean = torch.zeros(shape[0], *[1] * (len(shape) - 1))
        self.spread = torch.ones_like(self.mean)
        settings = UCBNGSettings(**(DENSE if net == "mlp" else CONVOLUTIONAL))
        fresh = build_wave_net(net, shape, [len(head) for head in self.heads], seed)
        self.method = UCBNGMethod(fresh, settings, generator_for("noise", seed, len(self.heads)))
        self.method.heads_learn_again = True
        self.num_examples = 1
        """Examples that the last wave learnt from."""
        self.doubt: Doubt | None = None

    def to(self, device: torch.device) -> None:
        """Refuse any device but the CPU."""
        if device.type != "cpu":
            raise ValueError("ucb-ng answers on the CPU here: leave --device out")

    @property
    def optimizer(self) -> UCBNG:
        """The optimiser, which knows how sure each weight is."""
        assert isinstance(self.method.optimizer, UCBNG)
        return self.method.optimizer

    def restore_optimizer(self, learnt: int, num_examples: int) -> None:
        """Let the optimiser know the first ``learnt`` heads, and how many examples the last wave had; heads rest."""
        self.num_examples = num_examples
        if learnt:
            outputs = range(len(self.heads[learnt - 1]))
            self.method.resume_task(TaskInfo(learnt - 1, num_examples, learnt - 1, outputs))
            self.method.net.heads.requires_grad_(False)
            for group in self.optimizer.param_groups:
                group["size"] = num_examples

    @property
    def values_per_row(self) -> int:
        """About how many numbers are at work to predict one example: its widest layer under every sample."""
        pixels = math.prod(self.shape[1:]) if self.net_name != "mlp" else 0
        return SAMPLES * (max(HIDDEN, CHANNELS * pixels) + sum(len(head) for head in self.heads))

    def fit_normalisation(self, sample: Tensor) -> None:
        """Standardise by some examples of the first wave."""
        numbers = sample.double() / 255 if sample.dtype == torch.uint8 else sample.double()
        axes = [0, *range(2, numbers.dim())]
        mean = numbers.nanmean(axes, keepdim=True).nan_to_num(nan=0.0)
        spread = (numbers - mean).square().nanmean(axes, keepdim=True).sqrt()  # NaN counts as no spread
        self.mean.copy_(mean[0])
        self.spread.copy_(torch.where(spread > 1e-6, spread, 1.0)[0])

    def normalise(self, x: Tensor) -> Tensor:
        """Return examples as the net reads them; a missing number (NaN) is the mean."""
        numbers = x.float() / 255 if x.dtype == torch.uint8 else x
        return ((numbers - self.mean) / self.spread).clamp(-10, 10).nan_to_num(nan=0.0)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that was learnt: weights, and for each Gaussian one its precision and its rate."""
        found = {"mean": self.mean, "spread": self.spread}
        found |= {f"net.{name}": value for name, value in self.method.net.state_dict().items()}
        for group in self.optimizer.gaussian_groups():
            state = self.optimizer.state[group["params"][0]]
            found[f"precision.{group['name']}"] = state["precision"]
            if "scale" in state:
                found[f"scale.{group['name']}"] = state["scale"]
        return {name: value.detach() for name, value in found.items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over what was learnt with as many heads or fewer; heads beyond these stay fresh."""
        self.mean.copy_(tensors["mean"])
        self.spread.copy_(tensors["spread"])
        known = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
        self.method.net.load_state_dict({**self.method.net.state_dict(), **known})
        for group in self.optimizer.gaussian_groups():
            state = self.optimizer.state[group["params"][0]]
            if f"precision.{group['name']}" in tensors:
                state["precision"].copy_(tensors[f"precision.{group['name']}"])
            if f"scale.{group['name']}" in tensors:
                state["scale"] = tensors[f"scale.{group['name']}"].clone()

    @torch.no_grad()
    def predict_raw(self, x: Tensor) -> RawPrediction:
        """Ask all heads under samples of the weights."""
        net, generator, numbers = self.method.net.eval(), generator_for("opinion"), self.normalise(x)
        with net.using(None):
            if self.net_name != "mlp":  # there is no fast convolution in double precision
                return self.combine_heads(forward(net, numbers, SAMPLES, generator=generator))
            passes = [DoublePass("weights", len(x), generator=generator) for _ in range(SAMPLES)]
            return self.combine_heads(torch.cat([run(net, numbers.double(), each).float() for each in passes]))

    def combine_heads(self, answers: Tensor) -> RawPrediction:
        """Return what all heads together say, their logits side by side; the least uncertain ones have the say."""
        classes = 1 + max(number for head in self.heads for number in head)
        logits = torch.full((*answers.shape[:2], classes), -math.inf)
        information = torch.full((answers.shape[1],), math.inf)
        least = torch.full((answers.shape[1],), math.inf)
        for own, said in zip(self.heads, answers.split([len(head) for head in self.heads], -1), strict=True):
            judged = from_logits(said)
            voice = said.log_softmax(-1) - judged.entropy[:, None]
            logits[..., own] = torch.maximum(logits[..., own], voice)
            relative = judged.entropy / math.log(max(2, len(own)))
            information = torch.where(relative < least, judged.mutual_information, information)
            least = torch.minimum(least, relative)
        return RawPrediction(logits, ((information + LEAST) / USUAL).log(), torch.zeros_like(information))

    def certainty(self) -> dict[str, Any]:
        """Say how sure each layer is, as sigma now over sigma before anything was learnt, and what room is left."""
        layers, free, weights = [], 0.0, 0
        groups = {group["name"]: group for group in self.optimizer.gaussian_groups()}
        for name, gaussian in gaussians(self.method.net):
            if name not in groups:
                continue
            ratio = (gaussian.sigma.detach() / groups[name]["prior_sigma"]).clamp_max(1)
            layers.append({"layer": name, "weights": ratio.numel(), "sigma": float(ratio.mean()), "note": ""})
            if name.startswith("trunk."):
                free += float(ratio.pow(self.method.settings.power).sum())
                weights += ratio.numel()
        return {"layers": layers, "capacity_left": free / max(weights, 1)}

    @torch.no_grad()
    def effects_of(self, after: BayesianNetModel, waves: Sequence[Wave]) -> list[Effect]:
        """Return how far the trunk, which all earlier waves lean on, moved: in units of each weight's sigma before.

        ``after`` is this model with a new wave. The mean of ((mu_new - mu_old) / sigma)^2 over all weights, each
        weighted by its importance 1 / sigma^2, as a root. It is the same for all of them: heads rest, but for the one
        whose classes the new wave brings again, and that one learns from more data.
        """
        new = dict(gaussians(after.method.net.trunk))
        total = weight = 0.0
        for name, old in gaussians(self.method.net.trunk):
            importance = old.sigma.double().square().reciprocal()
            moved = (new[name].mu.double() - old.mu.double()).square() * importance
            total += float((moved * importance).sum())
            weight += float(importance.sum())
        change = (total / max(weight, 1e-300)) ** 0.5
        return [Effect(wave.name, change, ON_WEIGHTS, describe_change(change / 10)) for wave in waves]


def learn_bayesian_net(model: Model, request: WaveRequest) -> WaveOutcome:
    """Learn a wave; the model's own learner is left as it is."""
    assert model.shape is not None
    before = model.learner
    assert before is None or isinstance(before, BayesianNetModel)
    if request.device.type != "cpu":
        raise ValueError("ucb-ng learns waves on the CPU here: leave --device out")
    own = sorted(set(request.classes.tolist()))
    if len(own) < 2:
        raise ValueError("a wave of one class teaches ucb-ng nothing: it tells a wave's classes apart; use fixed")
    if len(request.classes) * math.prod(model.shape) > MOST_NUMBERS:
        raise ValueError("the wave is too large to be kept in memory, as ucb-ng needs it: split it into several")
    net = before.net_name if before else check_net(model.net or choose_net(model.shape), model.shape)
    model.net = net
    learner, head = _begin(model.shape, net, before, own, model.seed)
    train = _read(request, torch.nonzero(~request.held_out).squeeze(1))
    held = _read(request, torch.nonzero(request.held_out).squeeze(1))
    if len(train[1]) == 0:
        raise ValueError(f"none of the {len(request.classes)} examples can be read")
    if before is None:
        learner.fit_normalisation(train[0])
    names = [model.classes[number] for number in torch.cat([train[1], held[1]]).tolist()]
    x, classes = torch.cat([train[0], held[0]]), torch.cat([train[1], held[1]])
    counts = torch.bincount(classes, minlength=len(model.classes))
    prints = sum_hashes(hash_examples(x), classes, len(model.classes))
    repeats = request.refuse_repeated(model.classes, counts, prints, hash_examples(x, names))
    familiar, is_sure = share_familiar(before, request, x, own)
    _run(learner, request, train, held, head)
    learner.num_examples = len(train[1])
    some = choose_asked(len(held[1]), request.seed)
    x, target = held[0][some], held[1][some]
    batches = RawPredictionBatches(learner.predict_raw, x, target, learner.values_per_row)
    given, statistics = request.calibration.update(batches, 1 - familiar)
    learner.doubt = _measure_doubt(learner, request, train[0], x, before.doubt if before else None, familiar)
    return WaveOutcome(
        learner=learner,
        given=given,
        target=target,
        counts=counts,
        prints=prints,
        effects=before.effects_of(learner, model.waves) if before else [],
        statistics=statistics,
        skipped=[],
        repeats=repeats,
        familiar=familiar if is_sure else 0.0,
    )


def share_familiar(
    before: BayesianNetModel | None, request: WaveRequest, x: Tensor, classes: list[int]
) -> tuple[float, bool]:
    """Return the share of a wave that was learnt before, and whether that is sure, from how sure the model is of it.

    The mean log entropy of its answers lies between that of what was learnt and that of what was held out. Of few
    held-out examples that says little; but calibration may well learn less from a wave that looks familiar by chance.
    """
    if before is None or before.doubt is None or not {*classes} <= {number for head in before.heads for number in head}:
        return 0.0, False
    learnt, new, error = before.doubt
    mean, own_error = _mean_log_entropy(before, request, x)
    if not learnt < new:
        return 0.0, False
    is_sure = mean < new - ERRORS_TO_BE_SURE * math.hypot(error, own_error)
    return min(1.0, max(0.0, (new - mean) / (new - learnt))), is_sure


def _mean_log_entropy(learner: BayesianNetModel, request: WaveRequest, x: Tensor) -> tuple[float, float]:
    """Return the mean log entropy of the answers to all of these examples, or to 1,000 by chance, and its error."""
    some = x[choose_asked(len(x), request.seed)]
    batches = some.split(rows_per_batch(learner.values_per_row))
    found = torch.cat([request.calibration.log_entropy(learner.predict_raw(batch)) for batch in batches])
    return float(found.mean()), float(found.std(correction=0)) / math.sqrt(len(found))


def _measure_doubt(
    learner: BayesianNetModel, request: WaveRequest, train: Tensor, held: Tensor, before: Doubt | None, familiar: float
) -> Doubt | None:
    """Return what tells learnt examples from new ones after a wave; familiar ones say nothing of the latter."""
    if len(held) == 0:
        return before
    new, error = _mean_log_entropy(learner, request, held)
    if before is not None and familiar > 0:
        new = (1 - familiar) * new + familiar * before.held_out
        error = math.hypot((1 - familiar) * error, familiar * before.error)
    return Doubt(_mean_log_entropy(learner, request, train)[0], new, error)


def _begin(
    shape: Sequence[int], net: str, before: BayesianNetModel | None, own: list[int], seed: int
) -> tuple[BayesianNetModel, int]:
    """Return the learner to go on with, and its head for the wave's classes: the smallest of all, or a new one."""
    if before is None:
        return BayesianNetModel(shape, net, [own], seed), 0
    able = [number for number, head in enumerate(before.heads) if set(own) <= set(head)]
    head = min(able, key=lambda number: len(before.heads[number]), default=len(before.heads))
    learner = BayesianNetModel(shape, net, before.heads if able else [*before.heads, own], seed)
    learner.restore_optimizer(len(before.heads), before.num_examples)
    learner.load(before.tensors())
    return learner, head


def _read(request: WaveRequest, rows: Tensor) -> Pair:
    """Return the examples of some rows that can be read, and their classes."""
    shape = tuple(request.examples.shape)
    parts = [torch.zeros(0, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)]
    classes = [torch.zeros(0, dtype=torch.int64)]
    for positions, x in request.examples.batches(rows, ROWS):
        parts.append(x)
        classes.append(request.classes[positions])
    return torch.cat(parts), torch.cat(classes)


def _run(learner: BayesianNetModel, request: WaveRequest, train: Pair, held: Pair, head: int) -> None:
    """Train the net on the wave, with one of its heads."""
    own = learner.heads[head]
    place = {number: index for index, number in enumerate(own)}

    def prepare(x: Tensor, y: Tensor) -> TensorExamples:
        return TensorExamples(learner.normalise(x), torch.tensor([place[number] for number in y.tolist()]))

    judged = prepare(*(held if len(held[1]) else train))
    now = Task("this wave", tuple(map(str, own)), prepare(*train), judged, judged)
    no = NoExamples()
    names = [tuple(map(str, classes)) for classes in learner.heads[:head]]
    gone = [Task(f"head {number}", classes, no, no, no) for number, classes in enumerate(names, 1)]
    epochs = request.epochs or EPOCHS
    run = Run(
        Stream("waves", (*gone, now)),
        learner.method,
        Training(Schedule(epochs=epochs), eval_samples=2, checkpoint_every=20),
        seed=request.seed,
        device=request.device,
        observer=WaveObserver(request.observer, epochs, len(request.classes)),
        checkpoints=None if request.progress is None else WaveCheckpoints(request.progress, head),
        start=Progress(task=head, at_start=[math.nan]),
        evaluated=[head],
    )
    run.resume()
    run.learn_task()


class NoExamples(StreamExamples):
    """The examples of an earlier wave, which are not kept."""

    def __len__(self) -> int:
        return 0

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield nothing."""
        return iter(())


class WaveCheckpoints:
    """A run's checkpoints in the progress file, which is of no use once the wave's own task is over."""

    def __init__(self, file: ProgressFile, task: int) -> None:
        self.file, self.path, self.task = file, file.path, task

    @property
    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return self.file.is_due

    def save(self, state: dict[str, Any]) -> None:
        """Keep the state beside the model."""
        if state["progress"]["task"] == self.task:
            self.file.save({"run": state})

    def load(self) -> dict[str, Any] | None:
        """Return the state to go on from."""
        found = self.file.load()
        return None if found is None else found["run"]


class WaveObserver(Observer):
    """Tells another observer how far the training is, as if each epoch went through a part of the examples."""

    def __init__(self, observer: Observer, epochs: int, examples: int) -> None:
        self.observer, self.epochs, self.examples = observer, epochs, examples

    def batch_learnt(self, task: int, epoch: int, batch: int, batches: int) -> None:
        """Move on."""
        share = (epoch + batch / batches) / self.epochs
        self.observer.moved(min(self.examples, int(share * self.examples)), self.examples)

    def noted(self, sentence: str) -> None:
        """Pass it on."""
        self.observer.noted(sentence)
