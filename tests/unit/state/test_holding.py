"""What a workload takes of hosts, as preemption sees it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kqueue.core.assignment import Domain, TopologyAssignment
from kqueue.core.topology import HOSTNAME
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.state.holding import Holding

Taken = Mapping[str, tuple[DomainUsage, ...]]


def pods(name: str, count: int, *, on: str | None, **flavors: str) -> PodSetAssignment:
    """Pods of a pod set, on one host or, None, without domains; flavors by resource."""
    topology = TopologyAssignment((HOSTNAME,), (Domain((on,), count),)) if on is not None else None
    return PodSetAssignment(name=name, count=count, flavors=flavors, usage=dict.fromkeys(flavors, 1), topology=topology)


def seen(*pod_sets: PodSetAssignment) -> tuple[Taken, Mapping[str, Taken]]:
    """Domains by flavor where `red`, `blue` and `green` have topologies; every pod requests one cpu."""
    holding = Holding(
        key="ns/w",
        uid="w",
        local_queue="ns/main",
        admission=Admission(queue="q", pod_sets=pod_sets),
        requests={pod_set.name: {"cpu": 1} for pod_set in pod_sets},
        admitted=True,
        assumed=False,
    )
    view = holding.view(frozenset({"red", "blue", "green"}))
    return view.domains, view.further


def usage(host: str, count: int) -> DomainUsage:
    return DomainUsage((host,), {"cpu": 1}, count)


@pytest.mark.parametrize(
    ("pod_sets", "domains", "further"),
    [
        pytest.param([pods("a", 2, on="h1", cpu="red")], {"red": (usage("h1", 2),)}, {}, id="in the one flavor"),
        pytest.param([pods("a", 2, on=None, cpu="red")], {}, {}, id="none without domains"),
        pytest.param([pods("a", 2, on="h1", cpu="plain")], {}, {}, id="none in a flavor that has no topology"),
        pytest.param(
            [pods("a", 2, on="h1", cpu="red", gpu="plain")],
            {"red": (usage("h1", 2),)},
            {},
            id="in the one of two flavors that has a topology",
        ),
        pytest.param(
            [pods("a", 2, on="h1", cpu="red", gpu="blue", memory="green")],
            {"blue": (usage("h1", 2),)},
            {"blue": {"green": (usage("h1", 2),), "red": (usage("h1", 2),)}},
            id="counted in one of several flavors, and known of the others",
        ),
        pytest.param(
            [
                pods("a", 1, on="h1", cpu="red"),
                pods("b", 2, on="h2", cpu="blue", gpu="red"),
                pods("c", 3, on="h3", cpu="blue"),
            ],
            {"red": (usage("h1", 1),), "blue": (usage("h2", 2), usage("h3", 3))},
            {"blue": {"red": (usage("h2", 2),)}},
            id="pod set by pod set",
        ),
    ],
)
def test_hosts_are_known_by_the_flavors_that_pods_were_assigned(
    pod_sets: list[PodSetAssignment], domains: Taken, further: Mapping[str, Taken]
) -> None:
    """Pods of several flavors with topologies are counted in the first by name."""
    assert seen(*pod_sets) == (domains, further)
