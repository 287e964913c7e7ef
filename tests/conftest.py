"""Fixtures and settings of all tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from tests.dealing import dealt
from tests.sim.chosen import is_deep

LONG = ("slow", "controlplane", "browser")
"""Marks of tests of which each takes a worker for seconds."""

# How long an example takes says more about who else uses the machine than about what is tested.
settings.register_profile("kqueue", deadline=None)
settings.load_profile("kqueue")

# Shells and some CI systems start background jobs with SIGINT ignored, and children inherit that: then an interrupt would
# not end the commands that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after their order has been drawn
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `seldom`, unless the run is deep or has no others, and deal the others to the workers."""
    left_out = [] if is_deep() else [item for item in items if item.get_closest_marker("seldom")]
    if left_out and len(left_out) < len(items):
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = dealt(items, workers, is_long=_is_long, file=lambda item: item.path)


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in LONG)
