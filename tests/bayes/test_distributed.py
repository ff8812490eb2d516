"""Two processes that learn one net: gradients are shared, or the form that would not share them is refused."""

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from ucb.bayes import ELBO, Normal, to_bayesian


def learn(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = to_bayesian(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), init_std_ratio=0.5)
    wrapped = DistributedDataParallel(net)
    torch.manual_seed(1 + rank)  # data and noise of its own
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    refused = []
    for use in (ELBO(16, Normal()).backward, ELBO(16, Normal(), estimator="local").add_gradients):
        try:
            use(nn.Sequential(wrapped), x, y)
        except ValueError as error:
            refused.append(str(error))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for settings in ({"samples": 2}, {"samples": 2, "stack": True}, {"samples": 2, "estimator": "local"}):
        for _ in range(2):
            optimizer.zero_grad()
            ELBO(16, Normal(), **settings)(wrapped, x, y).loss.backward()
            optimizer.step()
    torch.save({"refused": refused, "weights": [p.detach() for p in net.parameters()]}, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_processes_share_gradients_with_the_form_that_the_refusal_names(tmp_path):
    multiprocessing.spawn(learn, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert len(first["refused"]) == 2
    assert all("use objective(net, x, y).loss.backward()" in sentence for sentence in first["refused"])
    assert all(torch.equal(a, b) for a, b in zip(first["weights"], second["weights"], strict=True))
