"""What the tests of this room share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from kqueue.observe import logs


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Logging as it was, after the test."""
    sink, root = logs._sink, logging.getLogger()
    before = (sink.level, sink.render, sink.stream, sink.clock, sink.lost)
    level, handlers = root.level, list(root.handlers)
    yield
    sink.level, sink.render, sink.stream, sink.clock, sink.lost = before
    logging.captureWarnings(False)
    root.setLevel(level)
    root.handlers[:] = handlers
    structlog.reset_defaults()
