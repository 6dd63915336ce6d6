"""What every test needs before anything is imported: no analytics, no telemetry."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

from specui import experience, pairs
from specui.catalog import SHIPPED, Catalog, PairFiles
from specui.config import DEFAULT_PAIR, LoadSettings
from specui.runtime import Runtime


@pytest.fixture(scope="session")
def bundled_pair() -> PairFiles:
    """The bundled weights, made where the program makes them (once per machine)."""
    return pairs.resolve(Catalog.load(SHIPPED).pair(DEFAULT_PAIR), lambda _stage, _done, _total: None)


@pytest.fixture(scope="module")
def runtime(bundled_pair: PairFiles) -> Iterator[Runtime]:
    """A runtime with the bundled pair loaded, shared by the tests of a module."""
    runtime = Runtime(LoadSettings())
    runtime.load(bundled_pair)
    yield runtime
    runtime.close()


@pytest.fixture(autouse=True)
def kept_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What auto learns in tests stays out of the user's folder."""
    monkeypatch.setattr(experience, "folder", lambda: tmp_path_factory.getbasetemp() / "experience")
