"""What all tests of the command line share."""

import pytest

from tests.support import make_output_plain


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    make_output_plain(monkeypatch)
