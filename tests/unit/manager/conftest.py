"""Fixtures for tests of a process's parts."""

from __future__ import annotations

from tests.unit.cli.conftest import client, sandbox

__all__ = ["client", "sandbox"]
