"""Limits of BatchProcesses.  A module of their own, so that a process reads them without the models of all kinds."""

from __future__ import annotations

from typing import Final

MOST_PODS: Final = 10_000
"""The most pods of one gang."""
MOST_PROCESSES: Final = 16
"""The most process types of one BatchProcess."""
