"""Trunks of other libraries: real nets of transformers and real ONNX files; timm and torchvision where they load."""

import hashlib
import json
import pickle
import shutil
import socket
import subprocess
import sys

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

from tests.incremental.test_pretrained import joined, photographs, resize_slowly, same_head
from tests.support import make_output_plain, refused, succeed
from ucb.incremental import DamagedModelError, Model, checked_file, learn
from ucb.incremental.pretrained import WeightsError, take_roots

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIDE = 32


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders as transformers writes them, of tiny nets by chance; with the nets."""
    transformers = pytest.importorskip("transformers")
    place, made = tmp_path_factory.mktemp("nets"), {}
    pixels = {"do_normalize": True, "do_rescale": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2]}
    pixels |= {"rescale_factor": 1 / 255, "size": {"height": SIDE, "width": SIDE}, "image_processor_type": "Any"}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    vit = transformers.ViTConfig(**sizes, image_size=SIDE, patch_size=8)
    conv = transformers.ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1])
    residual = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    was = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made["classes"] = transformers.ViTForImageClassification(vit)
        made["pooled"] = transformers.ViTModel(vit)
        made["convnext"] = transformers.ConvNextForImageClassification(conv)
        made["resnet"] = transformers.ResNetModel(residual)
        for net in made.values():
            for parameter in net.parameters():
                parameter.data += 0.05 * torch.randn_like(parameter)  # biases too, and layer scales of 1e-6
    for name, net in made.items():
        net.eval().save_pretrained(place / name)
        (place / name / "preprocessor_config.json").write_text(json.dumps(pixels))
    if was:
        transformers.utils.logging.enable_progress_bar()
    return place, made


def write_onnx(path, seed=0, last=False, rows="n", side=SIDE, features=24, opset=17):
    """A convolution, its positive part and the mean over the image; return what computes the same."""
    generator = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(features, 3, 5, 5, generator=generator) / 5, torch.randn(features, generator=generator)
    nodes = [
        helper.make_node("Conv", ["p", "w", "b"], ["c"], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["features"]),
    ]
    if last:
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["p"], perm=[0, 3, 1, 2]))
    source = "x" if last else "p"
    shape = [rows, side, side, 3] if last else [rows, 3, side, side]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [rows, features, 1, 1])],
        [numpy_helper.from_array(weight.numpy(), "w"), numpy_helper.from_array(bias.numpy(), "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return lambda pixels: F.conv2d(pixels, weight, bias, 2).relu().mean((2, 3))


def prepare(x, mean, spread):
    """Fractions of white, less their mean, over their spread."""
    mean, spread = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (mean, spread))
    return (((x.double() / 255) - mean) / spread).float()


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("something reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("name", ["classes", "pooled", "convnext", "resnet"])
def test_nets_of_transformers_show_what_the_library_computes(folders, no_network, name):
    place, nets = folders
    net = nets[name]
    x = photographs("ab", 3, sides=(SIDE, SIDE))[0]
    pixels = prepare(x, (0.5, 0.4, 0.3), (0.5, 0.25, 0.2))
    with torch.no_grad():
        if name == "classes":  # its file has no weights of a pooler, so the first token is taken
            wanted = net.vit(pixel_values=pixels).last_hidden_state[:, 0]
        else:
            wanted = getattr(net, "convnext", net)(pixel_values=pixels).pooler_output.flatten(1)
    before = torch.get_rng_state()
    trunk = Model(trunk=f"transformers:{place / name}").ready
    assert torch.equal(torch.get_rng_state(), before)
    found = trunk(x)
    assert found.shape == wanted.shape
    assert wanted.std(0).mean() > 0.01
    torch.testing.assert_close(found, take_roots(wanted), rtol=0, atol=1e-3)
    assert torch.equal(torch.cat([trunk(each[None]) for each in x]), found)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("rows", ["n", 1, 3])
def test_onnx_files_show_what_their_graphs_say(tmp_path, last, rows):
    compute = write_onnx(tmp_path / "net.onnx", last=last, rows=rows)
    trunk = Model(trunk=str(tmp_path / "net.onnx")).ready
    x = photographs("ab", 4, sides=(SIDE, SIDE))[0]
    torch.testing.assert_close(trunk(x), take_roots(compute(prepare(x, *IMAGENET))), rtol=0, atol=1e-3)
    assert torch.equal(torch.cat([trunk(each[None]) for each in x]), trunk(x))
    grey = x[:, :1]
    assert torch.equal(trunk(grey), trunk(grey.expand(-1, 3, -1, -1)))
    large = photographs("a", 2, sides=(70, 51))[0]
    pixels = np.stack([resize_slowly(image, SIDE) for image in large.numpy()])
    wanted = take_roots(compute(prepare(torch.from_numpy(pixels), *IMAGENET)))
    torch.testing.assert_close(trunk(large), wanted, rtol=0, atol=1e-2)


def make_trunk(kind, folders, tmp_path):
    """The name of a trunk, and the file with its weights."""
    if kind == "onnx":
        write_onnx(tmp_path / "net.onnx")
        return str(tmp_path / "net.onnx"), tmp_path / "net.onnx"
    shutil.copytree(folders[0] / "classes", tmp_path / "vit")
    return f"transformers:{tmp_path / 'vit'}", tmp_path / "vit" / "model.safetensors"


@pytest.mark.parametrize("kind", ["onnx", "transformers"])
def test_waves_one_by_one_are_one_fit(folders, tmp_path, kind):
    trunk, _ = make_trunk(kind, folders, tmp_path)
    waves = [photographs("ab", 12), photographs("bc", 12, 1, sides=(40, 30)), photographs("d", 12, 2)]
    one, other = Model(trunk=trunk), Model(trunk=trunk)
    for wave in waves[::2]:
        one.learn(wave)
    other.learn(joined(*waves[::2]))
    assert one.shape == (3, SIDE, SIDE)
    same_head(one, other)
    one.learn(waves[1])
    assert one.classes == ["a", "b", "d", "c"]


@pytest.mark.parametrize("kind", ["onnx", "transformers"])
def test_a_file_knows_its_trunk_by_the_hash_of_its_weights(folders, tmp_path, kind, no_network):
    trunk, weights = make_trunk(kind, folders, tmp_path)
    (tmp_path / "models").mkdir()
    path, x = tmp_path / "models" / "m.ucb", photographs("ab", 3, 4)[0]
    model = Model(trunk=trunk, features=30)
    model.learn(photographs("ab", 8))
    model.save(path)
    said = model.predict(x)
    assert path.stat().st_size < 30_000
    assert Model.open(path).predict(x) == said
    assert Model.open(path, trunk=trunk).predict(x) == said
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    shutil.copy(path, tmp_path / "light.ucb")
    opened = Model.open(path)
    opened.save(path, embed=True)
    assert "weights" not in checked_file.read_content(path)[0]["way"], "where it was is of no use then"
    moved = weights.rename(tmp_path / "elsewhere")
    for _ in range(2):  # a file that holds the weights goes on holding them
        opened = Model.open(path)
        assert opened.predict(x) == said
        opened.save(path)
    path = tmp_path / "models" / "light.ucb"
    (tmp_path / "light.ucb").rename(path)
    with pytest.raises(WeightsError) as missing:
        Model.open(path)
    assert f"needs {weights.name} with the SHA-256 {digest}, and it is not there: name it with --weights" in str(
        missing.value
    )
    assert Model.open(path, weights=moved).predict(x) == said
    shutil.copy(moved, path.parent / weights.name)
    assert Model.open(path).predict(x) == said, "beside the model"
    (path.parent / weights.name).unlink()
    weights.write_bytes(b"another")
    with pytest.raises(WeightsError, match=rf"{weights.name} is another file now: name it with --weights FILE"):
        Model.open(path)
    with pytest.raises(
        WeightsError, match=rf"is not what the model's trunk .* was learnt with: that is {weights.name}"
    ):
        Model.open(path, weights=weights)
    with pytest.raises(WeightsError, match=r"^there are no weights .*nowhere$"):
        Model.open(path, weights=tmp_path / "nowhere")
    shown = Model.open(path, whole=False)
    assert shown.show() == model.show()
    with pytest.raises(RuntimeError, match=r"^the model was opened without its trunk: it can be shown, but neither "):
        shown.predict(x)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda facts, tensors: facts.update(side=64), "the shape is not that of the trunk's images"),
        (lambda facts, tensors: facts.update(side=10**9), "way.trunk.side is no whole number from 8 to 1024"),
        (lambda facts, tensors: facts.update(mean=[0, 0]), "what is done with pixels is not for colours"),
        (lambda facts, tensors: facts.update(spread=[1, 0, 1]), "what is done with pixels is not for colours"),
        (lambda facts, tensors: facts.update(mean=[0, 0, "a"]), r"way.trunk.mean\[2\] is no number"),
        (lambda facts, tensors: facts.update(more=1), "way.trunk.'more' is unknown"),
        (lambda facts, tensors: facts.update(kind="keras"), "way.trunk.kind is none of"),
        (lambda facts, tensors: facts.update(features=17), "the tensor trunk.probe is"),
        (lambda facts, tensors: facts.update(sha256="0" * 64), "trunk.content is not what way.trunk.sha256 says"),
        (lambda facts, tensors: facts["config"].pop("model_type"), "way.trunk.config: .* has no model_type"),
        (lambda facts, tensors: facts["config"].update(auto_map={"AutoModel": "m.N"}), "asks for more than weights"),
        (lambda facts, tensors: facts["config"].update(use_timm_backbone=True), "asks for more than weights"),
        (lambda facts, tensors: facts["config"].update(model_type="timm_wrapper"), "asks for more than weights"),
        (lambda facts, tensors: facts["config"].update(_attn_implementation="a/b"), "asks for more than weights"),
        (lambda facts, tensors: facts["config"].update(deep=[[[[[1]]]]]), "configuration is too large"),
        (lambda facts, tensors: facts.pop("size"), "way.trunk.size is missing"),
        (lambda facts, tensors: tensors.update({"trunk.more": torch.zeros(1)}), "there are unknown tensors"),
        (lambda facts, tensors: tensors.update({"trunk.content": torch.zeros(9)}), "trunk.content is no row of bytes"),
        (lambda facts, tensors: tensors.pop("trunk.probe"), "trunk.probe is missing"),
    ],
)
def test_damaged_facts_are_named(folders, tmp_path, change, why):
    model = Model(trunk=f"transformers:{folders[0] / 'classes'}")
    model.learn(photographs("ab", 4))
    model.save(tmp_path / "m.ucb", embed=True)
    values, tensors = checked_file.read_content(tmp_path / "m.ucb")
    change(values["way"]["trunk"], tensors)
    (tmp_path / "m.ucb").write_bytes(checked_file.pack(values, tensors))
    with pytest.raises(DamagedModelError, match=why):
        Model.open(tmp_path / "m.ucb")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda facts, tensors: facts["config"].update(hidden_size=64), "cannot be had: .* gives no transformers:vit"),
        (lambda facts, tensors: facts["config"].update(num_hidden_layers=10**9), r"larger net \(num_hidden_layers\)"),
        (lambda facts, tensors: facts["config"].update(hidden_size=10**9), "gives no transformers:vit"),
        (lambda facts, tensors: facts["config"].update(model_type="none"), "cannot be had"),
        (
            lambda facts, tensors: tensors["trunk.probe"].add_(1),
            "shows other features here than where the model learnt",
        ),
    ],
)
def test_trunks_that_cannot_be_had_again(folders, tmp_path, change, why):
    model = Model(trunk=f"transformers:{folders[0] / 'classes'}")
    model.learn(photographs("ab", 4))
    model.save(tmp_path / "m.ucb", embed=True)
    values, tensors = checked_file.read_content(tmp_path / "m.ucb")
    change(values["way"]["trunk"], tensors)
    (tmp_path / "m.ucb").write_bytes(checked_file.pack(values, tensors))
    with pytest.raises(WeightsError, match=why) as found:
        Model.open(tmp_path / "m.ucb")
    assert "\n" not in str(found.value)


def test_folders_that_cannot_be_trunks(folders, tmp_path):
    def spoilt(file, **values):
        folder = tmp_path / f"{file}{len(list(tmp_path.iterdir()))}"
        shutil.copytree(folders[0] / "classes", folder)
        known = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**known, **values}))
        return f"transformers:{folder}"

    for wrong, why in (
        (
            spoilt("config.json", auto_map={"AutoModel": "x--y.Z"}),
            r"cannot be a trunk: .* more than weights \(auto_map\)",
        ),
        (spoilt("config.json", quantization_config={"a": 1}), r"more than weights \(quantization_config\)"),
        (spoilt("config.json", num_hidden_layers=3), r"gives no transformers:vit: '.*' is missing"),
        (spoilt("preprocessor_config.json", size={"height": 32, "width": 64}), "does not make images square"),
        (spoilt("preprocessor_config.json", do_flip_channel_order=True), "does not normalise red, green and blue"),
    ):
        with pytest.raises(ValueError, match=why):
            Model(trunk=wrong)
    for name in "config.json", "preprocessor_config.json":
        wrong = spoilt(name)
        (tmp_path / wrong.rpartition("/")[2] / name).unlink()
        with pytest.raises(ValueError, match=rf"cannot be a trunk: it has no {name}, as `save_pretrained` writes it$"):
            Model(trunk=wrong)


def test_a_folder_with_pickled_weights_is_not_read(folders, tmp_path):
    shutil.copytree(folders[0] / "classes", tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").rename(tmp_path / "old" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"old cannot be a trunk: it has no model.safetensors"):
        Model(trunk=f"transformers:{tmp_path / 'old'}")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"side": "s"}, "the side of its images must be one number that it says"),
        ({"features": 0}, "."),
        ({"side": 2000}, "^the images of a trunk must have a side from 8 to 1024, not 2000$"),
    ],
)
def test_onnx_files_that_cannot_be_trunks(tmp_path, how, why):
    write_onnx(tmp_path / "net.onnx", **how)
    with pytest.raises(ValueError, match=why):
        Model(trunk=str(tmp_path / "net.onnx"))
    (tmp_path / "net.onnx").write_bytes(b"no graph")
    with pytest.raises(ValueError, match=r"net.onnx gives no onnx: "):
        Model(trunk=str(tmp_path / "net.onnx"))


def test_an_estimator_with_an_onnx_trunk_can_be_pickled(tmp_path):
    pytest.importorskip("sklearn")
    from ucb import IncrementalClassifier

    write_onnx(tmp_path / "net.onnx")
    x, labels = photographs("ab", 8)
    estimator = IncrementalClassifier(trunk=str(tmp_path / "net.onnx")).fit(x.numpy(), labels)
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict_proba(x.numpy()), estimator.predict_proba(x.numpy()))


def test_what_weights_do_not_go_with(tmp_path):
    write_onnx(tmp_path / "net.onnx")
    for how, why in (
        ({"trunk": "timm:resnet18"}, r"^the trunk timm:resnet18 needs a file with its weights: name it with --weights"),
        ({"trunk": str(tmp_path / "net.onnx"), "weights": "w.pth"}, "says where its weights are: leave --weights out"),
        ({"trunk": "own", "weights": "w.pth"}, "^the trunk own needs no file of weights: leave --weights out$"),
        ({"weights": "w.pth"}, "^weights go with a trunk: name it with --trunk"),
        ({"trunk": "keras:x"}, "^trunk must be one of own, .*timm:NAME, .* or a module, not 'keras:x'$"),
        ({"trunk": "net.onnx", "method": "ucb-ng"}, "ucb-ng trains its own net"),
    ):
        with pytest.raises(ValueError, match=why):
            Model(**how)


def test_a_missing_package_is_one_sentence(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"x")
    code = "import sys; sys.modules['timm'] = None\nfrom ucb.cli.main import main\nmain()"
    words = ["learn", tmp_path / "m.ucb", tmp_path, "--trunk", "timm:resnet18", "--weights", tmp_path / "w.pth"]
    command = [sys.executable, "-c", code, *map(str, words)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 1
    assert answer.stderr == "error: this trunk needs the package timm: install it with `pip install timm`\n"


def test_the_commands(folders, tmp_path, monkeypatch):
    make_output_plain(monkeypatch)
    trunk, weights = make_trunk("transformers", folders, tmp_path)
    for wave, names in ("one", "ab"), ("two", "c"):
        x, labels = photographs(names, 6)
        np.savez(tmp_path / f"{wave}.npz", x=x.numpy(), y=np.array(labels))
    model, one, two = tmp_path / "m.ucb", tmp_path / "one.npz", tmp_path / "two.npz"
    succeed("learn", model, one, "--trunk", trunk)
    succeed("learn", model, two, "--trunk", trunk)
    write_onnx(tmp_path / "net.onnx")
    assert "is not what the model's trunk" in refused("learn", model, two, "--trunk", tmp_path / "net.onnx", code=1)
    shown = succeed("show", model)
    moved = weights.rename(tmp_path / "weights")
    assert succeed("show", model) == shown
    for command in (("predict", model, one), ("forget-check", model, one), ("learn", model, one, "--again")):
        why = refused(*command, code=1)
        assert why.startswith("error: the model's trunk transformers:vit needs model.safetensors with the SHA-256 ")
        succeed(*command, "--weights", moved)
    succeed("learn", tmp_path / "own.ucb", one, "--trunk", "own")
    assert "needs no file of weights: leave --weights out" in refused(
        "predict", tmp_path / "own.ucb", one, "--weights", moved
    )


def test_progress_with_other_weights_is_not_gone_on_with(tmp_path, monkeypatch):
    from ucb.incremental import inputs
    from ucb.observer import Observer

    monkeypatch.setattr(inputs, "PORTION", 8)

    class Stopping(Observer):
        def moved(self, done, total):
            if done >= 16:
                raise KeyboardInterrupt

    path, data = str(tmp_path / "net.onnx"), photographs("ab", 20)
    write_onnx(path)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "m.ucb", data, trunk=path, pause=0.0, observer=Stopping())
    assert (tmp_path / "m.ucb.learning").exists()
    write_onnx(path, seed=1)
    learn(tmp_path / "m.ucb", data, trunk=path)
    learn(tmp_path / "whole.ucb", data, trunk=path)
    assert (tmp_path / "m.ucb").read_bytes() == (tmp_path / "whole.ucb").read_bytes()


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_nets_of_timm_show_what_the_library_computes(tmp_path, no_network, name, ending):
    timm = pytest.importorskip("timm")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = timm.create_model(name, pretrained=False).eval()
    weights = tmp_path / f"w.{ending}"
    if ending == "pth":
        torch.save({"state_dict": net.state_dict()}, weights)
    else:
        safetensors.torch.save_file(net.state_dict(), weights)
    trunk = Model(trunk=f"timm:{name}", weights=weights).ready
    config = timm.data.resolve_data_config({}, model=net)
    assert trunk.side == config["input_size"][1]
    x = photographs("a", 2, sides=(trunk.side, trunk.side))[0]
    with torch.no_grad():
        pixels = prepare(x, config["mean"], config["std"])
        wanted = net.forward_head(net.forward_features(pixels), pre_logits=True)
    torch.testing.assert_close(trunk(x), take_roots(wanted), rtol=0, atol=1e-2)
    with pytest.raises(ValueError, match=r"timm .* has no model 'none'$"):
        Model(trunk="timm:none", weights=weights)
    with pytest.raises(ValueError, match=r"timm .* has no model 'hf-hub:a/b'$"):
        Model(trunk="timm:hf-hub:a/b", weights=weights)
    with pytest.raises(
        ValueError, match=r"gives no timm:resnet34: '.*' is (missing|not of this net|of another shape)$"
    ):
        Model(trunk="timm:resnet34", weights=weights)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32", "convnext_tiny"])
def test_nets_of_torchvision_show_what_the_library_computes(tmp_path, no_network, name):
    models = pytest.importorskip("torchvision.models")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = models.get_model(name, weights=None, num_classes=7).eval()
    torch.save(net.state_dict(), tmp_path / "w.pth")
    trunk = Model(trunk=f"torchvision:{name}", weights=tmp_path / "w.pth").ready
    assert trunk.side == 224
    x, seen = photographs("a", 2, sides=(224, 224))[0], []
    last = [layer for layer in net.modules() if isinstance(layer, torch.nn.Linear)][-1]
    last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        net(prepare(x, *IMAGENET))
    torch.testing.assert_close(trunk(x), take_roots(seen[0]), rtol=0, atol=1e-2)
    with pytest.raises(ValueError, match=r"torchvision .* has no model 'none' for classes of images$"):
        Model(trunk="torchvision:none", weights=tmp_path / "w.pth")
    with pytest.raises(ValueError, match="has no linear layer at its end"):
        Model(trunk="torchvision:squeezenet1_0", weights=tmp_path / "w.pth")


@pytest.mark.parametrize("kind", ["timm", "torchvision"])
def test_weights_that_run_code_are_not_read(tmp_path, kind):
    pytest.importorskip(kind)

    class Evil:
        def __reduce__(self):
            return print, ("this must not run",)

    torch.save({"a": Evil()}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=rf"w.pth gives no {kind}:resnet18: "):
        Model(trunk=f"{kind}:resnet18", weights=tmp_path / "w.pth")
