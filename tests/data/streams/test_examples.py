import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tests.data.streams.reading import CPU, everything
from ucb.data.streams.tasks import DatasetExamples, Resident, TensorExamples

X = torch.randint(0, 256, (50, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
Y = torch.arange(50) % 5
ROWS = torch.tensor([7, 3, 3, 40, 12])


class Noisy(Dataset):
    """Items with random numbers in them, as augmentation has."""

    def __len__(self):
        return 12

    def __getitem__(self, item):
        return torch.rand(3), item % 2


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


def kinds(rows=None):
    y = Y if rows is None else Y[rows]
    return [TensorExamples(X, y, rows), DatasetExamples(TensorDataset(X, Y), rows)]


@pytest.mark.parametrize("kind", [0, 1])
def test_the_order_is_obeyed(kind):
    order = torch.tensor([49, 0, 7, 7, 13])
    got = list(kinds()[kind].batches(order, 2, CPU))
    assert [len(y) for _, y in got] == [2, 2, 1]
    assert torch.equal(torch.cat([x for x, _ in got]), X[order])
    assert torch.equal(torch.cat([y for _, y in got]), Y[order])


@pytest.mark.parametrize("kind", [0, 1])
def test_a_subset_counts_its_own_examples(kind):
    examples = kinds(ROWS)[kind]
    assert len(examples) == 5
    (x, y), *rest = examples.batches(torch.tensor([4, 0]), 8, CPU)
    assert not rest
    assert torch.equal(x, X[[12, 7]])
    assert y.tolist() == [2, 2]


@pytest.mark.parametrize("rows", [None, ROWS])
def test_both_kinds_serve_the_same(rows):
    order = torch.randperm(50 if rows is None else 5)
    for (x1, y1), (x2, y2) in zip(*(kind.batches(order, 3, CPU) for kind in kinds(rows)), strict=True):
        assert torch.equal(x1, x2)
        assert torch.equal(y1, y2)
        assert x1.dtype == x2.dtype == torch.uint8
        assert y1.dtype == y2.dtype == torch.int64


@pytest.mark.parametrize("kind", [0, 1])
def test_an_empty_order_serves_nothing(kind):
    assert list(kinds()[kind].batches(torch.tensor([], dtype=torch.int64), 4, CPU)) == []


@pytest.mark.parametrize("rows", [None, ROWS])
@pytest.mark.parametrize("kind", [0, 1])
def test_all_of_them_come_in_their_own_order(kind, rows):
    examples = kinds(rows)[kind]
    wanted = list(examples.batches(torch.arange(len(examples)), 3, CPU))
    for (x, y), (a, b) in zip(examples.in_order(3, CPU), wanted, strict=True):
        assert torch.equal(x, a)
        assert torch.equal(y, b)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        examples.in_order(0, CPU)


@pytest.mark.parametrize("rows", [None, ROWS])
def test_writing_to_a_batch_leaves_the_examples_alone(rows):
    examples = TensorExamples(X, Y if rows is None else Y[rows], rows)
    before = [part.clone() for part in everything(examples)]
    for x, y in examples.in_order(8, CPU):
        x.zero_()
        y.zero_()
    for now, then in zip(everything(examples), before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("kind", [0, 1])
def test_an_example_says_how_many_numbers_it_is_made_of(kind):
    assert kinds(ROWS)[kind].numbers_each == 16


def test_workers_read_the_same():
    alone, helped = DatasetExamples(TensorDataset(X, Y)), DatasetExamples(TensorDataset(X, Y), workers=1)
    for got, wanted in zip(everything(helped), everything(alone), strict=True):
        assert torch.equal(got, wanted)


def test_what_workers_draw_depends_on_the_order_alone():
    examples = DatasetExamples(Noisy(), workers=1)

    def drawn(order):
        return torch.cat([x for x, _ in examples.batches(order, 4, CPU)])

    first = drawn(torch.arange(12))
    torch.manual_seed(99)
    assert torch.equal(drawn(torch.arange(12)), first)
    assert not torch.equal(drawn(torch.arange(12).flip(0)), first)


@pytest.mark.parametrize("kind", [0, 1])
def test_serving_leaves_the_global_generator_alone(kind):
    before = torch.get_rng_state()
    everything(kinds()[kind])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_resident_tensor_goes_to_a_device_once():
    resident = Resident(X)
    assert resident.on(CPU) is X
    meta = resident.on(torch.device("meta"))
    assert meta.device.type == "meta"
    assert resident.on(torch.device("meta")) is meta


def test_subsets_share_the_base_without_a_copy():
    base = Resident(X)
    one, two = TensorExamples(base, Y[ROWS], ROWS), TensorExamples(base, Y[:3], torch.arange(3))
    assert one.x is two.x
    assert one.x.on(CPU).data_ptr() == X.data_ptr()


def test_numbering_of_a_data_set():
    examples = DatasetExamples(TensorDataset(X, Y), numbering={0: 4, 1: 3, 2: 2, 3: 1, 4: 0})
    assert torch.equal(everything(examples)[1], 4 - Y)


def none(dtype=torch.int64):
    return torch.empty(0, dtype=dtype)


@pytest.mark.parametrize(
    ("build", "error", "sentence"),
    [
        (lambda: TensorExamples(X, Y[:49]), ValueError, r"50 examples need as many labels .* not labels of \(49,\)"),
        (lambda: TensorExamples(X, Y.view(50, 1)), ValueError, "in one dimension"),
        (lambda: TensorExamples(X, Y, ROWS), ValueError, "5 examples need as many labels"),
        (lambda: TensorExamples(X[:0], none()), ValueError, "no examples"),
        (lambda: TensorExamples(X, none(), none()), ValueError, "no examples"),
        (lambda: TensorExamples(X, Y, classes=4), ValueError, "labels must be between 0 and 3, not 0 to 4"),
        (lambda: TensorExamples(X, Y - 1), ValueError, "labels must be 0 or above, not -1 to 3"),
        (lambda: TensorExamples(X, Y.int()), TypeError, "labels must be of int64, not torch.int32"),
        (lambda: TensorExamples(X.int(), Y), TypeError, "x must be of uint8 or floating point, not torch.int32"),
        (lambda: TensorExamples(X, Y[:1], torch.tensor([50])), ValueError, "rows must lie between 0 and 49"),
        (lambda: TensorExamples(X, Y[:1], torch.tensor([-1])), ValueError, "rows must lie between 0 and 49"),
        (lambda: DatasetExamples(TensorDataset(X[:0], Y[:0])), ValueError, "no examples"),
        (lambda: DatasetExamples(TensorDataset(X, Y), none()), ValueError, "no examples"),
        (
            lambda: DatasetExamples(TensorDataset(X, Y), torch.tensor([50])),
            ValueError,
            "rows must lie between 0 and 49",
        ),
        (lambda: DatasetExamples(TensorDataset(X, Y), workers=-1), ValueError, "workers must be at least 0"),
        (lambda: DatasetExamples(Endless()), TypeError, "Endless has not"),
    ],
)
def test_bad_data_gets_a_sentence(build, error, sentence):
    with pytest.raises(error, match=sentence):
        build()


@pytest.mark.parametrize("kind", [0, 1])
def test_a_bad_order_gets_a_sentence_at_the_call(kind):
    examples = kinds()[kind]
    for bad in (torch.tensor([0, 50]), torch.tensor([-1])):
        with pytest.raises(ValueError, match="order must lie between 0 and 49"):
            examples.batches(bad, 4, CPU)
    with pytest.raises(TypeError, match="order must be int64"):
        examples.batches(torch.rand(3), 4, CPU)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        examples.batches(torch.arange(3), 0, CPU)


def test_labels_of_a_data_set_are_checked_when_they_are_met():
    with pytest.raises(ValueError, match=r"the label 4 is not one of this task's: 0, 1, 2, 3$"):
        everything(DatasetExamples(TensorDataset(X, Y), numbering={i: i for i in range(4)}))
    with pytest.raises(ValueError, match="labels must be 0 or above, not -1"):
        everything(DatasetExamples(TensorDataset(X, Y - 1)))
    with pytest.raises(TypeError, match="a label must be one whole number"):
        everything(DatasetExamples(TensorDataset(X, Y.float())))


@pytest.mark.gpu
def test_on_a_gpu_the_base_is_moved_once_and_shared():
    cuda, order = torch.device("cuda"), torch.randperm(5)
    base = Resident(X.repeat(1000, 1, 1, 1))  # 800 kB: a second copy would be seen
    one, two = TensorExamples(base, Y[ROWS], ROWS), TensorExamples(base, Y[ROWS], ROWS)
    assert base.on(cuda) is base.on(torch.device("cuda:0"))
    before = torch.cuda.memory_allocated()
    for examples in (one, two, DatasetExamples(TensorDataset(X, Y), ROWS)):
        ((x, y),) = examples.batches(order, 5, cuda)
        assert x.device.type == y.device.type == "cuda"
        assert torch.equal(x.cpu(), X[ROWS[order]])
        assert torch.equal(y.cpu(), Y[ROWS[order]])
        ((x, y),) = examples.in_order(5, cuda)
        assert x.device.type == y.device.type == "cuda"
        assert torch.equal(x.cpu(), X[ROWS])
        assert torch.equal(y.cpu(), Y[ROWS])
    assert torch.cuda.memory_allocated() - before < 100_000
