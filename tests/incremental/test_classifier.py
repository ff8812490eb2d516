"""The estimator obeys scikit-learn's own checks, works inside its tools, and learns wave by wave."""

import pickle
import subprocess
import sys
from unittest import SkipTest

import joblib
import numpy as np
import pyarrow
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.incremental.data import blobs, digits
from ucb.incremental import Model
from ucb.incremental.classifier import IncrementalClassifier
from ucb.incremental.trunks import RowTrunk


@parametrize_with_checks([IncrementalClassifier(), IncrementalClassifier("ucb-ng", epochs=5)])
def test_scikit_learns_own_checks(estimator, check, small):
    """None is expected to fail."""
    try:
        check(estimator)
    except SkipTest as skipped:
        pytest.skip(str(skipped))


@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
@pytest.mark.usefixtures("small")
def test_what_a_row_is_told_does_not_depend_on_the_rows_beside_it(method):
    """Products of so few columns are summed up in another order for the last rows, and where there are few rows."""
    x, y = make_classification(700, 8, random_state=0)
    estimator = IncrementalClassifier(method, epochs=None if method == "fixed" else 2).fit(x, y)
    whole, order = estimator.predict_with_uncertainty(x), np.random.default_rng(0).permutation(len(x))
    rows = np.r_[0:21]
    for some in (order, order[:20], rows[:1], rows[:2], rows[:3], rows[:7], rows):
        found = estimator.predict_with_uncertainty(x[some])
        for name in ("probabilities", "entropy", "mutual_information", "doubt"):
            np.testing.assert_array_equal(found[name], whole[name][some], err_msg=name)


@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
@pytest.mark.usefixtures("small")
def test_what_an_image_is_told_depends_on_those_beside_it_in_the_last_bits_only(method):
    """Convolutions are in single precision."""
    x, y = digits(range(3), 30)
    estimator = IncrementalClassifier(method, epochs=None if method == "fixed" else 1).fit(x.numpy(), y)
    whole, order = estimator.predict_proba(x.numpy()), np.random.default_rng(0).permutation(len(x))
    for some in (order, order[:20], order[:1]):
        np.testing.assert_allclose(estimator.predict_proba(x.numpy()[some]), whole[some], atol=2e-6)


@pytest.fixture(scope="module")
def handwriting():
    return load_digits(return_X_y=True)


def test_in_a_pipeline_and_cross_validated(handwriting, monkeypatch):
    monkeypatch.setattr("ucb.incremental.trunks.UNITS", 300)
    x, y = handwriting
    scores = cross_val_score(make_pipeline(StandardScaler(), IncrementalClassifier()), x, y, cv=3)
    assert scores.min() > 0.9


@pytest.mark.usefixtures("small")
def test_a_search_finds_the_better_parameter():
    """A linear boundary in 12 columns that matter: chance is 50 %, and one epoch of a net learns less than a fit."""
    x, y = make_classification(240, 12, n_informative=12, n_redundant=0, class_sep=2.0, random_state=1)
    grid = [{"method": ["fixed"], "random_state": [0, 1]}, {"method": ["ucb-ng"], "epochs": [1]}]
    search = GridSearchCV(IncrementalClassifier(), grid, cv=3).fit(x, y)
    assert len(search.cv_results_["params"]) == 3
    assert search.best_estimator_.score(x, y) > 0.8
    assert search.best_estimator_.get_params()["method"] == search.best_params_["method"]


@pytest.mark.usefixtures("small")
def test_a_clone_has_the_parameters_and_nothing_that_was_learnt():
    estimator = IncrementalClassifier(random_state=5).fit(*numbered("ab", 10))
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "model_")
    with pytest.raises(NotFittedError):
        copy.predict(numbered("ab", 1)[0])


@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
@pytest.mark.usefixtures("small")
def test_a_pickled_estimator_answers_and_learns_as_before(method, tmp_path):
    estimator = IncrementalClassifier(method, epochs=None if method == "fixed" else 2)
    estimator.partial_fit(*numbered("ab", 20))
    joblib.dump(estimator, tmp_path / "e.joblib")
    second, asked = numbered("cd", 20), numbered("abcd", 5, seed=3)[0]
    for twin in (pickle.loads(pickle.dumps(estimator)), joblib.load(tmp_path / "e.joblib")):
        np.testing.assert_array_equal(twin.predict_proba(asked), estimator.predict_proba(asked))
        twin.partial_fit(*second)
        assert list(twin.classes_) == ["a", "b", "c", "d"]
        assert list(estimator.classes_) == ["a", "b"]


def numbered(names, per_class, seed=0):
    """Blobs as numpy arrays."""
    x, labels = blobs(names, per_class, seed)
    return x.numpy(), np.array(labels)


@pytest.mark.usefixtures("small")
def test_two_waves_and_one_fit_have_the_same_head_where_the_trunk_is_the_same(monkeypatch):
    """A trunk that does not look at data depends on the seed alone; then the sums are the same, and so is the head."""
    monkeypatch.setattr(RowTrunk, "fit", lambda *_: None)
    first, second = numbered("ab", 30), numbered("cb", 30, seed=1)
    x, y = (np.concatenate(parts) for parts in zip(first, second, strict=True))
    waves = IncrementalClassifier().partial_fit(*first).partial_fit(*second)
    once = IncrementalClassifier().fit(x, y)
    assert waves.model_.classes == once.model_.classes == ["a", "b", "c"]
    assert torch.equal(waves.model_.learner.trunk.directions, once.model_.learner.trunk.directions)
    assert waves.model_.learner.head.ridge == once.model_.learner.head.ridge
    weights = [estimator.model_.learner.head.weights for estimator in (waves, once)]
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(waves.predict(x), once.predict(x))


@pytest.mark.usefixtures("small")
def test_the_trunk_is_that_of_the_first_wave():
    first, second = numbered("ab", 30), numbered("cd", 30)
    estimator = IncrementalClassifier().partial_fit(*first)
    mean = estimator.model_.learner.trunk.mean.clone()
    estimator.partial_fit(*second)
    assert torch.equal(estimator.model_.learner.trunk.mean, mean)
    assert not torch.equal(IncrementalClassifier().fit(*second).model_.learner.trunk.mean, mean)


@pytest.mark.usefixtures("small")
def test_classes_may_come_in_any_wave():
    estimator = IncrementalClassifier().partial_fit(*numbered("mk", 20))
    assert list(estimator.classes_) == ["k", "m"]
    estimator.partial_fit(*numbered("al", 20))
    assert list(estimator.classes_) == ["a", "k", "l", "m"]
    x, y = numbered("aklm", 10, seed=2)
    assert estimator.score(x, y) > 0.95
    p = estimator.predict_proba(x)
    assert p.shape == (40, 4)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    assert all(p[row, list(estimator.classes_).index(label)] > 0.5 for row, label in list(enumerate(y))[::10])


@pytest.mark.usefixtures("small")
def test_classes_that_are_named_have_a_column_from_the_start():
    estimator = IncrementalClassifier().partial_fit(*numbered("bc", 20), classes=["a", "b", "c"])
    x, y = numbered("abc", 10, seed=2)
    p = estimator.predict_proba(x)
    assert list(estimator.classes_) == ["a", "b", "c"]
    assert (p[:, 0] == 0).all()
    assert set(estimator.predict(x)) <= {"b", "c"}
    estimator.partial_fit(*numbered("a", 20))
    assert list(estimator.classes_) == ["a", "b", "c"]
    assert estimator.score(x, y) > 0.95
    estimator.partial_fit(*numbered("d", 20), classes=["e"])
    assert list(estimator.classes_) == ["a", "b", "c", "d", "e"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "labels",
    [
        np.array([7, -3]),
        np.array([2.0, 0.5]),
        np.array([True, False]),
        np.array(["猫", "кошка"]),
        np.array(["b", "a"], dtype=object),
        np.array([0, 255], dtype=np.uint8),
    ],
)
def test_labels_come_back_as_they_were_given(labels):
    x, names = numbered("ab", 20)
    y = labels[(names == "b").astype(int)]
    if labels.dtype == float:
        with pytest.raises(ValueError, match="Unknown label type"):
            IncrementalClassifier().fit(x, y)
        y = np.rint(y)
    estimator = IncrementalClassifier().fit(x, y)
    answers = estimator.predict(x)
    assert answers.dtype == y.dtype
    np.testing.assert_array_equal(answers, y)
    np.testing.assert_array_equal(estimator.classes_, np.unique(y))


@pytest.mark.usefixtures("small")
def test_a_whole_number_is_one_class_however_it_is_stored():
    x, names = numbered("ab", 20)
    y = (names == "b").astype(int)
    estimator = IncrementalClassifier().partial_fit(x, y).partial_fit(x, y.astype(float))
    assert estimator.model_.classes == ["0", "1"]
    assert list(estimator.classes_) == [0, 1]


@pytest.mark.usefixtures("small")
def test_a_wave_that_cannot_be_leaves_all_as_it_was():
    x, y = numbered("ab", 20)
    estimator = IncrementalClassifier().partial_fit(x, y)
    before = estimator.predict_proba(x)
    for wrong_x, wrong_y, said in [
        (x, np.arange(40) % 2, "of one kind"),
        (x[:, :5], y, "features"),
        (np.full_like(x, np.nan), y, "NaN"),
        (np.full_like(x, 1e300, dtype=float), y, "too large"),
        (x, y[:5], "inconsistent"),
        (np.zeros((4, 6, 2)), y[:4], "expected are rows"),
    ]:
        with pytest.raises(ValueError, match=said):
            estimator.partial_fit(wrong_x, wrong_y)
    assert list(estimator.classes_) == ["a", "b"]
    np.testing.assert_array_equal(estimator.predict_proba(x), before)
    with pytest.raises(ValueError, match="Unknown label type"):
        IncrementalClassifier().fit(x, np.array([1, "1"] * 20, dtype=object))


@pytest.mark.usefixtures("small")
def test_images_in_every_form_are_the_same_images():
    x, labels = digits([0, 1], 25)
    x = x.numpy()
    estimator = IncrementalClassifier().fit(x, labels)
    assert estimator.model_.shape == (1, 28, 28)
    assert estimator.score(x, labels) > 0.9
    p = estimator.predict_proba(x)
    np.testing.assert_array_equal(estimator.predict_proba(x / 255), p)
    np.testing.assert_array_equal(estimator.predict_proba(x.astype(np.int64)), p)
    last = IncrementalClassifier().fit(x.transpose(0, 2, 3, 1), labels)
    np.testing.assert_array_equal(last.predict_proba(x.transpose(0, 2, 3, 1)), p)
    for wrong, said in [
        (x.astype(float), "fractions from 0 to 1"),
        (-x.astype(int), "0 to 255"),
        (x[:, :, :20], "the model knows"),
    ]:
        with pytest.raises(ValueError, match=said):
            estimator.predict(wrong)


@pytest.mark.usefixtures("small")
def test_uncertainty_is_that_of_the_model():
    x, y = numbered("ab", 40)
    estimator = IncrementalClassifier().fit(x, y)
    asked = np.concatenate([numbered("ab", 10, seed=2)[0], np.full((3, 6), 80.0, np.float32)])
    said = estimator.predict_with_uncertainty(asked)
    rows = estimator.model_.predict(torch.from_numpy(asked))
    for name in ("label", "unsure"):
        assert said[name].tolist() == [row[name] for row in rows]
    for name in ("probability", "entropy", "mutual_information"):
        np.testing.assert_allclose(said[name], [row[name] for row in rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(estimator.unsure(asked), said["unsure"])
    assert said["unsure"].dtype == bool
    assert said["unsure"][-3:].all()
    assert not said["unsure"][:20].all()
    threshold = estimator.model_.calibration.threshold
    np.testing.assert_array_equal(said["doubt"] > threshold, said["unsure"])


@pytest.mark.usefixtures("small")
def test_the_seed_decides_and_the_model_file_is_that_of_the_commands(tmp_path):
    x, y = numbered("ab", 20)
    p = [IncrementalClassifier(random_state=seed).fit(x, y).predict_proba(x) for seed in (0, np.int64(0), 1)]
    np.testing.assert_array_equal(p[0], p[1])
    assert np.abs(p[0] - p[2]).max() > 1e-6
    drawn = [IncrementalClassifier(random_state=np.random.RandomState(3)).fit(x, y).model_.seed for _ in range(2)]
    assert drawn[0] == drawn[1]
    estimator = IncrementalClassifier(random_state=None).fit(x, y)
    estimator.model_.save(tmp_path / "m.ucb")
    rows = Model.open(tmp_path / "m.ucb").predict(torch.from_numpy(x))
    assert [row["label"] for row in rows] == estimator.predict(x).tolist()


@pytest.mark.usefixtures("small")
def test_names_of_columns_reach_the_model():
    x, y = numbered("ab", 20)
    names = ["höhe", "b", "c", "d", "e", "長さ"]
    table = pyarrow.table(dict(zip(names, x.T, strict=True)))
    estimator = IncrementalClassifier().fit(table, y)
    assert estimator.model_.columns == list(estimator.feature_names_in_) == names
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(table.rename_columns(names[::-1]))


def test_wrong_parameters_are_refused_when_it_learns():
    for parameters, said in [
        ({"method": "magic"}, "method must be one of"),
        ({"epochs": 3}, "epochs go with"),
        ({"net": "mlp"}, "a net can be chosen with"),
        ({"device": "tpu"}, "device must be"),
    ]:
        with pytest.raises(ValueError, match=said):
            IncrementalClassifier(**parameters).fit(*numbered("ab", 5))


def test_without_scikit_learn_only_the_estimator_is_missing():
    code = "import sys; sys.modules['sklearn'] = None\nimport ucb.incremental, ucb.cli.app\n"
    code += "import ucb.incremental.classifier"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 1
    last = answer.stderr.strip().splitlines()[-1]
    assert last == "ImportError: the estimator needs scikit-learn: install it with `pip install 'ucb[sklearn]'`"


def test_nothing_else_imports_scikit_learn():
    code = "import sys, ucb.incremental, ucb.cli.app; assert not {'sklearn', 'onnx', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
