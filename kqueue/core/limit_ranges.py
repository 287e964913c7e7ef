"""LimitRanges of a namespace: defaults that they add to a pod's requests, and requests that they forbid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kqueue.core.pod_requests import Amounts, ContainerRequests, PodResources
from kqueue.core.quantity import format_quantity


@dataclass(frozen=True, slots=True)
class Bound:
    """The maximum or minimum of a resource, and the name of the LimitRange that sets it."""

    amount: int
    said_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """The limits of one LimitRange, or of all LimitRanges of a namespace, for one type: container or pod."""

    default: Amounts = field(default_factory=dict)
    """The limits of containers that set none."""
    default_request: Amounts = field(default_factory=dict)
    """The requests of containers that set none."""
    most: Mapping[str, Bound] = field(default_factory=dict)
    least: Mapping[str, Bound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceLimits:
    """The limits of a namespace."""

    container: ContainerLimits = field(default_factory=ContainerLimits)
    pod: ContainerLimits = field(default_factory=ContainerLimits)


NO_LIMITS = NamespaceLimits()


def merged(limits: Iterable[ContainerLimits]) -> ContainerLimits:
    """Combine limits: the first default, the smallest maximum, the largest minimum."""
    default: dict[str, int] = {}
    default_request: dict[str, int] = {}
    most: dict[str, Bound] = {}
    least: dict[str, Bound] = {}
    for one in limits:
        default = {**one.default, **default}
        default_request = {**one.default_request, **default_request}
        for resource, bound in one.most.items():
            if resource not in most or bound.amount < most[resource].amount:
                most[resource] = bound
        for resource, bound in one.least.items():
            if resource not in least or bound.amount > least[resource].amount:
                least[resource] = bound
    return ContainerLimits(default=default, default_request=default_request, most=most, least=least)


def with_defaults(pod: PodResources, limits: NamespaceLimits) -> PodResources:
    """Return the pod with the defaults of its namespace for each resource without a value."""
    if limits is NO_LIMITS:
        return pod
    return replace(
        pod,
        containers=tuple(_filled(c, limits.container) for c in pod.containers),
        init_containers=tuple(_filled(c, limits.container) for c in pod.init_containers),
        level=None if pod.level is None else _pod_level(pod, pod.level, limits.pod),
    )


def _pod_level(pod: PodResources, level: ContainerRequests, limits: ContainerLimits) -> ContainerRequests:
    """Return the pod-level amounts; a resource that no container names has its limit as request.

    Defaults of containers do not count, because the API server sets the pod's request before it applies them.
    """
    filled = _filled(level, limits)
    named = {r for c in (*pod.containers, *pod.init_containers) for r in c.effective()}
    implied = {r: amount for r, amount in filled.limits.items() if r not in named}
    return replace(filled, requests={**implied, **filled.requests})


def _filled(asked: ContainerRequests, limits: ContainerLimits) -> ContainerRequests:
    return replace(
        asked,
        requests={**limits.default_request, **asked.requests},
        limits={**limits.default, **asked.limits},
    )


def violations(pod: PodResources, limits: NamespaceLimits) -> Iterator[str]:
    """Yield one sentence for each request that the namespace forbids.  The pod must have its defaults already.

    A resource without a limit, or without a request, is not compared.
    """
    for what, containers in (("Container", pod.containers), ("Init container", pod.init_containers)):
        for position, container in enumerate(containers):
            name = f"{what} {container.name or position}"
            yield from _above_its_limit(name, container)
            yield from _out_of_bounds(name, "container", _range(container), limits.container)
    if pod.level is not None:
        yield from _above_its_limit("The pod as a whole", pod.level)
    if limits.pod.most or limits.pod.least:
        total = {resource: (amount, amount) for resource, amount in pod.total().items()}
        yield from _out_of_bounds("The pod as a whole", "pod", total, limits.pod)


def _range(container: ContainerRequests) -> dict[str, tuple[int, int]]:
    """Return, per resource, the least and the most that the container may use."""
    low, high = container.effective(), {**container.requests, **container.limits}
    return {resource: (min(low[resource], high[resource]), max(low[resource], high[resource])) for resource in low}


def _above_its_limit(name: str, asked: ContainerRequests) -> Iterator[str]:
    for resource, amount in asked.requests.items():
        limit = asked.limits.get(resource)
        if limit is not None and amount > limit:
            yield (
                f"{name} requests {format_quantity(amount, resource)} {resource}, and its limit is "
                f"{format_quantity(limit, resource)}: lower the request or raise the limit"
            )


def _out_of_bounds(
    name: str, kind: str, asked: Mapping[str, tuple[int, int]], limits: ContainerLimits
) -> Iterator[str]:
    for resource, (low, high) in asked.items():
        most, least = limits.most.get(resource), limits.least.get(resource)
        if most is not None and high > most.amount:
            yield (
                f"{name} asks for {format_quantity(high, resource)} {resource}, and LimitRange {most.said_by} allows a "
                f"{kind} at most {format_quantity(most.amount, resource)}: ask for less or change the LimitRange"
            )
        if least is not None and low < least.amount:
            yield (
                f"{name} asks for {format_quantity(low, resource)} {resource}, and LimitRange {least.said_by} wants a "
                f"{kind} to have at least {format_quantity(least.amount, resource)}: ask for more or change the "
                "LimitRange"
            )
