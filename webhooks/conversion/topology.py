"""Topology assignments: domain by domain in v1beta1, compressed in v1beta2.

v1beta1 keeps the compressed form beside the domains, so an assignment that nobody changed is written back as it was,
however its slices were cut.  Where both differ, a client of v1beta1 changed the domains, and they count.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kqueue.core.assignment import Domain, TopologyAssignment, decode, encode, encode_plain
from kqueue.errors import InvalidObjectError
from webhooks.conversion.fields import JSON, without


def to_v1beta1(assignment: JSON) -> JSON:
    """Return the assignment with its domains.  Slices that cannot be read have none, and stay."""
    return {**assignment, "domains": _domains(assignment)}


def to_v1beta2(assignment: JSON) -> JSON:
    """Return the assignment in slices alone; as it is where it has no domains to convert."""
    bare, domains = without(assignment, "domains"), assignment.get("domains")
    if domains is None or ("slices" in bare and _domains(bare) == domains):
        return bare
    return {**bare, "slices": _slices(assignment.get("levels") or [], domains)}


def _domains(assignment: JSON) -> list[JSON]:
    try:
        found: list[JSON] = encode_plain(decode(assignment))["domains"]
    except InvalidObjectError:
        return []
    return found


def _slices(levels: list[str], domains: list[JSON]) -> list[Any]:
    """Return the slices of domains.  The schema of v1beta1 allows domains with too few or too many values, too: each
    run of equally many gets slices of its own, and readers of v1beta2 see the mistake.
    """
    read = [Domain(tuple(domain["values"]), domain["count"]) for domain in domains]
    slices: list[Any] = []
    for _width, run in groupby(read, key=lambda domain: len(domain.values)):
        slices += encode(TopologyAssignment(tuple(levels), tuple(run)))["slices"]
    return slices
