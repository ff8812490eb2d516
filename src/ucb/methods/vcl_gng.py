"""VCL-GNG: VCL whose steps follow Gaussian natural gradients (Chen, Diethe and Lawrence 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from ucb.methods.base import chosen, method
from ucb.methods.vcl import VCL, VCLSettings
from ucb.optim.gng import GNG
from ucb.optim.groups import Group


@dataclass(frozen=True)
class VCLGNGSettings(VCLSettings):
    """VCL's, with more room at the start: natural steps are shorter where sigma is small."""

    spread: float = chosen(2.0, among=(0.05, 1.0, 2.0))


@method
class VCLGNG(VCL):
    """The prior, the objective and the fit are VCL's; certain weights take small steps: see :mod:`ucb.optim.gng`."""

    name = "vcl-gng"
    summary = "VCL with Gaussian natural gradients in Adam"
    paper = "Chen et al. 2019"
    settings_type = VCLGNGSettings
    settings: VCLGNGSettings

    def make_optimizer(self, groups: list[Group]) -> GNG:
        """Return Adam on natural gradients."""
        return GNG(groups, self.settings.lr)
