"""The part of the speed benchmark's bars that does not depend on the machine."""

import sys
from pathlib import Path


def test_weights_hold_less_than_six_times_mu_and_rho(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    step = __import__("step")
    assert step.peak_memory() < 6
    sys.modules.pop("step")
