import dataclasses

import pytest

from ucb.data import catalogue
from ucb.data.cache import digest_of


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """No test sees the user's data sets."""
    monkeypatch.setenv("UCB_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def published(monkeypatch):
    """Pretend that the tiny files in a folder are the published ones."""

    def publish(name, folder, **changes):
        def adjusted(file):
            path = folder / file.name
            digest = digest_of(path) if path.is_file() else file.digest
            urls = tuple(changes["site"] + file.name for _ in file.urls) if "site" in changes else file.urls
            return dataclasses.replace(file, digest=changes.get("digest", digest), urls=urls)

        known = catalogue.CATALOGUE[name]
        files = tuple(adjusted(file) for file in known.files)
        rest = {key: value for key, value in changes.items() if key not in ("site", "digest")}
        changed = dataclasses.replace(known, files=files, **rest)
        monkeypatch.setitem(catalogue.CATALOGUE, name, changed)
        return changed

    return publish
