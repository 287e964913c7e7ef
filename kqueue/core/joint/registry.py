"""The policies of joint placement by name, and the lists of policies that users write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kqueue.core.joint.policies.fairness import FairnessPolicy
from kqueue.core.joint.policies.interference import InterferencePolicy
from kqueue.core.joint.policies.locality import LocalityPolicy
from kqueue.core.joint.policies.network import NetworkPolicy
from kqueue.core.joint.policies.packing import PackingPolicy
from kqueue.core.joint.policies.shortest import ShortestPolicy
from kqueue.core.joint.policies.spreading import SpreadingPolicy
from kqueue.core.joint.policies.topology import TopologyPolicy
from kqueue.core.joint.policies.utilisation import UtilisationPolicy
from kqueue.core.joint.policy import PlacePolicy
from kqueue.core.value import value

MOST_POLICIES, MOST_WEIGHT, NORMAL_WEIGHT = 4, 1_000_000, 1000
"""Policies of one list; the largest weight of one, and the usual one, in thousandths."""
_MOST_POINTS = 100_000


@value(kw_only=True)
class PolicySpec:
    """A policy as users write it; `weight` is in thousandths."""

    name: str
    weight: int = NORMAL_WEIGHT
    parameters: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_POLICIES = (PolicySpec(name="topology"),)

Reader = Callable[[Any], Any]
"""Returns the value of a parameter.  Raises ValueError that says what it must be."""


def number(least: int, most: int) -> Reader:
    """Return the reader of a whole number."""

    def read(found: Any) -> int:
        if type(found) is not int or not least <= found <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return found

    return read


def points(found: Any) -> list[int]:
    """Read a list of points."""
    if not isinstance(found, list) or not found:
        raise ValueError("must be a list of points, one for each level, the widest one first")
    return [number(0, _MOST_POINTS)(item) for item in found]


def text(found: Any) -> str:
    """Read a text that is not empty."""
    if not isinstance(found, str) or not found:
        raise ValueError("must be a text")
    return found


def weights(found: Any) -> dict[str, int]:
    """Read the weights of ClusterQueues."""
    if not isinstance(found, dict):
        raise ValueError("must have the weights of ClusterQueues in thousandths, as {team: 2000}")
    return {str(queue): number(0, MOST_WEIGHT)(item) for queue, item in found.items()}


def matrix(found: Any) -> dict[str, dict[str, int]]:
    """Read the points of pairs of names."""
    if not isinstance(found, dict) or not all(isinstance(row, dict) for row in found.values()):
        raise ValueError("must have the points of each pair of classes, as {one: {other: 100}}")
    read = number(0, _MOST_POINTS)
    return {str(one): {str(other): read(item) for other, item in row.items()} for one, row in found.items()}


@value(kw_only=True)
class _Row:
    """How a policy is made, and its parameters: the name for users, the argument, and its reader.

    `parameters` None: the policy reads them itself.
    """

    make: Callable[..., PlacePolicy]
    parameters: Mapping[str, tuple[str, Reader]] | None


POLICIES: dict[str, _Row] = {}


def register(name: str, make: Callable[..., PlacePolicy], **parameters: tuple[str, Reader]) -> None:
    """Add a policy at the start of a process.

    Args:
        make: makes the policy from the arguments that a user gives.
        parameters: by argument, the name for users and the reader of its value.

    Raises ValueError when the name is taken or empty.
    """
    if not name or name in POLICIES:
        raise ValueError(f"the name {name!r} is taken or empty")
    POLICIES[name] = _Row(make=make, parameters={user: (argument, r) for argument, (user, r) in parameters.items()})


register("topology", TopologyPolicy, spread=("spread", points))
register("spreading", SpreadingPolicy, each=("each", number(0, _MOST_POINTS)))
register("packing", PackingPolicy, each=("each", number(0, _MOST_POINTS)))
register(
    "locality",
    LocalityPolicy,
    per_level=("perLevel", points),
    wait_factor=("waitFactor", number(0, 1_000_000)),
)
register("network", NetworkPolicy, resource=("resource", text))
register("interference", InterferencePolicy, matrix=("matrix", matrix))
register("utilisation", UtilisationPolicy, percentile=("percentile", number(0, 100)))
register("fairness", FairnessPolicy, weights=("weights", weights))
register("shortest", ShortestPolicy)


def register_foreign(name: str, make: Callable[..., PlacePolicy]) -> None:
    """Add a policy of another package, which gets the parameters as its user writes them.

    Raises ValueError when the name is taken or empty.
    """
    register(name, make)
    POLICIES[name] = _Row(make=make, parameters=None)


def looks_at_use(specs: Iterable[PolicySpec]) -> bool:
    """Whether any of these policies looks at measured use, as its class says."""
    rows = [POLICIES.get(spec.name) for spec in specs]
    return any(getattr(row.make, "looks_at_use", False) is True for row in rows if row is not None)


@value(kw_only=True)
class PolicyMistake:
    """A mistake in a list of policies: the path to it in the list, as `0/weight`, and what is wrong."""

    path: str
    problem: str


def mistakes_in(specs: Sequence[PolicySpec]) -> list[PolicyMistake]:
    """Return all mistakes of a list of policies."""
    found: list[PolicyMistake] = []
    if len(specs) > MOST_POLICIES:
        found.append(PolicyMistake(path="", problem=f"has {len(specs)} policies, and may have {MOST_POLICIES}"))
    names: set[str] = set()
    for place, spec in enumerate(specs):
        if spec.name in names:
            found.append(PolicyMistake(path=f"{place}/name", problem=f"{spec.name} is there twice"))
        names.add(spec.name)
        if not 1 <= spec.weight <= MOST_WEIGHT:
            problem = f"must be from 1 to {MOST_WEIGHT} thousandths"
            found.append(PolicyMistake(path=f"{place}/weight", problem=problem))
        made = make(spec)
        if isinstance(made, PolicyMistake):
            found.append(PolicyMistake(path=f"{place}/{made.path}", problem=made.problem))
    return found


def make(spec: PolicySpec) -> PlacePolicy | PolicyMistake:
    """Return the policy that a user wants."""
    row = POLICIES.get(spec.name)
    if row is None:
        known = ", ".join(sorted(POLICIES))
        return PolicyMistake(path="name", problem=f"there is no policy {spec.name}; there are {known}")
    given = dict(spec.parameters) if row.parameters is None else _arguments(spec, row.parameters)
    if isinstance(given, PolicyMistake):
        return given
    try:
        return row.make(**given)
    except (TypeError, ValueError) as e:
        return PolicyMistake(path="parameters", problem=str(e))


def _arguments(spec: PolicySpec, known: Mapping[str, tuple[str, Reader]]) -> dict[str, Any] | PolicyMistake:
    """Return the arguments that the parameters of a user mean."""
    given: dict[str, Any] = {}
    for name, found in spec.parameters.items():
        if name not in known:
            return PolicyMistake(path=f"parameters/{name}", problem=f"{spec.name} has no such parameter")
        argument, read = known[name]
        try:
            given[argument] = read(found)
        except ValueError as e:
            return PolicyMistake(path=f"parameters/{name}", problem=str(e))
    return given
