"""Elastic RayJobs and RayServices have the numbers of workers that their RayCluster has."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from kqueue.jobs.kind import Refused, ScaledKind
from kqueue.jobs.others import Reference, completed
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.ray import CLUSTER, JOB, SERVICE, RayAbove
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name_of
from kqueue.kinds import FRAMEWORKS, RAY_CLUSTERS
from tests.unit.jobs.builders import JSON, UID, prefixed
from tests.unit.jobs.test_ray import ELASTIC, counts, group, info, make

pytestmark = pytest.mark.proves("Ray", "workload slices")

ON = JobFeatures()
EACH = pytest.mark.parametrize("kind", [JOB, SERVICE], ids=lambda kind: kind.gvk.kind)
NAMED = {JOB: {"rayClusterName": "below"}, SERVICE: {"activeServiceStatus": {"rayClusterName": "below"}}}
BELOW = Reference(RAY_CLUSTERS, "team", "below")


def running(kind: RayAbove, *groups: JSON, **more: Any) -> JSON:
    """An elastic object that runs, and scales by itself."""
    return make(
        kind,
        *(groups or (group(replicas=2),)),
        **{"suspend": False, "annotations": ELASTIC, "status": NAMED[kind], "enableInTreeAutoscaling": True, **more},
    )


def ray_cluster(*groups: JSON, owner: str = UID, controller: bool = True, generation: int = 7) -> JSON:
    """The RayCluster of the object."""
    of = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "sample", "uid": owner, "controller": controller}
    meta = {"name": "below", "namespace": "team", "generation": generation, "ownerReferences": [of]}
    return {"metadata": meta, "spec": {"workerGroupSpecs": list(groups)}}


def over(job: JSON, cluster: JSON | None) -> JSON:
    return completed(job, {BELOW: cluster})


FIVE = ray_cluster({"groupName": "small", "replicas": 5})


@EACH
def test_an_object_that_scales_by_itself_has_the_workers_of_its_cluster(kind: RayAbove) -> None:
    """By the name of the group; the hosts of a replica are its own."""
    job = running(kind, group("Small", replicas=1, numOfHosts=2), group("big", replicas=1))
    below = ray_cluster({"groupName": "big", "replicas": 0}, {"groupName": "Small", "replicas": 3, "numOfHosts": 9})
    assert counts(kind, over(job, below)) == [("head", 1), ("small", 6), ("big", 0)]


@EACH
@pytest.mark.parametrize(
    "below",
    [
        None,
        ray_cluster(),
        ray_cluster({"groupName": "small"}),
        ray_cluster({"groupName": "other", "replicas": 5}),
        ray_cluster({"groupName": "small", "replicas": -1}),
        ray_cluster({"groupName": "small", "replicas": 2**31}),
        ray_cluster({"groupName": "small", "replicas": "5"}),
        ray_cluster({"groupName": "small", "replicas": 5}, owner="another"),
        ray_cluster({"groupName": "small", "replicas": 5}, controller=False),
    ],
    ids=["gone", "no groups", "no count", "other group", "negative", "too many", "a text", "of another", "owned only"],
)
def test_without_a_count_in_its_own_cluster_an_object_has_its_own(kind: RayAbove, below: JSON | None) -> None:
    assert counts(kind, over(running(kind), below)) == [("head", 1), ("small", 2)]


@EACH
@pytest.mark.parametrize(
    "change",
    [{"suspend": True}, {"annotations": {}}, {"enableInTreeAutoscaling": False}, {"status": {}}],
    ids=["suspended", "not elastic", "scaled by its user", "no cluster yet"],
)
def test_other_objects_read_no_cluster(kind: RayAbove, change: JSON) -> None:
    """A suspended object starts with its own numbers again."""
    job = running(kind, **change)
    assert [reference for reference in kind.reads(job) if reference.name] == []
    assert counts(kind, over(job, FIVE)) == [("head", 1), ("small", 2)]


@EACH
def test_the_cluster_is_among_what_the_kind_reads(kind: RayAbove) -> None:
    assert kind.reads(running(kind)) == (BELOW,)
    assert FRAMEWORKS[kind.framework].reads == (BELOW.kind,)
    below = FRAMEWORKS[CLUSTER.framework]
    assert (below.group, below.version, below.kind, below.plural) == (
        RAY_CLUSTERS.group,
        RAY_CLUSTERS.version,
        RAY_CLUSTERS.kind,
        RAY_CLUSTERS.plural,
    )


@EACH
def test_the_numbers_of_the_cluster_are_not_written_to_the_object(kind: RayAbove) -> None:
    """Neither by a start nor by a stop."""
    job = over(running(kind), FIVE)
    infos = [info("head", count=1), info("small", count=5)]
    start = kind.start(job, infos)
    assert not isinstance(start, Refused)
    (stop,) = kind.stop(apply_merge_patch(job, start), infos)
    for patch in (start, stop.patch):
        assert "'replicas': 5" not in str(patch)


@EACH
def test_the_generation_of_the_cluster_is_kept_in_an_annotation(kind: RayAbove) -> None:
    """It is a part of the name of the slice that is made for it."""
    assert isinstance(kind, ScaledKind)
    job = over(running(kind), FIVE)
    job["metadata"]["generation"] = 3
    assert kind.revise(job) == {"metadata": {"annotations": prefixed(raycluster_generation="7")}}
    named = apply_merge_patch(job, kind.revise(job))
    assert (kind.revise(named), kind.revise(over(running(kind), None))) == ({}, {})
    for one, extra in ((job, "3"), (named, "3_7")):
        told = "\n".join([kind.gvk.kind, "ray.io", "sample", UID, extra])
        name = f"{kind.gvk.kind.lower()}-sample-{sha1(told.encode()).hexdigest()[:5]}"
        assert workload_name_of(kind, one, ON) == name


def test_the_annotation_says_nothing_on_other_objects() -> None:
    """Neither on a RayCluster, nor on a job that is not elastic."""
    for kind, own in ((CLUSTER, ELASTIC), (JOB, {})):
        plain, marked = (make(kind, annotations={**own, **more}) for more in ({}, prefixed(raycluster_generation="7")))
        assert workload_name_of(kind, plain, ON) == workload_name_of(kind, marked, ON)


def test_a_name_that_an_older_slice_has_is_not_given_again() -> None:
    """The generations of a new RayCluster begin at 1 again."""
    job = running(JOB, annotations={**ELASTIC, **prefixed(raycluster_generation="2")})
    given: set[str] = set()
    for _ in range(4):
        given.add(workload_name_of(JOB, job, ON, taken=given))
    assert len(given) == 4
