"""A model as an estimator of scikit-learn: in pipelines, searches and cross-validation, and wave by wave.

It needs scikit-learn (`pip install 'ucb[sklearn]'`), which nothing else in this package imports.

What differs from other estimators of scikit-learn:

- ``partial_fit`` learns a wave. New classes may come in any wave: ``classes`` may be left out,
  also at the first call, and ``classes_`` then grows (it stays sorted, so columns of ``predict_proba`` move). Classes
  that are named are in ``classes_`` from then on, with probability 0 until there is an example of them. Naming all of
  them at the first call is what scikit-learn asks for, and it keeps the columns where they are.
- ``fit`` of everything at once and ``partial_fit`` of its parts end, with "fixed", with the same head to rounding
  if the trunk is the same. The trunk is made from the first wave, which is another one then, and so are the held-out
  examples by which answers are calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucb.incremental.inputs import ArrayExamples, read_unlabelled
from ucb.incremental.model import Model
from ucb.incremental.predict import predict_batches

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError("the estimator needs scikit-learn: install it with `pip install 'ucb[sklearn]'`") from None

Array = npt.NDArray[Any]
KINDS = {"b": "true or false", "i": "numbers", "u": "numbers", "f": "numbers"}
"""What labels are, by numpy's letter; all others are text."""
CHANNELS = (1, 3)


class IncrementalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns rows [n, F], or images [n, C, H, W] or [n, H, W, C] with one channel or three, wave by wave.

    Pixels are whole numbers from 0 to 255, or fractions from 0 to 1.

    Parameters
    ----------
    method : "fixed" or "ucb-ng"
        A trunk that stays and an exact head, or a net that goes on learning with a head for each wave.
    net : str or None
        With ucb-ng: small, mlp, alexnet or resnet18; None chooses by the size of the examples.
    trunk : str, nn.Module or None
        With fixed: what turns examples into features, as :class:`ucb.Model` takes it; None chooses as it does.
    weights : str, Path or None
        With a trunk of timm or torchvision: the file with its weights.
    features : int or None
        With a trunk that comes ready: how many random features of it the head sees in its place.
    epochs : int or None
        With ucb-ng: the most epochs a wave may take.
    device : str
        cpu, cuda or cuda:N.
    random_state : int, RandomState or None
        Fixes what is held out, and all noise. None draws a seed from numpy's global state.

    Attributes
    ----------
    classes_ : the labels as they were given, sorted.
    model_ : the :class:`ucb.incremental.Model`; ``model_.save(path)`` writes the file that the commands use.
    n_features_in_ : the length of axis 1 of what was learnt: columns, or for images [n, C, H, W] channels.

    Examples
    --------
    >>> import numpy as np, ucb
    >>> x = np.random.default_rng(0).normal(size=(60, 4))
    >>> classifier = ucb.IncrementalClassifier()
    >>> classifier = classifier.partial_fit(x + 3, ["cat"] * 60).partial_fit(x - 3, ["dog"] * 60)
    >>> classifier.predict(x[:2] + 3).tolist(), classifier.predict_proba(x).shape
    (['cat', 'cat'], (60, 2))

    """

    model_: Model
    classes_: Array

    def __init__(
        self,
        method: str = "fixed",
        *,
        net: str | None = None,
        trunk: Any = None,
        weights: Any = None,
        features: int | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.net = net
        self.trunk = trunk
        self.weights = weights
        self.features = features
        self.epochs = epochs
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> IncrementalClassifier:  # noqa: N803 (scikit-learn's name)
        """Forget everything, and learn one wave."""
        return self._learn(X, y, None, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> IncrementalClassifier:  # noqa: N803
        """Learn a wave; ``classes`` may name classes that are yet to come. If it fails, all is as before."""
        return self._learn(X, y, classes, first=not hasattr(self, "model_"))

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the most probable label of each row."""
        return self.predict_with_uncertainty(X)["label"]

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return probabilities in single precision, a column for each of ``classes_``."""
        return self._predict(X)["probabilities"]

    def unsure(self, X: Any) -> npt.NDArray[np.bool_]:  # noqa: N803
        """Return whether the model is unsure of each row."""
        return self._predict(X)["unsure"]

    def predict_with_uncertainty(self, X: Any) -> dict[str, Array]:  # noqa: N803
        """Return all that is known of each row.

        ``label``, ``probability`` (of the label), ``probabilities`` (of all classes), ``entropy`` and
        ``mutual_information`` in nats, ``doubt`` and ``unsure``, which is whether that is above the threshold.
        """
        found = self._predict(X)
        p = found["probabilities"]
        return {"label": self.classes_[p.argmax(1)], "probability": p.max(1), **found}

    def _learn(self, X: Any, y: Any, classes: Any, first: bool) -> IncrementalClassifier:  # noqa: N803
        examined, y = validate_data(self, X, y, reset=first, allow_nd=True)
        check_classification_targets(y)
        labels = np.unique(y)
        known = [] if first else [self.classes_]
        named = [] if classes is None else [np.unique(classes)]
        together = _unite([*known, *named, labels])
        names = dict(zip(together.tolist(), _as_names(together), strict=True))
        columns = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        examples = ArrayExamples(_as_tensor(examined), [names[label] for label in y.tolist()], columns)
        how = {"net": self.net, "trunk": self.trunk, "weights": self.weights, "features": self.features}
        model = self.model_ if not first else Model(self.method, seed=self._seed(), **how)
        model.learn(examples, device=self.device, epochs=self.epochs, again=True)
        self.model_, self.classes_ = model, together
        return self

    def _predict(self, X: Any) -> dict[str, Array]:  # noqa: N803
        check_is_fitted(self)
        examined = validate_data(self, X, reset=False, allow_nd=True)
        model, examples = self.model_, read_unlabelled(self.model_, ArrayExamples(_as_tensor(examined)))
        places = {name: place for place, name in enumerate(_as_names(self.classes_))}
        columns = [places[name] for name in model.classes]
        parts = [found for _, found in predict_batches(model, examples)]
        probabilities = np.zeros((len(examples), len(self.classes_)))
        probabilities[:, columns] = _join([part.prediction.probabilities for part in parts])
        return {
            "probabilities": (probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32),
            "entropy": _join([part.prediction.entropy for part in parts]),
            "mutual_information": _join([part.prediction.mutual_information for part in parts]),
            "doubt": _join([part.unsureness for part in parts]),
            "unsure": _join([part.unsure for part in parts]).astype(bool),
        }

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint((1 << 31) - 1))


def _join(parts: Sequence[Tensor]) -> Array:
    found: Array = torch.cat(list(parts)).cpu().double().numpy()
    return found


def _unite(parts: Sequence[Array]) -> Array:
    """Return all labels once each, sorted; labels of different kinds cannot be told from each other safely."""
    kinds = sorted({KINDS.get(part.dtype.kind, "text") for part in parts})
    if len(kinds) > 1:
        raise ValueError(f"the labels of all waves must be of one kind, not {' and '.join(kinds)}")
    return np.unique(np.concatenate(parts))


def _as_names(labels: Array) -> list[str]:
    """Return labels as the names of classes; a whole number is the same class however it is stored."""
    return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in labels.tolist()]


def _as_tensor(x: Array) -> Tensor:
    """Return rows as float32, or images as uint8 [n, C, H, W]."""
    if x.ndim == 2:
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(x, dtype=np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("the rows hold numbers that are too large for single precision")
        return torch.from_numpy(rows)
    if x.ndim == 4 and x.shape[3] in CHANNELS:
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1] not in CHANNELS:
        raise ValueError(f"expected are rows [n, F], or images [n, C, H, W] or [n, H, W, C], not {list(x.shape)}")
    most = 1 if x.dtype.kind == "f" else 255
    if x.dtype.kind not in "uif" or x.min() < 0 or x.max() > most:
        raise ValueError("pixels must be whole numbers from 0 to 255, or fractions from 0 to 1")
    pixels = np.rint(x * 255) if most == 1 else x
    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.uint8))
