"""Image data sets in one form, and the benchmarks made of them, on small made-up array files."""

import numpy as np
import pytest
import torch

from ucb.data.readers.arrays import Arrays, write_arrays
from ucb.data.streams import benchmark
from ucb.data.streams.sources import PREPARATIONS, as_images, image_source
from ucb.engine import Job

CPU = torch.device("cpu")
SETS = {
    "cifar10": (10, (32, 32, 3)),
    "cifar100": (100, (32, 32, 3)),
    "svhn": (10, (32, 32, 3)),
    "notmnist": (10, (28, 28)),
    "traffic_signs": (43, (32, 32, 3)),
    "fashion_mnist": (10, (28, 28)),
    "lfw100": (100, (32, 32, 3)),
}


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """Small files of all data sets but FaceScrub."""
    random = np.random.default_rng(0)
    for name, (classes, shape) in SETS.items():
        y_train, y_test = np.arange(4 * classes) % classes, np.arange(classes)
        x_train, x_test = (random.integers(0, 256, (len(y), *shape), np.uint8) for y in (y_train, y_test))
        names = tuple(f"{name} {i}" for i in range(classes))
        write_arrays(tmp_path / f"{name}.npz", Arrays(x_train, y_train, x_test, y_test, names))
    monkeypatch.setenv("UCB_DATA", str(tmp_path))
    image_source.cache_clear()
    yield tmp_path
    image_source.cache_clear()


def test_small_grey_images_get_a_border_and_three_channels():
    grey = np.full((2, 28, 28), 7, np.uint8)
    images = as_images(grey)
    assert images.shape == (2, 3, 32, 32)
    assert images[:, :, 2:30, 2:30].eq(7).all()
    assert images.sum() == 2 * 3 * 28 * 28 * 7
    colour = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(1, 32, 32, 3)
    assert torch.equal(as_images(colour)[0].permute(1, 2, 0), torch.from_numpy(colour[0]))
    with pytest.raises(ValueError, match="larger than 32"):
        as_images(np.zeros((1, 40, 40), np.uint8))


def test_cifar_tasks_come_in_an_order_that_the_seed_decides(sets):
    stream = benchmark("cifar-alternating", seed=0)
    names = [task.name for task in stream.tasks]
    assert sorted(names) == sorted(
        [f"cifar10 {a}-{a + 1}" for a in range(0, 10, 2)] + [f"cifar100 {a}-{a + 19}" for a in range(0, 100, 20)]
    )
    assert sorted(stream.head_sizes) == [2] * 5 + [20] * 5
    assert names != [task.name for task in benchmark("cifar-alternating", seed=1).tasks]
    assert names[:3] == [task.name for task in benchmark("cifar-alternating", seed=0, tasks=3).tasks]
    single = benchmark("cifar-alternating", single_head=True)
    assert single.head_sizes == (110,)


def test_eight_datasets_in_the_papers_order(sets):
    stream = benchmark("eight-datasets", faces="lfw100")
    assert [task.name for task in stream.tasks][1:] == [
        "mnist", "cifar100", "notmnist", "svhn", "cifar10", "traffic_signs", "fashion_mnist",
    ]  # fmt: skip
    assert sum(stream.head_sizes) == 293
    assert stream.subsets == {"without faces": tuple(range(1, 8))}
    assert benchmark("eight-datasets", faces="lfw100", single_head=True).head_sizes == (293,)
    for task in stream.tasks:
        x, _ = next(iter(task.train.batches(torch.arange(3), 3, CPU)))
        assert x.shape[1:] == (3, 32, 32)
        assert x.dtype == torch.uint8


def test_pixels_are_normalised_by_the_published_constants(sets):
    task = next(task for task in benchmark("eight-datasets", faces="lfw100").tasks if task.name == "svhn")
    x, _ = next(iter(task.train.batches(torch.arange(1), 1, CPU)))
    mean, std = (torch.tensor(PREPARATIONS["svhn"].mean), torch.tensor(PREPARATIONS["svhn"].std))
    expected = (x[0].float() / 255 - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(task.prepare(x)[0], expected)


def test_missing_data_is_one_sentence_and_faces_can_be_chosen(sets):
    with pytest.raises(FileNotFoundError, match=r"facescrub100.*ucb data import"):
        benchmark("eight-datasets")
    with pytest.raises(ValueError, match="facescrub100, lfw100"):
        benchmark("eight-datasets", faces="celeba")
    with pytest.raises(ValueError, match="no data set of faces"):
        benchmark("cifar-alternating", faces="lfw100")


def test_a_whole_run_on_images_reports_acc_without_faces(sets):
    training = {"epochs": 1, "eval_samples": 1}
    small = {"net": "mlp", "net_options": {"hidden": [8]}}
    job = Job("eight-datasets", "ord-ft", tasks=3, faces="lfw100", training=training, **small)
    run = job.run()
    run.learn()
    from ucb.engine.result import result_of

    result = result_of(run, {})
    assert result["acc_of"]["without faces"] == pytest.approx(sum(run.matrix.after[-1][1:]) / 2)
