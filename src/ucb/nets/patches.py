"""A small convolutional trunk that needs no gradients: its filters are patches of the first images that it sees.

After Coates and Ng (2011, 2012): random patches, normalised, are nearly as good as learnt filters where what follows is
a good linear layer. A filter answers how much a patch of the image looks like it, whatever the contrast.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.checks import count, positive
from ucb.nets.heads import HeadedNet

SOFTNESS = 1.0
"""Added to a patch's norm, so that the noise of an empty patch is not blown up to a pattern."""


class PatchFilters(nn.Module):
    """relu(cosine of filter and patch - threshold), averaged over a grid of cells."""

    def __init__(self, channels: int, filters: int, size: int, cells: int, threshold: float) -> None:
        super().__init__()
        self.size, self.cells, self.threshold = size, cells, threshold
        first = torch.randn(filters, channels, size, size)
        self.filters = nn.Parameter(_of_unit_norm(first), requires_grad=False)

    @torch.no_grad()
    def look(self, images: Tensor, generator: torch.Generator) -> None:
        """Take patches of some images as filters: of those with more contrast than the median, at random."""
        patches = F.unfold(images, self.size).transpose(1, 2).reshape(-1, self.filters[0].numel())
        contrast = (patches - patches.mean(1, keepdim=True)).norm(dim=1)
        vivid = patches[contrast > contrast.median()]
        if len(vivid) < len(self.filters):
            raise ValueError(
                f"{len(images)} images have too few patches with any contrast for {len(self.filters)} filters"
            )
        chosen = torch.randperm(len(vivid), generator=generator, device=generator.device)[: len(self.filters)]
        self.filters.copy_(_of_unit_norm(vivid[chosen.to(vivid.device)].view_as(self.filters)))

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, filters * cells * cells]."""
        mean = F.avg_pool2d(x, self.size, 1).mean(1, keepdim=True)
        square = F.avg_pool2d(x.square(), self.size, 1).mean(1, keepdim=True)
        norm = (square - mean.square()).clamp_min(0).mul(self.filters[0].numel()).sqrt()
        cosine = F.conv2d(x, self.filters) / (norm + SOFTNESS)
        return F.adaptive_avg_pool2d(F.relu(cosine - self.threshold), self.cells).flatten(1)


def _of_unit_norm(filters: Tensor) -> Tensor:
    """Return filters with mean 0 and norm 1."""
    filters = filters - filters.mean((1, 2, 3), keepdim=True)
    norms: Tensor = torch.linalg.vector_norm(filters, dim=(1, 2, 3), keepdim=True)
    return filters / norms.clamp_min(1e-12)


def patches(
    input_shape: Sequence[int],
    head_sizes: Sequence[int],
    filters: int = 200,
    size: int = 7,
    cells: int = 4,
    threshold: float = 0.3,
) -> HeadedNet:
    """Return the net: ``filters`` times ``cells`` squared features."""
    for name, value in ("filters", filters), ("size", size), ("cells", cells):
        count(name, value)
    positive("threshold", threshold)
    if size > min(input_shape[1:]):
        raise ValueError(f"size must be at most {min(input_shape[1:])}, the side of the images, not {size}")
    trunk = PatchFilters(input_shape[0], filters, size, cells, threshold)
    return HeadedNet(trunk, filters * cells**2, head_sizes)
