"""A method is found by its name, without those that nobody asked for."""

import subprocess
import sys

import pytest
import torch

from ucb.methods import find_method, known_methods
from ucb.methods.base import _restore, _save


def imported_for(name):
    code = f"""
import sys
from ucb.methods import find_method
assert find_method({name!r}).name == {name!r}
print(*[m.rpartition(".")[2] for m in sys.modules if m.startswith("ucb.methods.")])
"""
    return {*subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()}


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("ewc", {"ewc", "base", "ordinary", "per_example"}),
        ("imm-mode", {"imm", "base", "ewc", "ordinary", "per_example"}),
        ("ucb-ng", {"ucb_ng", "base", "bayesian"}),
    ],
)
def test_only_what_a_method_needs_is_imported(name, needed):
    assert imported_for(name) == needed


@pytest.mark.parametrize("name", known_methods())
def test_every_method_is_found_by_its_name(name):
    assert find_method(name) is known_methods()[name]


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("ucb-q", "did you mean ucb"),
        ("imm", "did you mean imm-m"),
        ("base", "did you mean mas"),
        ("../ewc", "did you mean ewc"),
        ("", "there are"),
    ],
)
def test_a_wrong_name_is_answered_with_advice(wrong, advice):
    with pytest.raises(ValueError, match=advice):
        find_method(wrong)


def test_what_is_restored_is_a_copy_and_parameters_stay_themselves():
    embedding = [torch.nn.Parameter(torch.zeros(3))]
    plain = {0: [torch.arange(3.0)], "number": 2, "none": None, "pair": (1, [2])}
    saved = _save({"embedding": [torch.nn.Parameter(torch.ones(3))], "plain": plain})
    assert not saved["embedding"][0].requires_grad
    found = _restore({"embedding": embedding, "plain": {}}, saved, torch.device("cpu"))
    assert found["embedding"][0] is embedding[0]
    assert embedding[0].tolist() == [1, 1, 1]
    assert embedding[0].requires_grad
    assert found["plain"].keys() == plain.keys()
    assert found["plain"]["pair"] == (1, [2])
    found["plain"][0][0].zero_()
    assert plain[0][0].tolist() == [0, 1, 2]


def test_a_module_that_there_is_takes_a_state_over_and_one_that_there_was_not_leaves():
    module, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    assert _restore(module, _save(other), torch.device("cpu")) is module
    assert torch.equal(module.weight, other.weight)
    assert _restore(module, None, torch.device("cpu")) is None
