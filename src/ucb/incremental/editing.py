"""Changing a model's file: `ucb init`, `unlearn`, `merge` and `rename`. A file is replaced whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from ucb.incremental.frozen import FrozenTrunkModel, choose_grid
from ucb.incremental.inputs import Data
from ucb.incremental.merging import merge as merge_models
from ucb.incremental.model import Model
from ucb.incremental.pretrained import give_trunk
from ucb.incremental.progress_file import lock_model, progress_path
from ucb.incremental.trunks import OWN
from ucb.incremental.unlearning import Removal
from ucb.observer import Observer


def init(
    path: str | Path,
    trunk: str | nn.Module,
    *,
    weights: str | Path | None = None,
    features: int | None = None,
    seed: int = 0,
    embed: bool = False,
) -> Model:
    """Make the file of a model that has learnt nothing: places whose models are to be merged begin with copies of it.

    Its trunk must be one that no wave makes. It has no random features unless their number is given.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"there is {path} already: name another file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the model")
    if trunk == OWN:
        raise ValueError("a trunk of its own is made from the first wave: name a pretrained one")
    model = Model(trunk=trunk, weights=weights, features=features, seed=seed)
    if model.shape is None:
        raise ValueError("a module tells its features by examples: let it learn a first wave instead")
    assert model.trunk is not None
    found = give_trunk(model.ready or model.trunk, model.shape, features, seed)
    model.learner = FrozenTrunkModel(found, 0, grid=choose_grid(found))
    with lock_model(path):
        model.save(path, embed=embed)
    return model


def unlearn(
    path: str | Path,
    data: Data | None = None,
    *,
    wave: str | None = None,
    class_name: str | None = None,
    last: bool = False,
    label: str | None = None,
    weights: str | Path | None = None,
    trunk: nn.Module | None = None,
    device: str = "cpu",
    observer: Observer | None = None,
) -> Removal:
    """Take examples, a wave or a class out of the model at ``path``: what `ucb unlearn` does; see `Model.unlearn`.

    ``last`` stands for the name of the last wave; ``weights`` and ``trunk`` are those of `Model.open`.
    """
    with _changing(Path(path), weights, trunk) as (model, file):
        if last and wave is not None:
            raise ValueError("name a wave, or say that it is the last one, not both")
        if last:
            if not model.waves:
                raise ValueError("the model has learnt nothing yet")
            wave = model.waves[-1].name
        found = model.unlearn(data, wave=wave, class_name=class_name, label=label, device=device, observer=observer)
        model.save(file)
    return found


def rename(
    path: str | Path, old: str, new: str, *, weights: str | Path | None = None, trunk: nn.Module | None = None
) -> bool:
    """Give a class of the model at ``path`` another name; return whether it became one with the class of that name."""
    with _changing(Path(path), weights, trunk) as (model, file):
        joined = model.rename(old, new)
        model.save(file)
    return joined


def merge(
    paths: Sequence[str | Path], out: str | Path, *, weights: str | Path | None = None, trunk: nn.Module | None = None
) -> tuple[Model, list[str]]:
    """Put one model that knows what those at ``paths`` know at ``out``; return it, and remarks."""
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"there is {out} already: name another file")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} for the model")
    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    model, remarks = merge_models([Model.open(path, weights=weights, trunk=trunk) for path in paths], names)
    with lock_model(out):
        model.save(out)
    return model, remarks


@contextmanager
def _changing(path: Path, weights: str | Path | None, trunk: nn.Module | None) -> Iterator[tuple[Model, Path]]:
    """Open a model for a change, for this process alone; yield it and its own file, which is no link."""
    file = path.resolve() if path.is_symlink() else path
    with lock_model(file):
        model = Model.open(file, weights=weights, trunk=trunk)
        if progress_path(file).exists():
            said = f"{progress_path(file).name} holds an unfinished wave"
            raise RuntimeError(f"{said}: let `ucb learn` finish it, or remove that file")
        yield model, file
