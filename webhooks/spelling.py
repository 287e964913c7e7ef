"""Warn about labels, annotations and topology levels that look misspelt; never refuse them.

Unknown names are warned of and not refused, because a newer version of the compatible API may know them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kqueue.api import gang_names, move_names, names, run_time_names
from kqueue.config.names import closest, nearest
from kqueue.jobs import topology_request
from kqueue.jobs.fields import JSON, annotations_of, labels_of
from webhooks.templates import MetadataLocation, places

MAX_WARNINGS = 5
"""Maximum number of warnings of one review; the search for a similar name takes time."""
_LONGEST = 128
"""Number of characters of a name that are shown and compared; kqueue's names have at most 60."""
_PREFIXES = (f"{names.GROUP}/", f"{names.KQUEUE_GROUP}/")


def _named(suffix: str) -> dict[str, str]:
    """Return known names of one sort, by the part behind the prefix."""
    every = itertools.chain(*(vars(module).items() for module in (names, gang_names, move_names, run_time_names)))
    found = (value for key, value in every if key.endswith(suffix) and isinstance(value, str))
    return {value.rpartition("/")[2]: value for value in found if value.startswith(_PREFIXES)}


_LABELS, _ANNOTATIONS = _named("_LABEL"), _named("_ANNOTATION")
_ON_TEMPLATES = names.TOPOLOGY_ANNOTATIONS - topology_request.ALIASES.keys()


@dataclass(frozen=True, slots=True)
class RequestedLevel:
    """A topology level, and the path of the annotations that request it."""

    level: str
    path: str


@dataclass(frozen=True, slots=True)
class _Mistake:
    """One key without effect at its position."""

    path: str
    """Path of the metadata, as in `spec.template.metadata`."""
    sort: str
    """`labels` or `annotations`."""
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}.{self.sort}: {self.key[:_LONGEST]} {self.problem}"


def unknown_names(new: JSON, old: JSON | None) -> list[str]:
    """Return a sentence for each label or annotation with our prefixes that has no effect and is not in `old`.

    Checks the object's own metadata and the metadata of its pod templates; at most MAX_WARNINGS sentences.
    `old` is None on create.
    """
    before = {(place.path, sort, key) for place, sort, key in _keys(old)} if old is not None else frozenset()
    added = (found for found in _keys(new) if (found[0].path, *found[1:]) not in before)
    mistakes = (mistake for place, sort, key in added if (mistake := _mistake(place, sort, key)) is not None)
    return [str(mistake) for mistake in itertools.islice(mistakes, MAX_WARNINGS)]


def levels_asked(new: JSON, old: JSON | None) -> list[RequestedLevel]:
    """Return the topology levels that pod templates request, except levels that `old` (None on create) requests."""
    before = {*_levels(old)} if old is not None else frozenset()
    return [asked for asked in dict.fromkeys(_levels(new)) if asked not in before]


def unknown_levels(asked: Iterable[RequestedLevel], known: Iterable[str]) -> list[str]:
    """Return a sentence for each level that is not among `known`, the levels of all Topologies."""
    levels = sorted(known)
    missing = [one for one in asked if one.level not in levels][:MAX_WARNINGS]
    return [f"{one.path}.annotations: no Topology has level {one.level}{nearest(one.level, levels)}" for one in missing]


def _mistake(place: MetadataLocation, sort: str, key: str) -> _Mistake | None:
    is_label = sort == "labels"
    right, other = (_LABELS, _ANNOTATIONS) if is_label else (_ANNOTATIONS, _LABELS)
    if key in right.values():
        if key in _ON_TEMPLATES and not place.has_topology and not is_label:
            return _Mistake(place.path, sort, key, "has no effect here; write it into the pod template's metadata")
        return None
    if key in other.values():
        problem = f"is an annotation{_NOT_A} label" if is_label else f"is a label{_NOT_A}n annotation"
        return _Mistake(place.path, sort, key, problem)
    near = closest(key.rpartition("/")[2][:_LONGEST], right)
    guess = f"; did you mean {right[near]}?" if near is not None else ""
    return _Mistake(place.path, sort, key, f"is unknown and has no effect{guess}")


_NOT_A = ", and has no effect as a"


def _keys(obj: JSON) -> Iterator[tuple[MetadataLocation, str, str]]:
    """Yield each key with our prefixes: place, `labels` or `annotations`, key."""
    for place in places(obj):
        for sort, found in (("labels", labels_of(place.body)), ("annotations", annotations_of(place.body))):
            for key in found:
                if key.startswith(_PREFIXES):
                    yield place, sort, key


def _levels(obj: JSON) -> Iterator[RequestedLevel]:
    for place in places(obj):
        if place.has_topology:
            for level in topology_request.levels(place.body, obj):
                yield RequestedLevel(level, place.path)
