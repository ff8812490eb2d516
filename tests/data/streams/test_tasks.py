import pytest
import torch

from ucb.data.streams import Preparation, Scenario, Stream, Task, TensorExamples, benchmark

DATA = TensorExamples(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))


def stream(*sizes, scenario=None):
    tasks = [Task(f"t{i}", tuple(map(str, range(size))), DATA, DATA, DATA) for i, size in enumerate(sizes)]
    return Stream("s", tuple(tasks), scenario or Scenario())


def test_many_heads():
    made = stream(2, 3, 4)
    assert made.head_sizes == (2, 3, 4)
    assert [made.outputs_of(i) for i in range(3)] == [range(2), range(3), range(4)]


@pytest.mark.parametrize("known", [True, False])
def test_one_head_with_an_output_for_each_class_of_each_task(known):
    made = stream(2, 3, 4, scenario=Scenario("one", task_known=known))
    assert made.head_sizes == (9,)
    assert [made.outputs_of(i) for i in range(3)] == [range(2), range(2, 5), range(5, 9)]


def test_one_head_with_shared_outputs():
    made = stream(3, 3, scenario=Scenario("one", task_known=False, shared_outputs=True))
    assert made.head_sizes == (3,)
    assert [made.outputs_of(i) for i in range(2)] == [range(3), range(3)]


def test_rules():
    with pytest.raises(ValueError, match="with several heads the task is known"):
        Scenario("many", task_known=False)
    with pytest.raises(ValueError, match="with several heads"):
        Scenario("many", shared_outputs=True)
    with pytest.raises(ValueError, match="same number of classes"):
        stream(2, 3, scenario=Scenario("one", shared_outputs=True))
    with pytest.raises(ValueError, match="at least one task"):
        stream()


@pytest.mark.parametrize("name", ["task-incremental", "domain-incremental", "class-incremental", "task-free"])
def test_scenarios_have_the_names_of_the_field(name):
    assert Scenario.named(name).name == name
    assert Scenario.named(name).task_known == (name == "task-incremental")
    assert Scenario.named(name).boundaries == (name != "task-free")
    with pytest.raises(ValueError, match=f"there is no scenario '{name[:-1]}': did you mean {name}"):
        Scenario.named(name[:-1])


@pytest.mark.parametrize(
    ("benchmark_name", "options", "name"),
    [
        ("mnist-5split", {}, "task-incremental"),
        ("mnist-5split", {"single_head": True}, "class-incremental"),
        ("mnist-5split", {"single_head": True, "task_told": True}, "task-incremental"),
        ("mnist-permuted", {"single_head": True}, "domain-incremental"),
        ("mnist-permuted", {"single_head": True, "task_told": True}, "task-incremental"),
        ("mnist-permuted", {"single_head": True, "shared_outputs": False}, "class-incremental"),
        ("mnist-permuted", {"single_head": True, "blur": 0.5}, "task-free"),
    ],
)
def test_a_benchmark_is_the_scenario_that_the_documents_say(benchmark_name, options, name):
    """As the table in docs/data.md has it."""
    scenario = benchmark(benchmark_name, tasks=2, **options).scenario
    assert scenario.name == name
    assert (scenario == Scenario.named(name)) != options.get("task_told", False)


def test_preparation_normalises_bytes_and_then_permutes():
    x = torch.randint(0, 256, (3, 1, 2, 2), dtype=torch.uint8)
    order = torch.tensor([2, 0, 3, 1])
    wanted = ((x.double() / 255 - 0.1307) / 0.3081).flatten(1)[:, [2, 0, 3, 1]].view(3, 1, 2, 2)
    prepare = Preparation((0.1307,), (0.3081,), order)
    for _ in range(2):  # the second time from constants already on the device
        assert torch.allclose(prepare(x).double(), wanted, atol=1e-5)


def test_preparation_of_channels_and_of_flat_data():
    x = torch.full((2, 3, 2, 2), 51, dtype=torch.uint8)
    got = Preparation((0.1, 0.2, 0.3), (0.1, 0.5, 1.0))(x)
    assert torch.allclose(got[:, :, 0, 0], torch.tensor([1.0, 0.0, -0.1]).expand(2, 3), atol=1e-6)
    assert torch.allclose(Preparation((0.1,), (0.1,))(x.flatten(1)), torch.ones(2, 12), atol=1e-6)


def test_preparation_takes_floats_as_they_are():
    x = torch.randn(3, 4)
    assert torch.equal(Preparation((0.5,), (2.0,))(x), x)


def test_constants_of_a_preparation_stay_on_the_device():
    prepare = Preparation((0.5,), (2.0,), torch.arange(4))
    x = torch.zeros(2, 4, dtype=torch.uint8, device="meta")
    assert prepare(x).device.type == "meta"
    assert prepare._on(x.device)[2] is prepare._on(x.device)[2]
    assert prepare._on(x.device)[2].device.type == "meta"
