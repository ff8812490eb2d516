"""What all tests of the command line share."""

import pytest


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    """No variable of the machine's decides how the output looks."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
