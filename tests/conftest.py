import os

import pytest
import torch

os.environ["SOURCE_DATE_EPOCH"] = "0"  # the date in a model file is the same however often it is made
torch.set_num_threads(1)  # the tensors here are small, and threads that wait for each other are slower than one


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state, so a failure repeats."""
    torch.manual_seed(0)


@pytest.fixture
def double():
    """Run a test in double precision, where a closed form can be met to many digits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
