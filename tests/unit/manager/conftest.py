"""What parts of a process are tried on."""

from __future__ import annotations

from tests.unit.cli.conftest import client, sandbox

__all__ = ["client", "sandbox"]
