"""Fixtures of all unit tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from kqueue.observe import logs


@pytest.fixture(autouse=True)
def restored_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging as it was, after the test; no logger of a module keeps what it was given during it."""
    sink, root, configure = logs._sink, logging.getLogger(), structlog.configure

    def configure_uncached(**settings: Any) -> None:
        configure(**{**settings, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", configure_uncached)
    before = (sink.level, sink.render, sink.stream, sink.clock, sink.lost)
    level, handlers = root.level, list(root.handlers)
    yield
    sink.level, sink.render, sink.stream, sink.clock, sink.lost = before
    logging.captureWarnings(False)
    root.setLevel(level)
    root.handlers[:] = handlers
    structlog.reset_defaults()
