"""The ONNX file answers as `predict` does, whatever runs it, and a failed export leaves nothing behind."""

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

from tests.incremental.data import blobs, digits
from ucb.bayes import forward, gaussians, mean_forward
from ucb.cli.app import app
from ucb.incremental import Model, trunks
from ucb.incremental import onnx as exporting
from ucb.incremental.bayesian_net import BayesianNetModel
from ucb.incremental.frozen import LEAST_NOISE, PAIRS
from ucb.incremental.model_file import to_bytes
from ucb.incremental.onnx import make_inputs, to_onnx
from ucb.incremental.predict import predict_batch
from ucb.seeds import generator_for

SAMPLES = 3
"""Fewer than in an answer, where a net is large."""
SCRIPTS = ["قطة", "猫", "кошка", "☃ und ß", "e\u0301", '"quoted", \\']


def session(source):
    return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])


def asked(source, x):
    (answers,) = session(source).run(["probabilities"], {"x": x.numpy()})
    return torch.from_numpy(answers)


def predicted(model, x):
    """All the probabilities behind the answers of `predict`, whose own are the largest of each row."""
    p = predict_batch(model, x).prediction.probabilities
    assert [row["probability"] for row in model.predict(x)] == pytest.approx(p.amax(1).tolist(), abs=1e-6)
    return p


def reference(model, x):
    """Class probabilities by plain solves of the head's sums in double precision: no code of the export.

    Scores are Gaussian with mean w^T phi and variance noise * phi^T A^-1 phi; pairs of opposite samples are averaged.
    """
    head = model.learner.head
    phi = torch.cat([model.learner.features(x).double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)
    a = head.gram + head.ridge * torch.eye(len(head.gram), dtype=torch.float64)
    weights = torch.linalg.solve(a, head.moments)
    noise = ((head.counts - (head.moments * weights).sum(0)) / head.counts.sum()).clamp_min(LEAST_NOISE)
    variance = (phi * torch.linalg.solve(a, phi.T).T).sum(1, keepdim=True)
    spread = (variance * noise * head.counts.sum() / model.learner.worth).sqrt()  # copies of an example are no evidence
    half = torch.randn(PAIRS, 1, len(noise), generator=generator_for("opinion"))
    balance = (head.counts.mean() / head.counts).sqrt()
    p = [((phi @ weights + sign * spread * half) * balance * model.calibration.scale).softmax(-1) for sign in (1, -1)]
    return torch.cat(p).mean(0)


@pytest.fixture(scope="module")
def known():
    """Digits of three waves, the last with a class that is known."""
    model = Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trunks, "FILTERS", 40)
        for pair in ([0, 1], [2, 3], [4, 1]):
            model.learn(digits(pair, 60))
    return model


@pytest.fixture(scope="module")
def file(known):
    return to_onnx(known)


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_digits_are_judged_alike(known, file, rows):
    x = digits(range(5), 60, "test")[0]
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))][:rows]
    answers = asked(file, x)
    assert answers.shape == (rows, 5)
    torch.testing.assert_close(answers.double(), reference(known, x), rtol=0, atol=1e-4)
    torch.testing.assert_close(answers.sum(1), torch.ones(rows))
    torch.testing.assert_close(answers, predicted(known, x), rtol=0, atol=1e-4)


def test_noise_is_judged_alike(known, file):
    x = torch.randint(0, 256, (50, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    x = torch.cat([x, x // 32, torch.zeros_like(x[:1]), torch.full_like(x[:1], 255)])
    torch.testing.assert_close(asked(file, x).double(), reference(known, x), rtol=0, atol=1e-4)


def test_labels_are_those_of_predict(known, file):
    x, truth = digits(range(5), 40, "test")
    labels = [known.classes[number] for number in asked(file, x).argmax(1)]
    assert labels == [row["label"] for row in known.predict(x)]
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) >= 0.85 * len(x)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 4, 4), (3, 8, 8), (1, 64, 70), (3, 9, 40)])
def test_images_of_any_size(shape):
    x = make_inputs(shape)
    model = Model()
    model.learn((x, ["a", "b"] * 32))
    torch.testing.assert_close(asked(to_onnx(model), x).double(), reference(model, x), rtol=0, atol=1e-4)


@pytest.mark.usefixtures("small")
def test_rows_near_and_far():
    model = Model()
    x, labels = blobs("ab", 40)
    x[:, 2] *= 1e-6
    x[:, 3] += 1e4
    model.learn((x, labels))
    for asked_for in (x, x * 30, torch.zeros(1, 6)):
        answers = asked(to_onnx(model), asked_for).double()
        torch.testing.assert_close(answers, reference(model, asked_for), rtol=0, atol=1e-4)


def made_lively(learner, x):
    """Give biases, scales and shifts, which a fresh net has at 0 or 1, and heads whose answers differ."""
    net, generator = learner.method.net.eval(), torch.Generator().manual_seed(0)
    for _, gaussian in gaussians(net):
        if gaussian.mu.dim() == 1:
            gaussian.mu.data += 0.2 * torch.randn(gaussian.mu.shape, generator=generator)
    for head in range(len(learner.heads)):
        with net.using(head), torch.no_grad():
            answers = mean_forward(net, learner.normalise(x))
        weight, bias = (net.heads[head].gaussian(name).mu.data for name in ("weight", "bias"))
        weight *= 3 / answers.std(0)[:, None]
        bias.copy_(3 * (bias - answers.mean(0)) / answers.std(0))


@pytest.mark.parametrize("net", ["small", "mlp", "alexnet", "resnet18"])
def test_nets_with_several_heads_and_a_class_that_two_of_them_know(net, monkeypatch):
    monkeypatch.setattr(exporting, "SAMPLES", SAMPLES)
    model = Model("ucb-ng", net=net)
    model.shape, model.classes = (1, 28, 28), ["a", "b", "c"]
    model.learner = BayesianNetModel(model.shape, net, [[0, 1], [1, 2]], seed=0)
    model.calibration.nll += torch.arange(len(model.calibration.nll))  # a small scale: no answer is all but certain
    model.learner.fit_normalisation(digits(range(3), 6)[0])
    x = torch.cat([digits(range(3), 4, "test")[0], make_inputs((1, 28, 28))[:8]])
    made_lively(model.learner, x)
    learner = model.learner
    bayesian = learner.method.net.eval()
    with bayesian.using(None), torch.no_grad():
        said = forward(bayesian, learner.normalise(x), SAMPLES, generator=generator_for("opinion"))
    voices = torch.full((SAMPLES, len(x), 3), -torch.inf)
    for numbers, own in zip(learner.heads, said.split(2, -1), strict=True):
        doubt = torch.distributions.Categorical(own.softmax(-1).mean(0)).entropy()
        for column, number in enumerate(numbers):
            voice = own.log_softmax(-1)[..., column] - doubt
            voices[..., number] = torch.maximum(voices[..., number], voice)
    expected = (voices * model.calibration.scale).softmax(-1).mean(0)
    assert expected.std(0).min() > 0.01, "the inputs are judged differently, so the test can fail"
    assert said.std(0).max() > 0.01, "and the samples differ"
    torch.testing.assert_close(asked(to_onnx(model), x), expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
@pytest.mark.parametrize("kind", ["rows", "images"])
def test_probabilities_are_those_of_predict(method, kind, tmp_path):
    """Waves of both kinds, by both ways: near and far, known and strange, and from the file that was saved."""
    model, options = Model(method), {"epochs": 2} if method == "ucb-ng" else {}
    data = blobs if kind == "rows" else digits
    for names in ("01", "23", "41"):
        model.learn(data([int(name) for name in names], 40), **options)
    usual = data(range(5), 10, *([] if kind == "images" else [4]))[0]
    x = torch.cat([usual, 25 * usual if kind == "rows" else make_inputs(model.shape)])
    model.save(tmp_path / "m.ucb")
    answers, expected = asked(to_onnx(Model.open(tmp_path / "m.ucb")), x), predicted(model, x)
    torch.testing.assert_close(answers, expected, rtol=0, atol=1e-4)
    assert 0.25 < float(expected.amax(1).mean()) < 0.999, "not all is certain, so the test can fail"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("columns", [3, 50])
def test_the_head_has_fewer_rows_than_blocks_or_many(columns, monkeypatch):
    monkeypatch.setattr(trunks, "UNITS", 2)
    model = Model()
    model.learn(blobs("abc", 12, columns=columns))
    x = blobs("abcd", 5, seed=1, columns=columns)[0]
    torch.testing.assert_close(asked(to_onnx(model), x), predicted(model, x), rtol=0, atol=1e-4)


@pytest.mark.usefixtures("small")
def test_the_file_says_what_it_is(tmp_path):
    model = Model()
    model.learn(blobs(SCRIPTS, 12))
    model.columns = ["größe", "w", "x", "y", "z", "长"]
    done = model.export(tmp_path / "m.onnx")
    assert done.bytes == (tmp_path / "m.onnx").stat().st_size
    assert 0 <= done.difference < 1e-4
    loaded = onnx.load(tmp_path / "m.onnx")
    facts = {entry.key: entry.value for entry in loaded.metadata_props}
    assert json.loads(facts["classes"]) == model.classes
    assert set(model.classes) == set(SCRIPTS)
    assert "猫" in facts["classes"], "readable without a parser"
    assert json.loads(facts["columns"]) == model.columns
    assert json.loads(facts["shape"]) == [6]
    assert facts["method"] == "fixed"
    assert facts["ucb_version"]
    assert "unsure" in facts["about"]
    assert session(str(tmp_path / "m.onnx")).get_modelmeta().custom_metadata_map == facts
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.usefixtures("small")
def test_what_is_no_number_is_not_exported(tmp_path, monkeypatch):
    model = Model()
    model.learn(blobs("ab", 12))
    model.learner.trunk.offsets.fill_(3e38)
    with pytest.raises(RuntimeError, match="the model gives no probability for some inputs: its file is damaged"):
        model.export(tmp_path / "m.onnx")
    damaged = to_onnx(model)
    model.learner.trunk.offsets.fill_(0)
    monkeypatch.setattr(exporting, "to_onnx", lambda model: damaged)
    with pytest.raises(RuntimeError, match="onnxruntime answers otherwise than ucb"):
        model.export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small")
def test_the_model_is_as_before():
    model = Model()
    model.learn(digits([0, 1], 20))
    before = to_bytes(model)
    to_onnx(model)
    assert to_bytes(model) == before


def invoked(*words):
    answer = CliRunner().invoke(app, [str(word) for word in words])
    assert "Traceback" not in answer.output
    return answer


@pytest.fixture
def saved(tmp_path, small):
    model = Model()
    model.learn(digits([0, 1], 20))
    model.save(tmp_path / "m.ucb")
    return tmp_path / "m.ucb"


def test_the_command_writes_the_file_and_says_how_close_it_is(saved):
    before = saved.read_bytes()
    out = saved.with_name("m.onnx")
    for _ in range(2):  # an older export is replaced
        answer = invoked("export", saved, out)
        assert answer.exit_code == 0, answer.output
        assert "onnxruntime answers like ucb" in answer.stdout
        assert "m.onnx" in answer.stdout
    assert saved.read_bytes() == before
    assert sorted(each.name for each in saved.parent.iterdir()) == ["m.onnx", "m.ucb"]
    x = digits([0, 1], 10, "test")[0]
    torch.testing.assert_close(asked(str(out), x).double(), reference(Model.open(saved), x), rtol=0, atol=1e-4)


def refused(saved, out, said, code=2):
    answer = invoked("export", saved, out)
    assert answer.exit_code == code, answer.output
    assert answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1
    assert said in answer.stderr


def test_places_that_cannot_be_are_refused(saved, tmp_path, monkeypatch):
    (tmp_path / "d.onnx").mkdir()
    refused(saved, tmp_path / "d.onnx", "is a folder")
    refused(saved, tmp_path / "none" / "m.onnx", "there is no folder")
    refused(saved, tmp_path / "m.txt", "must end in .onnx")
    refused(tmp_path / "none.ucb", tmp_path / "m.onnx", "there is no model")
    model = saved.rename(tmp_path / "same.onnx")
    refused(model, tmp_path / "." / "same.onnx", "the model itself")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(model, tmp_path / "m.onnx", "m.onnx: No space left on device", code=1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["d.onnx", "same.onnx"]


def test_a_place_that_cannot_be_written_to_is_refused(saved, tmp_path):
    (tmp_path / "m.onnx.part").mkdir()
    refused(saved, tmp_path / "m.onnx", "m.onnx.part", code=1)
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_refused(saved, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    refused(saved, closed / "m.onnx", "Permission denied", code=1)


@pytest.mark.usefixtures("small")
def test_an_export_that_answers_otherwise_is_not_written(tmp_path, monkeypatch):
    model = Model()
    model.learn(digits([0, 1], 20))
    whole = exporting.to_onnx

    def spoilt(model):
        loaded = onnx.load_from_string(whole(model))
        for constant in loaded.graph.initializer:
            value = onnx.numpy_helper.to_array(constant)
            if value.shape == (model.learner.trunk.features, 2):
                constant.CopyFrom(onnx.numpy_helper.from_array(value[:, ::-1] * np.float32(0.5), constant.name))
        return loaded.SerializeToString()

    (tmp_path / "m.onnx").write_bytes(b"an older export")
    monkeypatch.setattr(exporting, "to_onnx", spoilt)
    with pytest.raises(RuntimeError, match="answers otherwise than ucb"):
        model.export(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"an older export"


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_package_is_one_sentence(saved, missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom ucb.cli.main import main\nmain()"
    words = ["export", str(saved), str(saved.with_name("m.onnx"))]
    answer = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 1
    assert answer.stderr.strip() == f"error: exporting needs {missing}: install it with `pip install 'ucb[onnx]'`"
    assert not saved.with_name("m.onnx").exists()


def test_a_model_without_a_wave_has_nothing_to_export(tmp_path):
    with pytest.raises(ValueError, match="learnt nothing"):
        Model().export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
