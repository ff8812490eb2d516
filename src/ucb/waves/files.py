"""Learning straight into a model file: what `ucb learn` does, for Python programs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ucb.data.readers import ExampleReader as Examples
from ucb.data.readers import fingerprint
from ucb.data.readers.reader import shown
from ucb.storage import ceilings, read_bytes
from ucb.waves.keeping import PAUSE, Keeper, alone_with, progress_file, remove_progress
from ucb.waves.model import Model
from ucb.waves.prints import RepeatedWaveError
from ucb.waves.reading import Data
from ucb.waves.watching import Watcher
from ucb.waves.wave import Report


def learn(
    path: str | Path,
    data: Data,
    name: str | None = None,
    *,
    method: str | None = None,
    net: str | None = None,
    label: str | None = None,
    seed: int | None = None,
    device: str = "cpu",
    epochs: int | None = None,
    watcher: Watcher | None = None,
    pause: float = PAUSE,
    again: bool = False,
) -> Report:
    """Learn a wave into the model at ``path``, which is made if there is none.

    A wave that the model has learnt before is refused, unless it is wanted ``again``.

    The file stays as it was until the wave is learnt, whatever happens; what has been done is kept beside it every
    ``pause`` seconds, and the same call goes on from there.
    """
    path = Path(path)
    if path.is_symlink():
        path = path.resolve()  # the file itself is replaced, not the link
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file for the model")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the model")
    watcher = Watcher() if watcher is None else watcher
    name = None if name is None else shown(name)
    with alone_with(path):
        if path.exists():
            model = Model.open(path, device)
        else:  # who names a net wants it to learn
            model = Model(method or ("fixed" if net is None else "ucb-ng"), net=net, seed=seed or 0)
        _refuse_change(model, path, method, net)
        before = hashlib.sha256(read_bytes(path, ceilings.MODEL)).hexdigest() if path.exists() else None

        def keeper(examples: Examples, title: str) -> Keeper:
            identity = {
                "data": fingerprint(examples),
                "model": before,
                "wave": title,
                "method": model.method,
                "net": model.net,
                "seed": model.seed if seed is None else seed,
                "epochs": epochs,
                "device": device,
            }
            return Keeper(progress_file(path), identity, watcher, pause)

        try:
            report = model.learn(
                data,
                name,
                label=label,
                seed=seed,
                device=device,
                epochs=epochs,
                watcher=watcher,
                keeper=keeper,
                again=again,
            )
        except RepeatedWaveError:
            remove_progress(path)
            raise
        model.save(path)
        remove_progress(path)
    return report


def _refuse_change(model: Model, path: Path, method: str | None, net: str | None) -> None:
    """Refuse a method or a net that the model does not have."""
    if method is not None and method != model.method:
        raise ValueError(f"{path} learns with {model.method}, not with {method}: leave --method out")
    if net is not None and net != model.net:
        raise ValueError(f"the net of {path} is {model.net or 'its own trunk'}, not {net}: leave --net out")
