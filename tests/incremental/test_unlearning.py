"""What is unlearnt is gone, and what is merged is one: to the last bit, in any order."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.incremental.data import blobs, digits
from ucb.incremental import Model, editing, learn
from ucb.incremental.checked_file import pack, read_content
from ucb.incremental.model_file import to_bytes

COLUMNS = 5
ASKED = blobs("abcdef", 4, seed=99, columns=COLUMNS)[0]


def make_trunk():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(COLUMNS, 24), nn.ReLU())


TRUNK = make_trunk()
SIZES = {"ab": 12, "cd": 12, "bc": 12, "a": 24, "ef": 12, "abcdef": 4}
WAVES = [blobs(classes, number, seed, COLUMNS) for seed, (classes, number) in enumerate(SIZES.items(), 1)]
"""Each has fewer examples than it takes for a wave to seem familiar: that would depend on what came before."""
PARTS = [(x[::3], labels[::3]) for x, labels in WAVES]


def taught(*waves, **options):
    model = Model(trunk=TRUNK)
    for number in waves:
        model.learn(WAVES[number], f"wave of {number}", **options)
    return model


def scores(model):
    """The scores of each class by its name."""
    found = model.learner.predict_raw(ASKED).logits
    return {name: found[:, :, number] for number, name in enumerate(model.classes)}


def assert_same(one, other):
    """Two models have the same classes, sums and scores; their classes may stand in another order."""
    assert set(one.classes) == set(other.classes)
    order = [one.classes.index(name) for name in other.classes]
    assert torch.equal(one.learner.head.gram, other.learner.head.gram)
    assert torch.equal(one.learner.head.moments[:, order], other.learner.head.moments)
    assert one.learner.head.ridge == other.learner.head.ridge
    a, b = one.learner.posterior.weights[:, order], other.learner.posterior.weights
    torch.testing.assert_close(a, b, rtol=0, atol=1e-8)


def left_over(waves, parts):
    """A model that only ever saw these waves, some of them in part."""
    model = Model(trunk=TRUNK)
    for number in waves:
        x, labels = WAVES[number]
        if number in parts:
            x = torch.cat([x[1::3], x[2::3]])
            labels = [*labels[1::3], *labels[2::3]]
        model.learn((x, labels))
    return model


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_learning_unlearning_and_merging_in_any_order_is_learning_what_is_left(seed):
    """Models at two places learn, unlearn by data, by sums and in part, are saved and opened, and become one."""
    numbers = random.Random(seed)
    order = numbers.sample(range(len(WAVES)), len(WAVES))
    places = [Model(trunk=TRUNK), Model(trunk=TRUNK)]
    left, parts = [], set()
    for number in order:
        model = numbers.choice(places)
        model.learn(WAVES[number], f"wave of {number}", keep_sums=numbers.random() < 0.5)
        left.append((number, model))
        while left and numbers.random() < 0.4:
            gone, where = left.pop(numbers.randrange(len(left)))
            wave = next(each for each in where.waves if each.name == f"wave of {gone}")
            if gone in parts:
                x, labels = WAVES[gone]
                rest = (torch.cat([x[1::3], x[2::3]]), [*labels[1::3], *labels[2::3]])
                where.unlearn(None if wave.sums else rest, wave=wave.name)
                parts.discard(gone)
            elif numbers.random() < 0.3:
                where.unlearn(PARTS[gone], wave=wave.name)
                parts.add(gone)
                left.append((gone, where))
            else:
                where.unlearn(None if wave.sums else WAVES[gone], wave=wave.name)
    able = [model for model in places if model.learner is not None]
    whole = Model.merge(able) if len(able) == 2 else able[0]
    if not left:
        assert whole.classes == whole.waves == []
        assert not whole.learner.head.gram.any()
        return
    whole = reopened(whole)
    waves = [number for number, _ in left]
    numbers.shuffle(waves)
    assert_same(whole, left_over(waves, parts))
    assert sorted(int(wave.name[-1]) for wave in whole.waves) == sorted(waves)
    assert sum(sum(wave.examples.values()) for wave in whole.waves) == whole.learner.examples


def reopened(model):
    """The model that its file would give."""
    with TemporaryDirectory() as folder:
        model.save(Path(folder, "m.ucb"))
        return Model.open(Path(folder, "m.ucb"), trunk=TRUNK)


def test_calibration_goes_with_its_wave():
    """The last wave leaves nothing behind; one before it leaves figures of later ones, and that is said."""
    model, before = taught(0, 1), taught(0)
    assert model.unlearn(WAVES[1]).remains == []
    for name in ("nll", "moments", "histogram"):
        assert torch.equal(getattr(model.calibration, name), getattr(before.calibration, name))
    assert model.predict(ASKED) == before.predict(ASKED)
    model = taught(0, 2)
    assert "1 later wave was judged by a model that knew these examples" in model.unlearn(WAVES[0]).remains[0]


def test_what_was_never_in_is_refused_and_nothing_changes():
    model, content = taught(0, 1, 3), None
    content = to_bytes(model)
    x, labels = WAVES[0]
    for data, said in [
        ((x + 1, labels), "other examples of"),
        ((torch.cat([x, x[:1]]), [*labels, labels[0]]), "has 0 examples of 'a', and these are 13"),
        (WAVES[4], "does not know the class 'e'"),
        ((x[:3], ["a", "d", "a"]), "no wave had these examples"),
    ]:
        with pytest.raises(ValueError, match=said):
            model.unlearn(data)
    with pytest.raises(ValueError, match="any of the waves 'wave of 0', 'wave of 3': name one with --wave"):
        model.unlearn((x[:2], labels[:2]))
    with pytest.raises(ValueError, match="has no wave 'other'"):
        model.unlearn(WAVES[0], wave="other")
    with pytest.raises(ValueError, match="were not kept"):
        model.unlearn(wave="wave of 0")
    with pytest.raises(ValueError, match="say what to unlearn"):
        model.unlearn()
    assert to_bytes(model) == content


def test_examples_that_were_never_in_are_told_by_the_sums_themselves():
    """Few of many features: without a stranger the sums would be those of no data at all."""
    model = taught(0)
    x, labels = WAVES[0]
    with pytest.raises(ValueError, match="these examples were never learnt"):
        model.unlearn((100 + 50 * x[:3], labels[:3]))
    model.unlearn((x[:3], labels[:3]))


def test_a_class_without_its_data_is_no_longer_an_answer():
    model = taught(0, 1)
    before = scores(model)
    removal = model.unlearn(class_name="b")
    assert removal.classes == ["b"]
    assert "features of its 12 examples stay" in removal.remains[0]
    assert model.classes == ["a", "c", "d"]
    assert "b" not in {row["label"] for row in reopened(model).predict(ASKED)}
    assert [list(wave.examples) for wave in model.waves] == [["a"], ["c", "d"]]
    assert [wave.choices for wave in model.waves] == [((0, 1),), ((0, 3),)]
    weights = taught(0, 1).learner.head.weights
    assert torch.allclose(model.learner.head.weights, weights[:, [0, 2, 3]])
    assert before.keys() - scores(model).keys() == {"b"}
    with pytest.raises(ValueError, match="does not know the class 'b'"):
        model.unlearn(class_name="b")
    model.learn(WAVES[2])
    assert set(model.classes) == {"a", "b", "c", "d"}


def test_one_class_of_data_goes_alone():
    model = taught(0, 1)
    assert model.unlearn(WAVES[0], class_name="a").examples == {"a": 12}
    x, labels = WAVES[0]
    alone = Model(trunk=TRUNK)
    alone.learn((x[12:], labels[12:]))
    alone.learn(WAVES[1])
    assert_same(model, alone)


def test_a_trunk_that_the_first_wave_made_is_said_to_stay(small):
    model = Model()
    for pair in ([0, 1], [2, 3]):
        model.learn(digits(pair, 20), str(pair[0]))
    for pair in ([2, 3], [0, 1]):
        assert "of the first wave that was learnt stays in it" in model.unlearn(digits(pair, 20)).remains[0]
    assert model.classes == []
    with pytest.raises(ValueError, match="learnt nothing yet"):
        model.predict(digits([0], 1)[0])
    model.learn(digits([4, 5], 20))
    assert model.classes == ["4", "5"]


def test_a_net_that_learns_cannot_unlearn():
    model = Model("ucb-ng")
    model.learn(blobs("ab", 10), epochs=1)
    with pytest.raises(ValueError, match="cannot unlearn"):
        model.unlearn(blobs("ab", 10))
    with pytest.raises(ValueError, match="no sums"):
        model.learn(blobs("ab", 10, seed=1), epochs=1, keep_sums=True)
    model.rename("a", "c")
    assert model.classes == ["c", "b"]
    with pytest.raises(ValueError, match="cannot join"):
        model.rename("c", "b")


def test_the_same_wave_in_two_models_counts_once_or_is_refused():
    with pytest.raises(ValueError, match="'wave of 1' of there is also in here, and would count twice"):
        editing.merge_models([taught(0, 1), taught(1, 2)], ["here", "there"])
    kept = Model(trunk=TRUNK)
    kept.learn(WAVES[1], keep_sums=True)
    kept.learn(WAVES[2])
    for models in ([taught(0, 1), kept], [kept, taught(0, 1)]):
        whole, remarks = editing.merge_models(models, ["here", "there"])
        assert_same(whole, taught(0, 1, 2))
        assert len(whole.waves) == 3
        assert "counts once" in remarks[0]


def test_waves_of_the_same_name_are_told_apart_and_keep_what_they_chose_from():
    one, other = Model(trunk=TRUNK), Model(trunk=TRUNK)
    one.learn(WAVES[1])
    other.learn(WAVES[0])
    other.learn(WAVES[2])
    whole = Model.merge([one, other], ["one", "other"])
    assert [wave.name for wave in whole.waves] == ["wave 1", "wave 1 (other)", "wave 2"]
    assert whole.classes == ["c", "d", "a", "b"]
    assert [wave.choices for wave in whole.waves] == [((0, 2),), ((2, 4),), ((0, 1), (2, 4))]


def test_models_that_differ_are_not_merged(small):
    rows, other = Model(), Model(seed=1)
    rows.learn(blobs("ab", 10))
    other.learn(blobs("ab", 10, seed=1))
    with pytest.raises(ValueError, match="their trunks differ"):
        Model.merge([rows, other])
    with pytest.raises(ValueError, match="different forms"):
        Model.merge([rows, taught(0)])
    with pytest.raises(ValueError, match="at least two"):
        Model.merge([rows])


def test_a_renamed_class_is_the_same_class_and_can_be_unlearnt():
    model = taught(0, 1)
    assert not model.rename("a", "z")
    assert model.classes == ["z", "b", "c", "d"]
    x, labels = WAVES[0]
    model.unlearn((x, ["z" if label == "a" else label for label in labels]))
    assert_same(model, taught(1))


def test_joined_classes_are_those_that_were_one_from_the_start():
    model = taught(0, 1, 2, keep_sums=True)
    assert model.rename("a", "c")
    assert model.classes == ["b", "c", "d"]
    alone = Model(trunk=TRUNK)
    for number in (0, 1, 2):
        x, labels = WAVES[number]
        alone.learn((x, ["c" if label == "a" else label for label in labels]))
    assert_same(model, alone)
    assert [wave.examples for wave in model.waves] == [wave.examples for wave in alone.waves]
    assert [wave.prints for wave in model.waves] == [wave.prints for wave in alone.waves]
    model, x = reopened(model), WAVES[0]
    model.unlearn(wave="wave of 0")
    model.unlearn(wave="wave of 2")
    x, labels = WAVES[1]
    again = Model(trunk=TRUNK)
    again.learn((x, labels))
    assert_same(model, again)


@pytest.mark.parametrize("new", ["", "x" * 1001, "\ud800"])
def test_a_name_that_no_class_can_have_is_refused(new):
    with pytest.raises(ValueError, match="name"):
        taught(0).rename("a", new)


def test_an_older_file_tells_its_waves_by_its_fingerprint(small, tmp_path):
    """In files of version 2 a wave has one fingerprint, and statistics are one sum."""
    path = tmp_path / "m.ucb"
    model = Model()
    x, labels = blobs("ab", 20)
    model.learn((x, labels), "old")
    model.save(path)
    from ucb.incremental.waves import hash_examples, hash_wave

    values, tensors = read_content(path)
    values["waves"] = [{"name": "old", "classes": 2, "fingerprint": hash_wave(hash_examples(x, labels))}]
    tensors["waves.figures"] = tensors["waves.figures"][:, :4].clone()
    tensors |= {key: value[1].double() for key, value in tensors.items() if key.startswith("calibration.")}
    path.write_bytes(pack(values, tensors))
    model = Model.open(path)
    assert model.earlier[1] == 2
    with pytest.raises(ValueError, match="learnt before, as 'old'"):
        model.learn((x, labels))
    removal = model.unlearn((x, labels))
    assert removal.waves == ["old"]
    assert any("one sum over waves of an older file" in each for each in removal.remains)


def test_a_file_is_replaced_whole_and_only_if_all_went_well(small, tmp_path):
    path = tmp_path / "m.ucb"
    learn(path, blobs("ab", 20), "first")
    learn(path, blobs("cd", 20), "second", keep_sums=True)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not both"):
        editing.unlearn(path, wave="first", last=True)
    with pytest.raises(ValueError, match="were not kept"):
        editing.unlearn(path, wave="first")
    assert path.read_bytes() == before
    assert editing.unlearn(path, last=True).waves == ["second"]
    assert Model.open(path).classes == ["a", "b"]
    with pytest.raises(FileExistsError):
        editing.merge([path, path], path)
    assert not editing.rename(path, "a", "A")
    assert Model.open(path).classes == ["A", "b"]
    assert [each.name for each in tmp_path.iterdir()] == ["m.ucb"]


def again(number, times=2, **options):
    """A model that has learnt a wave several times."""
    model = Model(trunk=TRUNK)
    for time in range(times):
        model.learn(WAVES[number], f"time {time}", again=True, **options)
    return model


def test_of_data_that_were_learnt_twice_either_may_go():
    """The other then stands for itself: nothing of it is a repetition any more."""
    for wave in ("time 0", "time 1"):
        model = again(0)
        assert model.learner.repeated == 24
        model.unlearn(WAVES[0], wave=wave)
        assert_same(reopened(model), taught(0))
        assert model.learner.repeated == model.waves[0].repeated == 0


def test_repetitions_stay_within_what_there_is():
    """Whatever is taken out, in parts or as a class, the model can be written."""
    model = again(0)
    model.unlearn(class_name="b")
    assert reopened(model).waves[1].repeated == 12
    x, labels = blobs("a", 25, seed=3, columns=COLUMNS)
    for number in range(1, 25):
        model = taught(1)
        for name in "xy":
            model.learn((x, labels), name, again=True)
        model.unlearn((x[:number], labels[:number]), wave="y")
        assert reopened(model).learner.repeated <= model.learner.examples
        for some in x[number:].split(7):
            model.unlearn((some, ["a"] * len(some)), wave="y")
        reopened(model).unlearn((x, labels), wave="x")


def test_a_wrong_label_is_told_by_the_sums():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(COLUMNS, 300), nn.ReLU())
    model, (x, labels) = Model(trunk=trunk), blobs("ab", 60, columns=COLUMNS)
    model.learn((x, labels))
    with pytest.raises(ValueError, match="never learnt so"):
        model.unlearn((x[:1], ["b"]))
    assert model.unlearn((x[:1], ["a"])).examples == {"a": 1}


def test_examples_of_another_wave_are_told_by_kept_sums():
    model = Model(trunk=TRUNK)
    for name, seed in ("X", 21), ("Y", 22):
        model.learn(blobs("ab", 12, seed, COLUMNS), name, keep_sums=True)
    x, labels = blobs("ab", 12, 21, COLUMNS)
    with pytest.raises(ValueError, match="never learnt so"):
        model.unlearn((x[:3], labels[:3]), wave="Y")
    model.unlearn((x[:3], labels[:3]), wave="X")


def test_kept_sums_take_out_what_a_class_without_data_left():
    model = taught(1, 0, keep_sums=True)
    model.unlearn(class_name="b")
    with pytest.raises(ValueError, match="no longer an answer"):
        model.unlearn(WAVES[0])
    removal = reopened(model).unlearn(WAVES[0], class_name="a")
    assert removal.remains == []
    model.unlearn(WAVES[0], class_name="a")
    assert_same(model, taught(1))
    model = taught(1, 0)
    model.unlearn(class_name="b")
    assert "12 examples of classes that are no longer an answer" in model.unlearn(WAVES[0], class_name="a").remains[-1]


def test_sums_of_a_wave_in_several_models_may_be_anywhere_and_in_any_order_of_classes():
    models = []
    for number in (1, 2, 3):
        model = Model(trunk=TRUNK)
        if number == 2:
            model.learn((WAVES[3][0][:5] + 1, ["b"] * 5), "another first")  # b comes before a here
        model.learn(WAVES[0], "same", keep_sums=number == 2)
        model.learn(WAVES[number], f"own {number}")
        models.append(model)
    alone = taught(0, 1, 2, 3)
    alone.learn((WAVES[3][0][:5] + 1, ["b"] * 5), "another first")
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1]):
        assert_same(reopened(Model.merge([models[place] for place in order])), alone)


def test_a_wanted_repetition_inside_one_model_is_no_wave_of_another():
    for options in ({}, {"keep_sums": True}):
        whole = Model.merge([again(0, **options), taught(1)])
        assert whole.learner.examples == 24 * 3
        assert len(whole.waves) == 3


def test_what_is_in_two_models_under_other_names_is_remarked():
    renamed = taught(0)
    renamed.rename("a", "z")
    _, remarks = editing.merge_models([taught(0), renamed], ["one", "two"])
    assert "are in another of the models, too" in remarks[0]


def test_effects_keep_their_waves_when_names_change():
    one, other = Model(trunk=TRUNK), Model(trunk=TRUNK)
    one.learn(WAVES[0])
    for number in (1, 2):
        other.learn(WAVES[number])
    whole = Model.merge([one, other], ["one", "other"])
    assert whole.waves[2].largest_effect[0] == "wave 1 (other)"
    twice = Model.merge([taught(3), Model.merge([taught(4), taught(5)])])
    assert [wave.name for wave in twice.waves] == ["wave of 3", "wave of 4", "wave of 5"]
    model = taught(3)
    model.learn(blobs("b", 12, seed=5, columns=COLUMNS), "bee")
    assert model.waves[1].largest_effect[0] == "wave of 3"
    model.unlearn(class_name="a")
    assert model.waves[0].largest_effect is None


def test_a_trunk_with_more_features_than_sums_takes_no_memory(tmp_path):
    model, path = Model(), tmp_path / "m.ucb"
    model.learn(blobs("ab", 10, columns=1))
    model.unlearn(blobs("ab", 10, columns=1))
    model.save(path)
    values, tensors = read_content(path)
    values["way"]["trunk"]["units"] = 100_000
    tensors["trunk.directions"], tensors["trunk.offsets"] = torch.zeros(1, 100_000), torch.zeros(100_000)
    path.write_bytes(pack(values, tensors))
    with pytest.raises(OSError, match="more features than there are sums for"):
        Model.open(path)
