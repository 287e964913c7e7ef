"""What workloads ask for on its way through a cycle: adjusted, refused, counted otherwise, or less than all of it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES
from kqueue.core.quota_requests import Counting, Transformation
from kqueue.jobs.infos import infos_at_start, infos_at_stop
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import Refused
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.resources import ResourceType
from kqueue.state.requests import Requests
from tests.unit.controllers.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    message_of,
    read,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled

JSON = dict[str, Any]
JOB = BatchJob()
MIN = "kueue.x-k8s.io/job-min-parallelism"


def make_limit_range(**limits: JSON) -> wire_core.LimitRange:
    """Bounds on containers of namespace `ns`."""
    items = [{"type": "Container", **limits}]
    obj = {"metadata": {"name": "bounds", "namespace": "ns"}, "spec": {"limits": items}}
    return msgspec.convert(obj, wire_core.LimitRange)


def of_container(*, pods: int = 1, minimum: int | None = None, **resources: JSON) -> list[JSON]:
    """The pod sets of a Workload of one container."""
    container = {"name": "c", "resources": resources}
    return [{"name": "main", "count": pods, "minCount": minimum, "template": {"spec": {"containers": [container]}}}]


def usage_of(world: Scheduled, name: str = "a") -> JSON:
    """What a Workload is charged, and for how many pods."""
    found = world.workload(name)
    assert found is not None
    (assigned,) = found["status"]["admission"]["podSetAssignments"]
    return {**assigned["resourceUsage"], "pods": assigned["count"]}


def reconsider(world: Scheduled, limits: wire_core.LimitRange | None, old: wire_core.LimitRange | None = None) -> None:
    """A LimitRange comes, changes or goes, and the workloads of its namespace are taken in again."""
    assert world.cache.requests.on_limit_range(old, limits) == "ns"
    for workload in world.workloads.values():
        world.intake.on_workload(workload, workload)


# --- what is charged -------------------------------------------------------------------------------------------------


async def test_defaults_of_the_namespace_are_charged(make: Callable[..., Scheduled]) -> None:
    """A container that names nothing takes what the LimitRange gives it; the Workload itself is not changed."""
    world = make()
    reconsider(world, make_limit_range(defaultRequest={"cpu": "2"}))
    world.add(make_workload(podSets=of_container(pods=3)))
    assert await world.cycle()

    assert usage_of(world) == {"cpu": "6", "pods": 3}
    found = world.workload()
    assert found is not None
    assert found["spec"]["podSets"] == of_container(pods=3)


async def test_what_is_counted_as_something_else_is_charged_as_that(make: Callable[..., Scheduled]) -> None:
    """A resource that no queue lists is no obstacle where it is counted as one that the queue has."""
    world = make()
    rule = Transformation(input="gpu", outputs={"cpu": Fraction(3, 2)}, keeps_input=False)
    world.cache.requests = Requests(Counting(excluded_prefixes=("net",), transformations={"gpu": rule}))
    requests = {"gpu": "2", "net": "1", "cpu": "1"}
    world.add(make_workload(podSets=of_container(pods=2, requests=requests)))
    assert await world.cycle()

    assert usage_of(world) == {"cpu": "8", "pods": 2}


@pytest.mark.parametrize(
    ("partial", "minimum", "want"),
    [
        pytest.param(True, 2, {"cpu": "9", "pods": 3}, id="as many pods as fit"),
        pytest.param(True, 4, None, id="not fewer than will do"),
        pytest.param(True, None, None, id="all or nothing without a minimum"),
        pytest.param(False, 2, None, id="all or nothing where the gate is off"),
    ],
)
async def test_fewer_pods_are_admitted_where_that_will_do(
    make: Callable[..., Scheduled], partial: bool, minimum: int | None, want: JSON | None
) -> None:
    """The admission tells how many."""
    world = make()
    world.cache.requests = Requests(partial_admission=partial)
    pod_sets = of_container(pods=5, minimum=minimum, requests={"cpu": "3"})
    world.add(make_workload(podSets=pod_sets))

    assert await world.cycle() is (want is not None)
    assert (usage_of(world) if want is not None else None) == want


async def test_a_job_runs_with_the_pods_that_were_admitted_and_gets_all_back(make: Callable[..., Scheduled]) -> None:
    """Three of five by the admission; the Job asks for five again once it is stopped."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "annotations": {MIN: "2"}}
    spec: JSON = {"suspend": True, "parallelism": 5, "template": template}
    job: JSON = {"metadata": metadata, "spec": spec}
    world = make()
    world.cache.requests = Requests(partial_admission=True)
    world.add(make_workload(podSets=list(JOB.pod_sets(job, JobFeatures()))))
    assert await world.cycle()
    workload = world.workload()
    assert workload is not None
    infos = infos_at_start(workload, {"default": make_flavor()}, switches=JobFeatures())
    assert not isinstance(infos, Refused)

    started = JOB.start(job, infos)
    assert not isinstance(started, Refused)
    assert (started["spec"]["suspend"], started["spec"]["parallelism"]) == (False, 3)
    running = {**job, "spec": {**spec, **started["spec"]}}
    restored = [step.patch.get("spec", {}).get("parallelism") for step in JOB.stop(running, infos_at_stop(workload))]
    assert restored[-1] == 5


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "pod_sets", "message"),
    [
        pytest.param(
            make_limit_range(max={"cpu": "2"}),
            of_container(requests={"cpu": "4"}),
            "Pod set main: Container c asks for 4 cpu, and LimitRange bounds allows a container at most 2: "
            "ask for less or change the LimitRange",
            id="more than the LimitRange allows",
        ),
        pytest.param(
            make_limit_range(default={"cpu": "2"}),
            of_container(requests={"cpu": "4"}),
            "Pod set main: Container c requests 4 cpu, and its limit is 2: lower the request or raise the limit",
            id="more than the default limit",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
async def test_requests_that_may_not_be_wait_and_heal(
    make: Callable[..., Scheduled], strategy: str, limits: wire_core.LimitRange, pod_sets: list[JSON], message: str
) -> None:
    """The Workload tells what to do; once that is done it is admitted."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(queueingStrategy=strategy)))
    reconsider(world, limits)
    world.add(make_workload(podSets=pod_sets))
    world.start()
    await world.until_quiet()
    assert status_of(world.workload(), "QuotaReserved") == ("False", "Misconfigured")
    assert message_of(world.workload(), "QuotaReserved") == message

    reconsider(world, None, limits)
    await world.until_quiet()
    assert status_of(world.workload(), "Admitted")[0] == "True"


async def test_what_runs_is_charged_to_its_hosts_by_the_newest_defaults(make: Callable[..., Scheduled]) -> None:
    """A process that starts may hear of a Workload before it hears of its LimitRange."""
    world = make()
    world.add(make_workload(podSets=of_container(), status=reserved()))
    held = world.cache.held.holding("ns/a")
    assert held is not None
    assert held.requests == {"main": {}}

    reconsider(world, make_limit_range(defaultRequest={"cpu": "2"}))
    held = world.cache.held.holding("ns/a")
    assert held is not None
    assert held.requests == {"main": {"cpu": 2000}}
    assert world.free() == 9


BAD = make_local_queue("bad", cluster_queue="bad")


@pytest.mark.parametrize(
    ("objects", "pod_sets", "reason", "message"),
    [
        pytest.param(
            [],
            of_container(requests={"cpu": "-1"}),
            "Misconfigured",
            "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: must not be negative; write 0 or more",
            id="a negative request",
        ),
        pytest.param(
            [],
            of_container(requests={"cpu": "plenty"}),
            "Misconfigured",
            "'plenty' is not a quantity: write a number with an optional suffix",
            id="a request that is no quantity",
        ),
        pytest.param(
            [],
            of_container(requests={"cpu": "4"}, limits={"cpu": "3"}),
            "Misconfigured",
            "lower the request or raise the limit",
            id="a request above its limit",
        ),
        pytest.param([], of_container(requests={"cpu": "5000"}), "ExceedsMaxQuota", "5k cpu", id="more than there is"),
        pytest.param(
            [],
            of_container(requests={"cpu": "1", "gpu": "1"}),
            "NoMatchingFlavor",
            "gpu",
            id="a resource that its queue does not have",
        ),
    ],
)
async def test_a_workload_that_cannot_be_admitted_is_told_why_and_others_go_on(
    make: Callable[..., Scheduled],
    objects: list[tuple[ResourceType, JSON]],
    pod_sets: list[JSON],
    reason: str,
    message: str,
) -> None:
    """It waits with a reason; those of other queues, and those behind it, are admitted."""
    world = make((CLUSTER_QUEUES, make_cluster_queue("bad")), (LOCAL_QUEUES, BAD), *objects)
    world.add(
        make_workload(queue="bad", podSets=pod_sets),
        make_workload("behind", queue="bad", minute=1),
        make_workload("other", minute=1),
    )
    world.start()
    await world.until_quiet()

    assert status_of(world.workload(), "QuotaReserved") == ("False", reason)
    assert message in message_of(world.workload(), "QuotaReserved")
    assert sorted(world.observed.reservations) == ["behind", "other"]


def quota(**fields: str) -> JSON:
    """A ClusterQueue with one quota as its user wrote it."""
    queue = make_cluster_queue("bad")
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] |= fields
    return queue


def make_cohort(name: str, parent: str) -> tuple[ResourceType, JSON]:
    return COHORTS, {"metadata": {"name": name}, "spec": {"parentName": parent}}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param(
            [(CLUSTER_QUEUES, quota(nominalQuota="many"))], "'many' is not a quantity", id="quota of no number"
        ),
        pytest.param(
            [(CLUSTER_QUEUES, quota(nominalQuota="-1"))], "must not be negative; write 0 or more", id="a negative quota"
        ),
        pytest.param(
            [(CLUSTER_QUEUES, make_cluster_queue("bad", cpus={"gone": 1}))],
            "ResourceFlavor gone not found; create it",
            id="a flavor that does not exist",
        ),
        pytest.param(
            [
                (CLUSTER_QUEUES, make_cluster_queue("bad", cohortName="one")),
                make_cohort("one", "two"),
                make_cohort("two", "one"),
            ],
            "its cohort tree has a cycle; correct a Cohort's spec.parentName",
            id="cohorts in a circle",
        ),
        pytest.param(
            [(CLUSTER_QUEUES, make_cluster_queue("bad", cohortName="one")), make_cohort("one", "one")],
            "its cohort tree has a cycle; correct a Cohort's spec.parentName",
            id="a cohort above itself",
        ),
        pytest.param(
            [(CLUSTER_QUEUES, make_cluster_queue("bad", fairSharing={"weight": "heavy"}))],
            "spec.fairSharing.weight: 'heavy' is not a quantity",
            id="a weight of no number",
        ),
    ],
)
async def test_a_queue_that_cannot_admit_says_why_and_others_go_on(
    make: Callable[..., Scheduled], objects: list[tuple[ResourceType, JSON]], message: str
) -> None:
    """What the API server let pass stops one queue, and no other."""
    cohorts = {obj["metadata"]["name"]: obj for resource, obj in objects if resource is COHORTS}
    world = make(*[pair for pair in objects if pair[0] is not COHORTS], (LOCAL_QUEUES, BAD))
    world.add(make_workload(queue="bad"), make_workload("other", minute=1))
    for cohort in cohorts.values():
        world.intake.on_cohort(None, read(wire.Cohort, cohort))
    world.start()
    await world.until_quiet()

    inactive = world.cache.quota.inactive("bad")
    assert inactive is not None
    assert message in inactive.message
    assert world.observed.reservations == ["other"]
    assert world.queues.is_known("ns/a")
