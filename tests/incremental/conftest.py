import pytest

from ucb.incremental import trunks


@pytest.fixture
def small(monkeypatch):
    """Trunks with few features: for tests that look at anything but accuracy."""
    monkeypatch.setattr(trunks, "FILTERS", 6)
    monkeypatch.setattr(trunks, "UNITS", 40)


@pytest.fixture(scope="module")
def medium():
    """Trunks with a third of the features: digits are known nearly as well, several times as fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trunks, "FILTERS", 64)
        yield
