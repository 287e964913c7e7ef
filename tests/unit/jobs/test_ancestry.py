"""Owners are followed to the topmost one that is queued itself."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.ancestry import (
    AncestryError,
    MissingOwnerError,
    OwnerKind,
    has_known_owner,
    managed_ancestor,
    owner_kinds,
)
from kqueue.jobs.kind import GroupVersionKind

JSON = dict[str, Any]
API = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "AppWrapper": "workload.codeflare.dev/v1beta2",
    "ReplicaSet": "apps/v1",
    "Pod": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Train": "example.com/v1",
    "Other": "example.com/v1",
}


def make(kind: str, *, queue: str = "", owner: JSON | None = None, uid: str = "", **annotations: str) -> JSON:
    """An object named and identified by its kind, in namespace `ns`."""
    meta: JSON = {"name": kind.lower(), "namespace": "ns", "uid": uid or f"uid-{kind}"}
    if queue:
        meta["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    if annotations:
        meta["annotations"] = {f"kueue.x-k8s.io/{k.replace('_', '-')}": v for k, v in annotations.items()}
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Owner", "name": "not-a-controller", "uid": "x"},
            {
                "apiVersion": API[owner["kind"]],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            },
        ]
    return {"apiVersion": API[kind], "kind": kind, "metadata": meta}


def kind_of(obj: JSON) -> tuple[str, str]:
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


JOB = ("batch", "Job")


class Server:
    """Objects by kind and name; counts the look-ups."""

    def __init__(self, *objects: JSON) -> None:
        self.objects = {(o["kind"], o["metadata"]["name"]): o for o in objects}
        self.asked: list[str] = []

    async def fetch(self, kind: OwnerKind, namespace: str, name: str) -> JSON | None:
        assert namespace == "ns"
        self.asked.append(f"{kind.resource}/{name}")
        return self.objects.get((kind.gvk.kind, name))


FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "workload.codeflare.dev/appwrapper")


async def ancestor_of(
    *chain: JSON, frameworks: tuple[str, ...] = FRAMEWORKS, all_: bool = False, external: tuple[str, ...] = ()
) -> str:
    """Kind of the ancestor of the first; empty when there is none."""
    found = await managed_ancestor(
        chain[0],
        child=kind_of(chain[0]),
        known=owner_kinds(frameworks, external),
        manages_all=all_,
        fetch=Server(*chain[1:]).fetch,
    )
    return "" if found is None else found.gvk.kind


def family(*, job: str = "", job_set: str = "", wrapper: str = "") -> tuple[JSON, ...]:
    """Job, JobSet, AppWrapper; each with a queue or none."""
    top = make("AppWrapper", queue=wrapper)
    middle = make("JobSet", queue=job_set, owner=top)
    return make("Job", queue=job, owner=middle), middle, top


@pytest.mark.parametrize(
    ("chain", "frameworks", "off", "on"),
    [
        pytest.param(family(), FRAMEWORKS, "", "AppWrapper", id="nobody names a queue"),
        pytest.param(family(job="q", job_set="q"), FRAMEWORKS, "JobSet", "AppWrapper", id="the JobSet does"),
        pytest.param(family(wrapper="q"), (FRAMEWORKS[0], FRAMEWORKS[2]), "AppWrapper", "AppWrapper", id="through one that is switched off"),
        pytest.param(family(job_set="q"), FRAMEWORKS[:1], "", "", id="what is switched off never counts"),
        pytest.param(family(job_set="q", wrapper="q"), FRAMEWORKS, "AppWrapper", "AppWrapper", id="the topmost counts"),
        pytest.param((make("Job"),), FRAMEWORKS, "", "", id="no owner"),
    ],
)  # fmt: skip
async def test_the_topmost_managed_owner_counts(
    chain: tuple[JSON, ...], frameworks: tuple[str, ...], off: str, on: str
) -> None:
    """With and without manageJobsWithoutQueueName."""
    assert await ancestor_of(*chain, frameworks=frameworks) == off
    assert await ancestor_of(*chain, frameworks=frameworks, all_=True) == on


async def test_what_is_said_of_an_ancestor() -> None:
    """Name, UID, queue, and whether it is elastic."""
    top = make("JobSet", queue="q", elastic_job="true")

    found = await managed_ancestor(
        make("Job", owner=top), child=JOB, known=owner_kinds(FRAMEWORKS), manages_all=False, fetch=Server(top).fetch
    )

    assert found is not None
    assert (found.namespace, found.name, found.uid) == ("ns", "jobset", "uid-JobSet")
    assert (found.queue_name, found.elastic) == ("q", True)


async def test_the_walk_ends_at_an_unknown_kind_without_looking_it_up() -> None:
    """Only kinds that are known are asked for; an external framework is one."""
    other = make("Other", queue="q")
    server, job = Server(other), make("Job", owner=other)

    known = owner_kinds(FRAMEWORKS)
    assert await managed_ancestor(job, child=JOB, known=known, manages_all=True, fetch=server.fetch) is None
    assert (server.asked, has_known_owner(job, owner_kinds(FRAMEWORKS))) == ([], False)
    assert await ancestor_of(job, other, external=("Other.v1.example.com",)) == "Other"


async def test_a_kind_of_a_user_is_walked_through_as_declared() -> None:
    """Its plural is the declared one."""
    train = make("Train", queue="q")
    declared = OwnerKind(gvk=GroupVersionKind("example.com", "v1", "Train"), resource="trainen", queued=True)
    server = Server(train)

    found = await managed_ancestor(
        make("Job", owner=train),
        child=JOB,
        known=owner_kinds(FRAMEWORKS, more=[declared]),
        manages_all=False,
        fetch=server.fetch,
    )

    assert found is not None
    assert server.asked == ["trainen/train"]


async def test_another_object_of_the_owners_name_is_not_the_owner() -> None:
    """The UID decides: the walk ends there."""
    owner = make("JobSet", queue="q")
    assert await ancestor_of(make("Job", owner=owner), make("JobSet", queue="q", uid="later")) == ""


@pytest.mark.parametrize(
    ("child", "owner"),
    [
        pytest.param("Job", "Deployment", id="a Deployment makes no Jobs"),
        pytest.param("Pod", "Deployment", id="a Deployment makes ReplicaSets, no pods"),
        pytest.param("JobSet", "StatefulSet", id="a StatefulSet makes no JobSets"),
        pytest.param("Pod", "JobSet", id="a JobSet makes Jobs, no pods"),
        pytest.param("Pod", "Pod", id="a pod has no controller"),
    ],
)
async def test_an_owner_excuses_only_what_its_controller_makes(child: str, owner: str) -> None:
    """Any user can write a reference to an object of theirs: one of a wrong kind excuses nothing."""
    everything = ("batch/job", "jobset.x-k8s.io/jobset", "deployment", "statefulset", "pod")
    top = make(owner, queue="q", uid="top")

    assert await ancestor_of(make(child, owner=top), top, frameworks=everything) == ""


async def test_the_walk_goes_on_above_a_pod() -> None:
    """A pod excuses nothing, but what has made the pod may: a driver makes the executors of an application."""
    top = make("Other", queue="q")
    driver = make("Pod", owner=top, uid="driver")
    executor = make("Pod", owner=driver, uid="executor")

    assert await ancestor_of(executor, driver, top, external=("Other.v1.example.com",)) == "Other"


async def test_a_missing_owner_is_an_error() -> None:
    """It may be on its way out with all that it owns; deciding without it could start what must not run."""
    with pytest.raises(MissingOwnerError, match="JobSet jobset, which owns this, does not exist"):
        await ancestor_of(make("Job", owner=make("JobSet")))


async def test_owners_that_own_each_other_are_an_error() -> None:
    """The walk ends, and says so."""
    wrapper = make("AppWrapper", owner=make("Other"))
    other = make("Other", owner=wrapper)

    with pytest.raises(AncestryError, match="own each other") as caught:
        await ancestor_of(make("Job", owner=other), other, wrapper, external=("Other.v1.example.com",))

    assert caught.value.reason == "OwnerLoop"


@pytest.mark.parametrize(("levels", "fine"), [(10, True), (11, False)])
async def test_ten_levels_are_followed(levels: int, fine: bool) -> None:
    """Not more: whoever nests deeper is told so."""
    top = make("AppWrapper", queue="q", uid="0")
    top["metadata"]["name"] = "0"
    chain = [top]
    for number in range(1, levels):
        below = make("AppWrapper", owner=chain[-1], uid=str(number))
        below["metadata"]["name"] = str(number)
        chain.append(below)
    job = make("Job", owner=chain[-1])

    if fine:
        assert await ancestor_of(job, *chain) == "AppWrapper"
        return
    with pytest.raises(AncestryError, match="more than 10 levels") as caught:
        await ancestor_of(job, *chain)
    assert caught.value.reason == "JobNestingTooDeep"
