"""The policies of a joint placement in a document, the traits of its workloads, and measured use of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from kqueue.config.duration import parse_duration
from kqueue.core.joint.registry import (
    DEFAULT_POLICIES,
    MOST_WEIGHT,
    NORMAL_WEIGHT,
    PolicySpec,
    mistakes_in,
)
from kqueue.core.joint.statistics import NO_STATISTICS, NodeStatistics
from kqueue.core.joint.traits import Traits
from kqueue.placing.fields import Fields, Problems
from kqueue.placing.parts import quantity

TRAITS = ("prefers", "interference", "expectedRuntime")
"""Keys of a workload for policies."""
_MEASURED = ("cpu", "memory", "bandwidth")
_BANDWIDTH = "kqueue.dev/bandwidth"
_MOST_SAMPLES = 100


def policies(problems: Problems, joint: Fields) -> tuple[PolicySpec, ...]:
    """Return the policies of the round."""
    if not joint.has("policies"):
        return DEFAULT_POLICIES
    found: list[PolicySpec] = []
    before = len(problems.found)
    for path, item in joint.items("policies"):
        fields = problems.fields(item, path, ("name", "weight", "parameters"))
        fields.require("name", "the name of the policy")
        parameters = {key: value for key, _, value in fields.members("parameters")}
        weight = fields.integer("weight", NORMAL_WEIGHT, least=1, most=MOST_WEIGHT)
        found.append(PolicySpec(name=fields.text("name"), weight=weight, parameters=parameters))
    if len(problems.found) == before:
        for mistake in mistakes_in(found):
            where = joint.path("policies") + (f"/{mistake.path}" if mistake.path else "")
            problems.add(where, mistake.problem)
    return tuple(found)


def traits(problems: Problems, workload: Fields, levels: Sequence[str]) -> Traits:
    """Return what a workload tells the policies."""
    wishes: list[tuple[str, str]] = []
    text = workload.text("prefers")
    for part in text.split(",") if text else ():
        level, _, value = part.strip().partition("=")
        if level not in levels or not value:
            said = f"expected level=value of the levels {', '.join(levels)}, found {part.strip()!r}"
            problems.add(workload.path("prefers"), said)
        wishes.append((level, value))
    return Traits(
        prefers=tuple(wishes),
        interference=workload.text("interference"),
        expected_seconds=_seconds(problems, workload),
    )


def _seconds(problems: Problems, workload: Fields) -> int | None:
    text = workload.optional_text("expectedRuntime")
    if text is None:
        return None
    try:
        duration = parse_duration(text)
    except ValueError:
        duration = timedelta(seconds=-1)
    if duration < timedelta(0):
        problems.add(workload.path("expectedRuntime"), f"expected a duration such as 90m or 2h, found {text!r}")
    return -(-duration // timedelta(seconds=1))


def statistics(problems: Problems, document: Fields, nodes: Mapping[str, object]) -> NodeStatistics:
    """Return the measured use of nodes."""
    found: dict[str, list[dict[str, int]]] = {}
    for node, path, item in document.members("statistics"):
        if node not in nodes:
            problems.add(path, "no node has this name: name one of nodes, or leave it out")
        samples: list[dict[str, int]] = []
        for where, sample in problems.items(item, path):
            fields = problems.fields(sample, where, _MEASURED)
            samples.append(
                {
                    _BANDWIDTH if key == "bandwidth" else key: quantity(
                        problems, fields.value(key), fields.path(key), key
                    )
                    for key in _MEASURED
                    if fields.has(key)
                }
            )
        if len(samples) > _MOST_SAMPLES:
            problems.add(path, f"has {len(samples)} samples, and may have {_MOST_SAMPLES}: keep the last ones")
        found[node] = samples
    return NodeStatistics(found) if found else NO_STATISTICS
