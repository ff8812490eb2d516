import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.methods.data import Given
from tests.nets.test_stages import conv_net
from ucb.methods import EvalContext, TaskInfo
from ucb.methods.pnn import PNN, OwnHeadSettings
from ucb.nets import HeadedNet, mlp
from ucb.nets.stages import split

X, Y = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2


def wide_conv_net(heads=(2, 2, 2)):
    trunk = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5),
        nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(96, 40), nn.ReLU(),
    )  # fmt: skip
    return HeadedNet(trunk, 40, heads)


NETS = {"mlp": lambda: mlp((1, 8, 8), [2, 2, 2], [40, 30]), "conv": wide_conv_net}


def pnn(net, **settings):
    return PNN(net, OwnHeadSettings(**settings), torch.Generator().manual_seed(0))


def answers(method, index):
    return method.logits(X, EvalContext(index, index), 0, None)[0]


@pytest.mark.parametrize("kind", NETS)
def test_old_columns_never_change(kind):
    method = pnn(NETS[kind](), lr=0.3)
    kept, known = {}, {}
    for index in range(3):
        method.begin_task(TaskInfo(index, 20, index, range(2)))
        for _ in range(4):
            method.learn(X, Y)
        method.end_task(Given(X, Y))
        for old, state in kept.items():
            assert all(torch.equal(a, b) for a, b in zip(state, parameters(method, old), strict=True))
            assert torch.equal(known[old], answers(method, old))
        kept[index], known[index] = [p.detach().clone() for p in parameters(method, index)], answers(method, index)


def parameters(method, column):
    return [*method.net.trunk[column].parameters(), *method.net.heads[column].parameters()]


@pytest.mark.parametrize("kind", NETS)
def test_every_connection_learns_in_its_own_task(kind):
    """Also the head's: the public version leaves it out while the task is learnt."""
    method = pnn(NETS[kind](), lr=0.3)
    depth = len(method.net.trunk[0])
    for index in range(3):
        method.begin_task(TaskInfo(index, 20, index, range(2)))
        method.learn(X, Y)
        laterals = [n for n, _ in method.net.named_parameters() if "lateral" in n]
        assert len([n for n in laterals if n.startswith(f"trunk.{index}.")]) == (4 * (depth - 1) if index else 0)
        assert len([n for n in laterals if n.startswith(f"heads.{index}.")]) == (4 if index else 0)
        own = {id(p) for p in parameters(method, index)}
        for name, parameter in method.net.named_parameters():
            if id(parameter) in own:
                assert parameter.grad is not None, name
                assert parameter.grad.abs().max() > 0, name
            else:
                assert parameter.grad is None, name


def test_a_column_computes_the_papers_equation(double):
    """h_i = f(W_i h_{i-1} + U_i relu(V_i [alpha_j h_{i-1} of each column j before]))."""
    method = pnn(mlp((1, 8, 8), [2, 2, 2], [40, 30]))
    net, x = method.net.eval(), X.double().flatten(1)
    p = dict(net.named_parameters())

    def layer(prefix, own, earlier):
        out = own @ p[f"{prefix}.layer.weight"].T + p[f"{prefix}.layer.bias"]
        if earlier:
            joined = torch.cat([p[f"{prefix}.lateral.scale"][j] * h for j, h in enumerate(earlier)], 1)
            down = F.relu(joined @ p[f"{prefix}.lateral.reduce.weight"].T + p[f"{prefix}.lateral.reduce.bias"])
            out = out + down @ p[f"{prefix}.lateral.widen.weight"].T
        return out

    first = [F.relu(layer(f"trunk.{k}.0", x, [])) for k in range(3)]
    second = [F.relu(layer(f"trunk.{k}.1", first[k], first[:k])) for k in range(3)]
    for k in range(3):
        with net.using(k):
            torch.testing.assert_close(net(X.double()), layer(f"heads.{k}", second[k], second[:k]))


def test_on_feature_maps_the_adapter_is_a_convolution_of_one_pixel(double):
    method = pnn(wide_conv_net())
    net = method.net.eval()
    below = len(net.trunk[2][0].layer.weight)
    maps = [torch.randn(3, below, 4, 4) for _ in range(2)]
    lateral = net.trunk[2][1].lateral
    joined = torch.cat([s * h for s, h in zip(lateral.scale, maps, strict=True)], 1)
    down = F.relu(F.conv2d(joined, lateral.reduce.weight[:, :, None, None], lateral.reduce.bias))
    torch.testing.assert_close(lateral(maps), F.conv2d(down, lateral.widen.weight, stride=2, padding=1))
    lateral = net.trunk[2][2].lateral  # behind the flatten: each of four positions by itself
    maps = [torch.randn(3, lateral.below, 2, 2) for _ in range(2)]
    joined = torch.cat([s * h for s, h in zip(lateral.scale, maps, strict=True)], 1)
    down = F.relu(F.conv2d(joined, lateral.reduce.weight[:, :, None, None], lateral.reduce.bias))
    torch.testing.assert_close(lateral([h.flatten(1) for h in maps]), down.flatten(1) @ lateral.widen.weight.T)


@pytest.mark.parametrize(
    "given", [lambda: mlp((784,), [2] * 5), lambda: mlp((784,), [10] * 10), lambda: mlp((784,), [10])]
)
def test_all_columns_together_are_as_large_as_the_given_net(given):
    net = given()
    limit = sum(p.numel() for p in net.parameters())
    method = pnn(net)
    assert 0.98 * limit <= sum(p.numel() for p in method.net.parameters()) <= limit
    assert len(method.net.heads) == (5 if len(net.heads) == 1 else len(net.heads))


def test_columns_before_the_present_one_do_not_drop_units():
    method = pnn(wide_conv_net())
    method.begin_task(TaskInfo(2, 20, 2, range(2)))
    method.net.train()
    assert not any(m.training for c in (0, 1) for m in method.net.trunk[c].modules() if isinstance(m, nn.Dropout))
    assert all(m.training for m in method.net.trunk[2].modules() if isinstance(m, nn.Dropout))


def test_too_many_tasks_or_too_small_a_net_get_one_sentence():
    method = pnn(mlp((64,), [6], [40]), tasks=2)
    with pytest.raises(ValueError, match="pnn was built for 2 tasks, and there are more: set tasks"):
        method.logits(X, EvalContext(0, 2), 0, None)
    with pytest.raises(ValueError, match="pnn was built for 2 tasks"):
        method.begin_task(TaskInfo(2, 20, 0, range(2)))
    with pytest.raises(ValueError, match="too small"):
        pnn(mlp((64,), [2] * 30, [3]))
    with pytest.raises(ValueError, match="tasks must be at least 1"):
        OwnHeadSettings(tasks=0)
    assert split(conv_net()).heads  # and a net that can be split gives no error
