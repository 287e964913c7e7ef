"""Defaults and bounds of a namespace on the requests of its pods."""

from __future__ import annotations

import pytest

from kqueue.core.limit_ranges import (
    NO_LIMITS,
    Bound,
    ContainerLimits,
    NamespaceLimits,
    merged,
    violations,
    with_defaults,
)
from kqueue.core.pod_requests import ContainerRequests, PodResources


def of(requests: dict[str, int] | None = None, **limits: int) -> ContainerRequests:
    return ContainerRequests(requests or {}, limits, name="main")


def pod(*containers: ContainerRequests, init: tuple[ContainerRequests, ...] = (), overhead: int = 0) -> PodResources:
    return PodResources(containers, init, overhead={"cpu": overhead} if overhead else {})


def at_most(cpu: int) -> ContainerLimits:
    return ContainerLimits(most={"cpu": Bound(cpu, "bounds")})


def at_least(cpu: int) -> ContainerLimits:
    return ContainerLimits(least={"cpu": Bound(cpu, "bounds")})


DEFAULTS = NamespaceLimits(
    container=ContainerLimits(default={"cpu": 4000}, default_request={"cpu": 500}),
    pod=ContainerLimits(default={"memory": 9}),
)


@pytest.mark.parametrize(
    ("asked", "limits", "total"),
    [
        pytest.param(pod(of()), DEFAULTS, {"cpu": 500}, id="a-missing-request-gets-the-default-request"),
        pytest.param(pod(of({"cpu": 1})), DEFAULTS, {"cpu": 1}, id="what-is-asked-for-stays"),
        pytest.param(pod(of(cpu=2000)), DEFAULTS, {"cpu": 500}, id="the-default-request-comes-before-the-limit"),
        pytest.param(pod(of(cpu=2000)), NO_LIMITS, {"cpu": 2000}, id="without-default-the-limit-is-the-request"),
        pytest.param(
            PodResources((of(), of(), of()), level=of(cpu=4000)),
            NamespaceLimits(container=ContainerLimits(default_request={"cpu": 1000})),
            {"cpu": 4000},
            id="the-limit-of-the-pod-comes-before-the-defaults-of-its-containers",
        ),
        pytest.param(
            PodResources((of({"cpu": 3000}), of()), level=of(cpu=8000)),
            NamespaceLimits(container=ContainerLimits(default_request={"cpu": 1000})),
            {"cpu": 4000},
            id="a-container-that-asks-for-itself-comes-before-the-limit-of-the-pod",
        ),
        pytest.param(
            pod(of()),
            NamespaceLimits(container=ContainerLimits(default={"cpu": 4000})),
            {"cpu": 4000},
            id="a-default-limit-is-the-request-where-there-is-none",
        ),
        pytest.param(
            pod(of({"memory": 7})), DEFAULTS, {"memory": 7, "cpu": 500}, id="missing-is-decided-resource-by-resource"
        ),
        pytest.param(pod(of({"cpu": 1}), init=(of(),)), DEFAULTS, {"cpu": 500}, id="init-containers-get-defaults-too"),
        pytest.param(
            PodResources(level=of({"cpu": 9})),
            DEFAULTS,
            {"cpu": 9, "memory": 9},
            id="a-pod-with-requests-of-its-own-gets-those-of-pods",
        ),
        pytest.param(pod(of({"cpu": 1}), overhead=10), DEFAULTS, {"cpu": 11}, id="overhead-stays"),
    ],
)
def test_what_is_missing_is_filled_in(asked: PodResources, limits: NamespaceLimits, total: dict[str, int]) -> None:
    """Limits and requests of the namespace, before limits stand in for requests."""
    assert with_defaults(asked, limits).total() == total


def test_several_limit_ranges_hold_together() -> None:
    """The first default, the smallest maximum, the largest minimum; each bound knows who set it."""
    one = ContainerLimits(default={"cpu": 1}, most={"cpu": Bound(5, "a")}, least={"cpu": Bound(1, "a")})
    two = ContainerLimits(
        default={"cpu": 2, "memory": 3},
        default_request={"cpu": 1},
        most={"cpu": Bound(4, "b"), "memory": Bound(9, "b")},
        least={"cpu": Bound(2, "b")},
    )
    assert merged([one, two]) == ContainerLimits(
        default={"cpu": 1, "memory": 3},
        default_request={"cpu": 1},
        most={"cpu": Bound(4, "b"), "memory": Bound(9, "b")},
        least={"cpu": Bound(2, "b")},
    )
    assert merged([two, one]) == ContainerLimits(
        default={"cpu": 2, "memory": 3},
        default_request={"cpu": 1},
        most={"cpu": Bound(4, "b"), "memory": Bound(9, "b")},
        least={"cpu": Bound(2, "b")},
    )


@pytest.mark.parametrize(
    ("asked", "limits", "want"),
    [
        pytest.param(pod(of({"cpu": 2000}, cpu=2000)), NO_LIMITS, [], id="a-request-may-be-its-limit"),
        pytest.param(
            pod(of({"cpu": 2500}, cpu=2000)),
            NO_LIMITS,
            ["Container main requests 2500m cpu, and its limit is 2: lower the request or raise the limit"],
            id="a-request-above-its-limit",
        ),
        pytest.param(
            pod(init=(of({"cpu": 2500}, cpu=2000),)),
            NO_LIMITS,
            ["Init container main requests 2500m cpu, and its limit is 2: lower the request or raise the limit"],
            id="of-an-init-container",
        ),
        pytest.param(
            PodResources(level=ContainerRequests({"cpu": 3000}, {"cpu": 1000})),
            NO_LIMITS,
            ["The pod as a whole requests 3 cpu, and its limit is 1: lower the request or raise the limit"],
            id="of-the-pod",
        ),
        pytest.param(pod(of({"memory": 3}, cpu=1)), NO_LIMITS, [], id="other-resources-are-not-compared"),
        pytest.param(
            pod(ContainerRequests({"cpu": 2001})),
            NamespaceLimits(container=at_most(2000)),
            [
                "Container 0 asks for 2001m cpu, and LimitRange bounds allows a container at most 2: "
                "ask for less or change the LimitRange"
            ],
            id="more-than-a-container-may-have",
        ),
        pytest.param(
            pod(of({"cpu": 1}, cpu=3000)),
            NamespaceLimits(container=at_most(2000)),
            [
                "Container main asks for 3 cpu, and LimitRange bounds allows a container at most 2: "
                "ask for less or change the LimitRange"
            ],
            id="a-limit-counts-against-the-most",
        ),
        pytest.param(
            pod(of({"cpu": 100}, cpu=3000)),
            NamespaceLimits(container=at_least(200)),
            [
                "Container main asks for 100m cpu, and LimitRange bounds wants a container to have at least 200m: "
                "ask for more or change the LimitRange"
            ],
            id="less-than-a-container-must-have",
        ),
        pytest.param(pod(of()), NamespaceLimits(container=at_least(200)), [], id="what-is-not-named-is-not-too-little"),
        pytest.param(pod(of({"cpu": 200})), NamespaceLimits(container=at_least(200)), [], id="the-least-is-enough"),
        pytest.param(
            pod(of({"cpu": 1000}), of({"cpu": 900}), overhead=200),
            NamespaceLimits(pod=at_most(2000)),
            [
                "The pod as a whole asks for 2100m cpu, and LimitRange bounds allows a pod at most 2: "
                "ask for less or change the LimitRange"
            ],
            id="containers-and-overhead-count-together-against-the-most-of-a-pod",
        ),
        pytest.param(
            pod(of({"cpu": 100})),
            NamespaceLimits(pod=at_least(200)),
            [
                "The pod as a whole asks for 100m cpu, and LimitRange bounds wants a pod to have at least 200m: "
                "ask for more or change the LimitRange"
            ],
            id="less-than-a-pod-must-have",
        ),
        pytest.param(pod(of({"cpu": 1000})), NamespaceLimits(pod=at_most(1000)), [], id="the-most-is-allowed"),
    ],
)
def test_requests_out_of_bounds_are_named(asked: PodResources, limits: NamespaceLimits, want: list[str]) -> None:
    """Who, which resource, both numbers, and what to do."""
    assert list(violations(asked, limits)) == want
