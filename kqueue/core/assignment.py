"""Topology assignments: the plain form that algorithms use, and the compressed form of the Workload's status.

Internally, an assignment is `levels` and `domains` (values, count), ordered ascending by the *full* level values even
where only the host name is written.  This order defines the ranks of pods, so reading and writing keep it.

On the wire (v1beta2) an assignment is a list of slices, each a run of domains whose values share a prefix and a suffix.
Source: KEP-2724, compressed topology assignments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kqueue.core.value import value
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.kube.names import HOSTNAME_LABEL

MAX_SLICES = 1000
MAX_DOMAINS_PER_SLICE = 100_000


@value()
class Domain:
    """`count` pods in the lowest-level domain with these values, one per written level."""

    values: tuple[str, ...]
    count: int


@value()
class TopologyAssignment:
    """The domains of the pods of one pod set.

    `levels` is only the host name level if that is the lowest level, else all levels of the topology.
    """

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def count(self) -> int:
        """The number of assigned pods."""
        return sum(domain.count for domain in self.domains)

    def without(self, places: TopologyAssignment) -> TopologyAssignment:
        """Return the assignment without these places, in the same order. Places that the assignment does not have
        change nothing.
        """
        if not places.domains or places.levels != self.levels:
            return self
        gone = Counter({domain.values: domain.count for domain in places.domains})
        left = ((domain, max(0, domain.count - gone[domain.values])) for domain in self.domains)
        return TopologyAssignment(self.levels, tuple(Domain(domain.values, count) for domain, count in left if count))

    def named(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name under which the usage of a domain with these values is stored: the host name alone, if there
        is one.
        """
        return values[-1:] if self.levels[-1] == HOSTNAME_LABEL else values


def encode(assignment: TopologyAssignment, *, by_host_prefix: bool = True) -> dict[str, Any]:
    """Return the `topologyAssignment` of a v1beta2 Workload status; `decode` reads it back unchanged.

    Args:
        assignment: at least one domain (an empty slice list is not valid on the wire).
        by_host_prefix: hosts may be split into runs that share a name prefix, where that makes the text shorter.

    Raises:
        ValueError: the assignment has no domains.
    """
    if not assignment.domains:
        raise ValueError("an assignment without domains cannot be written: leave topologyAssignment out instead")
    levels, domains = list(assignment.levels), assignment.domains
    runs: list[Sequence[Domain]] = [domains]
    if by_host_prefix and levels[-1] == HOSTNAME_LABEL and len(domains) > 1:
        runs = _runs_by_prefix(domains)
    if len(runs) == 1 and len(domains) <= MAX_DOMAINS_PER_SLICE:
        return {"levels": levels, "slices": [_encode_slice(domains)]}
    chunks = [run[i : i + MAX_DOMAINS_PER_SLICE] for run in runs for i in range(0, len(run), MAX_DOMAINS_PER_SLICE)]
    split = {"levels": levels, "slices": [_encode_slice(chunk) for chunk in chunks]}
    if len(domains) > MAX_DOMAINS_PER_SLICE:
        return split
    single = {"levels": levels, "slices": [_encode_slice(domains)]}
    return single if _text_length(single) < _text_length(split) else split


def encode_plain(assignment: TopologyAssignment) -> dict[str, Any]:
    """Return the v1beta1 form: levels and one entry per domain."""
    return {
        "levels": list(assignment.levels),
        "domains": [{"values": list(domain.values), "count": domain.count} for domain in assignment.domains],
    }


def _text_length(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())


def _encode_slice(domains: Sequence[Domain]) -> dict[str, Any]:
    if len(domains) == 1:
        (only,) = domains
        where = [{"universal": value} for value in only.values]
        return {"domainCount": 1, "valuesPerLevel": where, "podCounts": {"universal": only.count}}
    counts = [domain.count for domain in domains]
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_encode_values(values) for values in zip(*(d.values for d in domains), strict=True)],
        "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
    }


def _encode_values(values: Sequence[str]) -> dict[str, Any]:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix, suffix = _common_ends(values)
    individual: dict[str, Any] = {"prefix": prefix} if prefix else {}
    if suffix:
        individual["suffix"] = suffix
    individual["roots"] = [value[len(prefix) : len(value) - len(suffix)] for value in values]
    return {"individual": individual}


def _common_ends(values: Sequence[str]) -> tuple[str, str]:
    """Return the longest common prefix and suffix; if they would overlap in the shortest value, the prefix is
    shortened.
    """
    first, last = min(values), max(values)
    prefix = _common_length(first, last)
    backwards = [value[::-1] for value in values]
    first_backwards, last_backwards = min(backwards), max(backwards)
    suffix = _common_length(first_backwards, last_backwards)
    prefix = min(prefix, min(map(len, values)) - suffix)
    return first[:prefix], first_backwards[:suffix][::-1]


def _common_length(a: str, b: str) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def _runs_by_prefix(domains: Sequence[Domain]) -> list[Sequence[Domain]]:
    """Return maximal runs of neighbours whose names share a reusable prefix, as deep as 1000 slices allow."""
    candidates = [_prefixes(domain.values[-1]) for domain in domains]
    occurrences = Counter(prefix for prefixes in candidates for prefix in prefixes)
    for depth in range(max(map(len, candidates)), 0, -1):
        keys = [
            next((prefix for prefix in reversed(prefixes[:depth]) if occurrences[prefix] > 1), "")
            for prefixes in candidates
        ]
        starts = [0, *(i for i, (a, b) in enumerate(pairwise(keys), start=1) if a != b), len(keys)]
        runs = [domains[a:b] for a, b in pairwise(starts)]
        if sum(-(-len(run) // MAX_DOMAINS_PER_SLICE) for run in runs) <= MAX_SLICES:
            return runs
    return [domains]


def _prefixes(name: str) -> list[str]:
    """Return every prefix that ends in a dash and is not the whole name, from short to long."""
    return [name[: i + 1] for i, letter in enumerate(name) if letter == "-" and i + 1 < len(name)]


def decode(document: Mapping[str, Any], path: str = "topologyAssignment") -> TopologyAssignment:
    """Return the assignment in a status, in either form: `slices` of v1beta2 or the plain `domains` of v1beta1.

    Raises:
        InvalidObjectError: the document does not have the form; the error has every mistake with its path below `path`.
    """
    reader = _Reader(path)
    levels = reader.texts(document.get("levels"), "levels")
    if not levels:
        reader.fail("levels", "at least one level is needed", document.get("levels"))
    if "domains" in document:
        domains = list(reader.plain_domains(document["domains"], len(levels)))
    else:
        domains = list(reader.slices(document.get("slices"), len(levels)))
    if reader.errors:
        raise InvalidObjectError("topology assignment", reader.errors)
    return TopologyAssignment(tuple(levels), tuple(domains))


class _Reader:
    """Walks a document and collects its mistakes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.errors: list[FieldError] = []

    def fail(self, where: str, problem: str, value: object = None) -> None:
        self.errors.append(FieldError(f"{self._path}.{where}", problem, value))

    def items(self, value: object, where: str) -> list[Any]:
        if isinstance(value, list | tuple):
            return list(value)
        self.fail(where, "a list is needed", value)
        return []

    def texts(self, value: object, where: str) -> list[str]:
        return self._all(value, where, lambda item: isinstance(item, str), "texts are needed")

    def counts(self, value: object, where: str) -> list[int]:
        return self._all(value, where, _is_count, "whole numbers of at least 1 are needed")

    def _all(self, value: object, where: str, right: Callable[[object], bool], problem: str) -> list[Any]:
        items = self.items(value, where)
        for i, item in enumerate(items):
            if not right(item):
                self.fail(f"{where}[{i}]", problem, item)
                return []
        return items

    def plain_domains(self, value: object, width: int) -> Iterator[Domain]:
        for i, item in enumerate(self.items(value, "domains")):
            where = f"domains[{i}]"
            if not isinstance(item, Mapping):
                self.fail(where, "an object with values and count is needed", item)
                continue
            values = self.texts(item.get("values"), f"{where}.values")
            if len(values) != width:
                self.fail(f"{where}.values", f"one value for each of the {width} levels is needed", item.get("values"))
            if not _is_count(item.get("count")):
                self.fail(f"{where}.count", "a whole number of at least 1 is needed", item.get("count"))
            elif len(values) == width:
                yield Domain(tuple(values), item["count"])

    def slices(self, value: object, width: int) -> Iterator[Domain]:
        for i, item in enumerate(self.items(value, "slices")):
            where = f"slices[{i}]"
            if not isinstance(item, Mapping):
                self.fail(where, "an object with domainCount, valuesPerLevel and podCounts is needed", item)
                continue
            yield from self._slice(item, where, width)

    def _slice(self, item: Mapping[str, Any], where: str, width: int) -> Iterator[Domain]:
        size = item.get("domainCount")
        if not _is_count(size) or size > MAX_DOMAINS_PER_SLICE:  # type: ignore[operator]  # _is_count says it is an int
            self.fail(f"{where}.domainCount", f"a whole number of 1..{MAX_DOMAINS_PER_SLICE} is needed", size)
            return
        assert isinstance(size, int)
        per_level = self.items(item.get("valuesPerLevel"), f"{where}.valuesPerLevel")
        if len(per_level) != width:
            self.fail(f"{where}.valuesPerLevel", f"one entry for each of the {width} levels is needed")
            return
        known = len(self.errors)
        columns = [
            self._expand(entry, f"{where}.valuesPerLevel[{level}]", size, self.texts, self._roots)
            for level, entry in enumerate(per_level)
        ]
        counts = self._expand(item.get("podCounts"), f"{where}.podCounts", size, self.counts, self.counts)
        if len(self.errors) == known:
            yield from map(Domain, zip(*columns, strict=True), counts)

    def _expand(
        self,
        entry: object,
        where: str,
        size: int,
        universal: Callable[[object, str], Sequence[Any]],
        individual: Callable[[object, str], Sequence[Any]],
    ) -> Iterable[Any]:
        if not isinstance(entry, Mapping) or (entry.get("universal") is None) == (entry.get("individual") is None):
            self.fail(where, "exactly one of universal and individual is needed", entry)
            return ()
        if entry.get("universal") is not None:
            return [*universal([entry["universal"]], f"{where}.universal")] * size
        values = individual(entry["individual"], f"{where}.individual")
        if len(values) != size:
            self.fail(f"{where}.individual", f"domainCount says {size} entries, found {len(values)}")
        return values

    def _roots(self, entry: object, where: str) -> list[str]:
        if not isinstance(entry, Mapping):
            self.fail(where, "an object with roots is needed", entry)
            return []
        prefix, suffix = entry.get("prefix") or "", entry.get("suffix") or ""
        return [f"{prefix}{root}{suffix}" for root in self.texts(entry.get("roots"), f"{where}.roots")]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
