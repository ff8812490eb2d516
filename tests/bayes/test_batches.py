"""Gathering the batch whose turn it is, against plain indexing: on a GPU, else in Triton's interpreter."""

import pytest
import torch

from tests.bayes.triton_tests import DEVICE, MARKS
from ucb.kernels.triton import steps

pytestmark = MARKS

FORMS = {
    "rows": lambda: torch.randn(23, 5),
    "long rows": lambda: torch.randn(23, 2 * steps.LONGEST + 3),
    "images": lambda: torch.randn(23, 3, 4, 5),
    "channels last": lambda: torch.randn(23, 3, 4, 5).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_batch_of_an_order_is_taken_once_and_lies_in_memory_as_the_examples_do(form, is_fused, monkeypatch):
    monkeypatch.setattr(steps, "supports", lambda *tensors: is_fused and all(t.is_contiguous() for t in tensors))
    x, y, order = FORMS[form]().to(DEVICE), torch.arange(23, device=DEVICE), torch.randperm(23).to(DEVICE)
    turn, losses = torch.zeros(1, dtype=torch.int64, device=DEVICE), torch.zeros(3, device=DEVICE)
    for number, some in enumerate(order.split(10)):
        inputs, labels = steps.take_batch(x, y, order, turn, 10, len(some))
        assert torch.equal(inputs, x[some])
        assert torch.equal(labels, some)
        assert inputs.stride() == x[:10].stride()
        steps.note_loss(torch.tensor(0.5 + number, device=DEVICE), losses, turn)
    assert losses.tolist() == [0.5, 1.5, 2.5]
    assert turn.item() == 3
