"""SI (Zenke et al., ICML 2017): a weight matters as far as its way through training brought the loss down."""

from dataclasses import dataclass

import torch

from ucb import checks
from ucb.methods.base import TaskData, TaskInfo, Weights, method, setting
from ucb.methods.ewc import QuadraticMethod, QuadraticSettings, copy_weights
from ucb.nets import HeadedNet


@dataclass(frozen=True)
class SISettings(QuadraticSettings):
    """How strongly weights that did much are held."""

    strength: float = setting(0.3, grid=(0.1, 0.3, 1.0, 3.0))
    """The paper's c: the penalty is c sum Omega (theta - theta*)^2."""
    damping: float = setting(0.1, check=checks.positive)
    """The paper's xi, which bounds the importance of a weight that hardly moved."""


@method
class SI(QuadraticMethod):
    """Omega = sum over tasks of omega / (drift^2 + xi), omega = -(path integral of the NLL's gradient)."""

    name = "si"
    summary = "synaptic intelligence: weights that brought the loss down are held (ICML 2017)"
    paper = "Zenke et al., ICML 2017"
    memory = "3 values a shared weight (summed importance, last weights, running path integral), however many tasks"
    settings: SISettings
    remembered = ("omega",)

    def __init__(self, net: HeadedNet, settings: SISettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.omega: Weights = {}
        self._before = copy_weights(self.weights)
        self._gradient: Weights = {}

    def begin_task(self, task: TaskInfo) -> None:
        """Begin a new path at the weights as they are."""
        super().begin_task(task)
        self.centre = copy_weights(self.weights)
        self.omega = {name: torch.zeros_like(p) for name, p in self.weights.items()}

    def adjust_gradients(self) -> None:
        """Note the weights before the step, and the NLL's gradient before it is clipped."""
        for name, before in self._before.items():
            before.copy_(self.weights[name].detach())
        found = {name: p.grad for name, p in self.weights.items() if p.grad is not None}
        self._gradient = copy_weights(found) if self.settings.clip > 0 else found

    def adjust_weights(self) -> None:
        """Take the penalty's step; then add each weight's part in the change of the NLL to its omega."""
        super().adjust_weights()
        for name, gradient in self._gradient.items():
            self.omega[name].addcmul_(gradient, self._before[name].sub_(self.weights[name]))
        self._gradient = {}  # or the next backward pass could not use the same memory

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Add the task's importance; hold the weights where they are now.

        Noise can leave a weight a negative omega. It counts as 0: a penalty that rewards drifting has no minimum.
        """
        for name, p in self.weights.items():
            drift = p - self.centre[name]
            more = self.omega[name].clamp_min(0) / (drift.square() + self.settings.damping)
            self.importance[name] = more + self.importance.get(name, 0.0)
        self.centre = copy_weights(self.weights)
