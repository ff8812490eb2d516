"""Small convolutional trunks that need no gradients: their filters are patches of the first images that they see.

After Coates, Ng and Lee (2011, 2012): random patches, normalised, are nearly as good as learnt filters where what
follows is a good linear layer. A filter of :class:`PatchFilters` answers how much a patch of the image looks like it,
whatever the contrast.

:class:`WhitenedPatches` is for images whose neighbouring pixels and colours are nearly the same everywhere. With Z a
whitening of the first images' patches, a filter d is the sum, with random signs, of three whitened patches of norm 1,
and answers d^T Z p, where p is a patch of the image without its mean and divided by its norm. Both signs of an answer
count, each above a threshold: a filter serves twice for the price of one convolution. No filter is a piece of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.checks import count, positive
from ucb.nets.heads import HeadedNet

SOFTNESS = 0.3
"""What :class:`WhitenedPatches` adds to a patch's norm."""
SAMPLED = 100_000
"""Patches by which the whitening is found."""
AT_A_TIME = 16
"""Images whose answers fit into a processor's cache: twice as fast as a large batch."""
MIXED = 3
"""Patches in a filter. Single ones would be pieces of somebody's images; on held-out data they gain 0.1 % on digits and
1 % on CIFAR10."""
SPREAD = 0.3
"""The standard deviation that answers to vivid patches have, so that a threshold means the same whatever the images."""


class PatchFilters(nn.Module):
    """relu(cosine of filter and patch - threshold), averaged over a grid of cells."""

    softness: ClassVar[float] = 1.0
    """Added to a patch's norm, so that the noise of an empty patch is not blown up to a pattern."""

    def __init__(self, channels: int, filters: int, size: int, cells: int, threshold: float) -> None:
        super().__init__()
        self.size, self.cells, self.threshold = size, cells, threshold
        first = torch.randn(filters, channels, size, size)
        self.filters = nn.Parameter(_to_unit_norm(first), requires_grad=False)

    @torch.no_grad()
    def fit(self, images: Tensor, generator: torch.Generator) -> None:
        """Take patches of some images as filters: of those with more contrast than the median, at random."""
        patches = F.unfold(images, self.size).transpose(1, 2).reshape(-1, self.filters[0].numel())
        contrast = (patches - patches.mean(1, keepdim=True)).norm(dim=1)
        vivid = patches[contrast > contrast.median()]
        if len(vivid) < len(self.filters):
            raise ValueError(
                f"{len(images)} images have too few patches with any contrast for {len(self.filters)} filters"
            )
        chosen = torch.randperm(len(vivid), generator=generator, device=generator.device)[: len(self.filters)]
        self.filters.copy_(_to_unit_norm(vivid[chosen.to(vivid.device)].view_as(self.filters)))

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, filters * cells * cells]."""
        return F.adaptive_avg_pool2d(F.relu(self.answers(x) - self.threshold), self.cells).flatten(1)

    def answers(self, x: Tensor) -> Tensor:
        """Return each filter's product with each patch, taken without its mean and divided by its norm."""
        mean = F.avg_pool2d(x, self.size, 1).mean(1, keepdim=True)
        square = F.avg_pool2d(x.square(), self.size, 1).mean(1, keepdim=True)
        norm = (square - mean.square()).clamp_min(0).mul(self.filters[0].numel()).sqrt()
        return F.conv2d(x, self.filters).div_(norm + self.softness)


def _to_unit_norm(filters: Tensor) -> Tensor:
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


class WhitenedPatches(PatchFilters):
    """relu(answer - threshold) and relu(-answer - threshold), averaged over a grid of cells."""

    softness = SOFTNESS

    def __init__(
        self, channels: int, filters: int, size: int, cells: int, threshold: float = 0.3, floor: float = 0.03
    ) -> None:
        super().__init__(channels, filters, size, cells, threshold)
        self.floor = floor
        """Added to the patches' variances before whitening, as a share of the largest: noise is not blown up."""

    @property
    def features(self) -> int:
        """How many features come out."""
        return 2 * len(self.filters) * self.cells**2

    @torch.no_grad()
    def fit(self, images: Tensor, generator: torch.Generator) -> None:
        """Make filters of whitened patches of some images; where these show nothing, the first filters stay."""
        patches = F.unfold(images, self.size).transpose(1, 2).flatten(0, 1)
        order = torch.randperm(len(patches), generator=generator)[:SAMPLED]
        patches = patches[order.to(patches.device)].double()
        patches -= patches.mean(1, keepdim=True)
        norms = patches.norm(dim=1, keepdim=True)
        patches /= norms + SOFTNESS
        vivid = patches[(norms >= norms.median()).squeeze(1) & (norms.squeeze(1) > 0)]
        if len(vivid) == 0:
            return
        whitening = _whitening(patches, self.floor)
        chosen = torch.randint(len(vivid), (len(self.filters), MIXED), generator=generator).to(vivid.device)
        signs = 2 * torch.randint(2, (*chosen.shape, 1), generator=generator).to(vivid) - 1
        mixtures = (F.normalize(vivid[chosen] @ whitening, dim=2) * signs).sum(1)
        filters = F.normalize(mixtures, dim=1) @ whitening
        answers = vivid[:SAMPLED] @ filters.T
        filters *= SPREAD / answers.std().clamp_min(1e-12) if answers.numel() > 1 else 1.0
        self.filters.copy_(filters.view_as(self.filters))

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, filters * 2 * cells * cells]."""
        pooling = _pooling(x.shape[2] - self.size + 1, x.shape[3] - self.size + 1, self.cells).to(x)
        return torch.cat([self._features(some, pooling) for some in x.split(AT_A_TIME)])

    def _features(self, x: Tensor, pooling: Tensor) -> Tensor:
        answers = self.answers(x).flatten(2)
        above = _pool((answers - self.threshold).relu_(), pooling)
        below = _pool(answers.add_(self.threshold).clamp_max_(0), pooling)
        return torch.cat([above, below.neg_()], 1).flatten(1)


def _whitening(patches: Tensor, floor: float) -> Tensor:
    """Return the symmetric matrix that makes all directions of the patches about equally strong, but not their mean."""
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    whitening: Tensor = (vectors * (values.clamp_min(0) + floor * values.max()).rsqrt()) @ vectors.T
    whitening -= whitening.mean(0, keepdim=True)
    whitening -= whitening.mean(1, keepdim=True)
    return whitening


def _pooling(height: int, width: int, cells: int) -> Tensor:
    """Return the mean over each cell of a grid as a matrix [height * width, cells * cells]; cells may overlap."""
    down, across = (_cells(side, cells) for side in (height, width))
    return torch.einsum("ai,bj->abij", down, across).reshape(height * width, cells * cells)


def _pool(answers: Tensor, pooling: Tensor) -> Tensor:
    """Return answers @ pooling. A product with few columns is slow; turned around it has few rows, and is not."""
    return (pooling.T @ answers.transpose(1, 2)).transpose(1, 2)


def _cells(side: int, cells: int) -> Tensor:
    """Return which share each position of a side has in each of its cells, as adaptive pooling divides it."""
    shares = torch.zeros(side, cells)
    for cell in range(cells):
        first, last = cell * side // cells, -(-(cell + 1) * side // cells)
        shares[first:last, cell] = 1 / (last - first)
    return shares
