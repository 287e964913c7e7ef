"""Reads the policies of a joint placement, what workloads tell them, and the measured use of nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from kqueue.config.duration import parse_duration
from kqueue.core.joint.registry import (
    DEFAULT_POLICIES,
    MOST_POLICIES,
    MOST_WEIGHT,
    NORMAL_WEIGHT,
    PolicySpec,
    mistakes_in,
)
from kqueue.core.joint.statistics import BANDWIDTH, NodeStatistics
from kqueue.core.joint.traits import NO_TRAITS, Traits, pairs_of
from kqueue.placing.fields import Fields, Problems, quoted
from kqueue.placing.parts import quantity

TRAITS = ("prefers", "interference", "expectedRuntime")
"""Keys of workloads that policies read."""
_MEASURED = {"cpu": "cpu", "memory": "memory", "bandwidth": BANDWIDTH}
"""Resources by the key of a sample."""
_MOST_SAMPLES = 100


def policies(problems: Problems, joint: Fields) -> tuple[PolicySpec, ...]:
    """Return the policies; the usual ones if the document names none."""
    if not joint.given("policies"):
        return DEFAULT_POLICIES
    found, before = [], len(problems.found)
    for path, item in joint.items("policies"):
        fields = problems.fields(item, path, ("name", "weight", "parameters"))
        fields.require("name", "the name of a policy")
        parameters = {key: value for key, _, value in fields.members("parameters")}
        weight = fields.integer("weight", NORMAL_WEIGHT, least=1, most=MOST_WEIGHT)
        found.append(PolicySpec(name=fields.text("name"), weight=weight, parameters=parameters))
    path = joint.path("policies")
    if len(problems.found) == before:
        for mistake in mistakes_in(found):
            problems.add(f"{path}/{mistake.path}" if mistake.path else path, f"{mistake.problem}: correct it")
        if not found:
            problems.add(path, f"needs 1 to {MOST_POLICIES} policies, found 0: name one, or leave the list out")
    return tuple(found)


def traits(problems: Problems, fields: Fields, levels: Collection[str]) -> Traits:
    """Return what a workload tells the policies."""
    if not any(map(fields.given, TRAITS)):
        return NO_TRAITS
    prefers = fields.text("prefers")
    pairs = pairs_of(prefers)
    if fields.given("prefers") and not pairs and isinstance(fields.value("prefers"), str):
        problems.add(fields.path("prefers"), f"expected levels with values such as rack=r1, found {quoted(prefers)}")
    unknown = [level for level, _ in pairs if levels and level not in levels]
    if unknown:
        problems.remark(
            fields.path("prefers"),
            f"the topology has no level {quoted(unknown[0])}, so the wish is ignored: the levels are "
            f"{', '.join(levels)}",
        )
    seconds = None
    if fields.given("expectedRuntime"):
        seconds = _seconds(problems, fields.text("expectedRuntime"), fields.path("expectedRuntime"))
    return Traits(prefers=pairs, interference=fields.text("interference"), expected_seconds=seconds)


def _seconds(problems: Problems, text: str, path: str) -> int | None:
    """Return the whole seconds of a duration, rounded up."""
    try:
        duration = parse_duration(text)
    except ValueError:
        duration = timedelta(seconds=-1)
    if duration < timedelta(0):
        problems.add(path, f"expected a duration such as 90m or 36h, found {quoted(text)}")
        return None
    return -(-duration // timedelta(seconds=1))


def statistics(problems: Problems, document: Fields, nodes: Sequence[str]) -> NodeStatistics:
    """Return the measured use of nodes."""
    names = set(nodes)
    found: dict[str, list[dict[str, int]]] = {}
    for node, path, value in document.members("statistics"):
        if node not in names:
            problems.add(path, f"nodes has no {quoted(node)}: correct the name, or leave it out")
        samples = list(problems.items(value, path))
        if len(samples) > _MOST_SAMPLES:
            problems.add(path, f"expected at most {_MOST_SAMPLES} samples, found {len(samples)}: leave out the oldest")
            continue
        found[node] = []
        for where, sample in samples:
            fields = problems.fields(sample, where, tuple(_MEASURED))
            found[node].append(
                {
                    resource: quantity(problems, fields.value(key), fields.path(key), resource)
                    for key, resource in _MEASURED.items()
                    if fields.given(key)
                }
            )
    return NodeStatistics.of(found)
