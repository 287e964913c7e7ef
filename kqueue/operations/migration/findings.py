"""Findings of a migration check, and their report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

JSON = dict[str, Any]


class Level(StrEnum):
    """The severity of a finding for the migration."""

    CONVERTS = "converts"
    """The setting has the same meaning in kqueue, under the name that the finding gives."""
    NOTE = "note"
    """The setting or object is left behind; no queued object depends on it."""
    WORK = "work"
    """An administrator has to act before the migration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFinding:
    """The result of one check."""

    level: Level
    field: str
    """Path in the file, or kind, name and field of an object of the cluster."""
    why: str
    remedy: str
    """A command or a setting; with CONVERTS the new setting."""

    def as_json(self) -> JSON:
        """Return the finding as JSON."""
        return {"level": self.level.value, "field": self.field, "why": self.why, "remedy": self.remedy}

    def lines(self) -> list[str]:
        """Return the finding as lines of text."""
        return [f"{self.level.value:<8}  {self.field}", f"{'':10}{self.why}", f"{'':10}remedy: {self.remedy}"]


def converts(field: str, target: str) -> MigrationFinding:
    """Return a finding about a setting that has another path in kqueue's chart."""
    return MigrationFinding(
        level=Level.CONVERTS, field=field, why="it means the same in kqueue", remedy=f"set {target}"
    )


def note(field: str, why: str, remedy: str) -> MigrationFinding:
    """Return a finding about a setting or an object that the migration leaves behind."""
    return MigrationFinding(level=Level.NOTE, field=field, why=why, remedy=remedy)


def work(field: str, why: str, remedy: str) -> MigrationFinding:
    """Return a finding that needs work of a person."""
    return MigrationFinding(level=Level.WORK, field=field, why=why, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings, and the values for kqueue's chart that replace the given ones."""

    findings: Sequence[MigrationFinding]
    values: JSON = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether nothing needs work."""
        return not any(finding.level is Level.WORK for finding in self.findings)

    def as_json(self) -> JSON:
        """Return the report as JSON."""
        found = [finding.as_json() for finding in self.findings]
        return {"ready": self.is_ready, "findings": found, "values": self.values}

    def summary(self) -> str:
        """Return the counts in one line."""
        counts = Counter(finding.level for finding in self.findings)
        text = f"{counts[Level.CONVERTS]} convert, {counts[Level.NOTE]} are left behind, {counts[Level.WORK]} need work"
        return f"{len(self.findings)} findings: {text}"


def some(names: Iterable[str], shown: int = 3) -> str:
    """Return the first names and the number of the rest: `a, b, c and 4 more`."""
    found = sorted(names)
    more = f" and {len(found) - shown} more" if len(found) > shown else ""
    return ", ".join(found[:shown]) + more
