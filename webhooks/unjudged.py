"""Warn about pod templates with fields that kqueue does not evaluate; never refuse them."""

from __future__ import annotations

from collections.abc import Iterator

from kqueue.jobs import topology_request, unjudged
from kqueue.jobs.fields import JSON, text
from webhooks.templates import places

MAX_WARNINGS = 5
"""Warnings of one review."""


def unjudged_fields(new: JSON, old: JSON | None) -> list[str]:
    """Return a sentence for each pod template that requests a topology level and has such fields.

    Sentences that also apply to `old` (None on create) are left out; at most MAX_WARNINGS are returned.
    """
    before = frozenset(_sentences(old)) if old is not None else frozenset[str]()
    return [sentence for sentence in _sentences(new) if sentence not in before][:MAX_WARNINGS]


def _sentences(obj: JSON) -> Iterator[str]:
    pods, namespace = [place for place in places(obj) if place.is_pod], text(obj, "metadata", "namespace")
    among = [place.body for place in pods]
    for place in pods:
        found = unjudged.fields(place.body, namespace, among=among)
        if found and any(topology_request.levels(place.body, obj)):
            yield f"{place.path.removesuffix('metadata')}spec: {unjudged.sentence(found)}"
