"""JobSet: what it tells of itself, how it is started and given back, and what is refused at its submission."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.infos import infos_at_start, infos_at_stop
from kqueue.jobs.jobset import JobSet
from kqueue.jobs.kind import Finished, JobContext, JobKind, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_for
from tests.unit.jobs.builders import JSON, UID, make_template, prefixed, pruned

JOBSET: JobKind = JobSet()
ON = JobFeatures()
HERE = JobContext()
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
RACK = prefixed(podset_required_topology="rack")
TEMPLATE = "spec.replicatedJobs[{}].template.spec.template.metadata.annotations"


def replicated(
    name: str = "workers",
    *,
    replicas: int | None = 2,
    pods: int | None = 2,
    annotations: dict[str, str] | None = None,
    template: JSON | None = None,
    outer: dict[str, str] | None = None,
    **job: Any,
) -> JSON:
    """`replicas` child Jobs of `pods` pods each; None leaves the field out."""
    spec: JSON = {"template": template or make_template(annotations=annotations or {}), **job}
    if pods is not None:
        spec |= {"parallelism": pods, "completions": pods, **job}
    child: JSON = {"spec": spec, **({"metadata": {"annotations": outer}} if outer else {})}
    return {"name": name, "template": child, **({} if replicas is None else {"replicas": replicas})}


def make_jobset(
    *jobs: JSON,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A queued, suspended JobSet: a leader of one pod and two times two workers, unless told otherwise."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "set",
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {
            "suspend": True,
            "replicatedJobs": list(jobs or (replicated("leader", replicas=1, pods=1), replicated())),
            **spec,
        },
        "status": status or {},
    }


def counts(**by_name: JSON) -> JSON:
    """A status with these counts per replicated job."""
    return {"replicatedJobsStatus": [{"name": name, **numbers} for name, numbers in by_name.items()]}


def admitted(jobset: JSON, *, placed: bool = True) -> JSON:
    """Its Workload, with every pod set on flavor `gpu`."""
    workload = workload_for(JOBSET, jobset, priority=Priority(), switches=ON)
    place = {"topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": []}} if placed else {}
    assigned = [{"name": p["name"], "flavors": {"cpu": "gpu"}, **place} for p in workload["spec"]["podSets"]]
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    workload["status"] = {
        "conditions": conditions,
        "admission": {"clusterQueue": "cluster", "podSetAssignments": assigned},
    }
    return workload


def infos_of(workload: JSON) -> tuple[PodSetInfo, ...]:
    flavors: dict[str, JSON] = {
        "gpu": {"spec": {"nodeLabels": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    }
    infos = infos_at_start(workload, flavors, switches=ON)
    assert not isinstance(infos, Refused)
    return infos


# --- to a Workload ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "count"),
    [
        pytest.param(replicated(replicas=3, pods=2), 6, id="replicas-times-pods"),
        pytest.param(replicated(replicas=None, pods=None), 1, id="both-default-to-one"),
        pytest.param(replicated(replicas=2, pods=None, parallelism=3), 6, id="completions-default-to-parallelism"),
        pytest.param(replicated(replicas=2, parallelism=4, completions=3), 6, id="fewer-completions-mean-fewer-pods"),
        pytest.param(replicated(replicas=2, parallelism=2, completions=9), 4, id="more-completions-run-later"),
        pytest.param(replicated(replicas=0), 0, id="no-replicas-no-pods"),
        pytest.param(replicated(replicas=2, pods=0), 0, id="child-jobs-without-pods"),
    ],
)
@pytest.mark.proves("JobSet", "queueing")
def test_a_pod_set_has_the_pods_that_run_at_the_same_time(job: JSON, count: int) -> None:
    """Replicas times the smaller of parallelism and completions."""
    (pod_set,) = JOBSET.pod_sets(make_jobset(job), ON)

    assert pod_set["count"] == count


@pytest.mark.proves("JobSet", "ranks")
def test_each_replicated_job_is_a_pod_set_that_numbers_its_pods_twice() -> None:
    """By child Job and by index in it; names are lower case; requests are per template."""
    leader = replicated("Leader", replicas=1, pods=1, annotations=prefixed(podset_preferred_topology="block"))
    workers = replicated(
        "workers", replicas=3, annotations=prefixed(podset_slice_required_topology="rack", podset_slice_size="2")
    )
    one, other = JOBSET.pod_sets(make_jobset(leader, workers), ON)
    index = {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
    }

    assert (one["name"], other["name"]) == ("leader", "workers")
    assert one["topologyRequest"] == {"preferred": "block", "subGroupCount": 1, **index}
    assert other["topologyRequest"] == {
        "podSetSliceRequiredTopology": "rack",
        "podSetSliceSize": 2,
        "subGroupCount": 3,
        **index,
    }


def test_a_group_is_named_in_the_request_of_both_its_pod_sets() -> None:
    """So that leader and workers come into one domain together."""
    grouped = {**RACK, **prefixed(podset_group_name="team")}
    jobset = make_jobset(replicated("leader", replicas=1, pods=1, annotations=grouped), replicated(annotations=grouped))

    assert [p["topologyRequest"]["podSetGroupName"] for p in JOBSET.pod_sets(jobset, ON)] == ["team", "team"]
    assert not JOBSET.problems(jobset, None, HERE)


def test_templates_are_taken_as_they_are() -> None:
    """No label is taken away, not even one that a Job controller would write."""
    labels = {"app": "x", "job-name": "mine"}
    (pod_set,) = JOBSET.pod_sets(make_jobset(replicated(template=make_template(labels=labels))), ON)

    assert pod_set["template"]["metadata"] == {"labels": labels}


def test_what_cannot_be_read_is_an_error_that_names_it() -> None:
    """The webhook refuses such JobSets; where it was off, the reconciler must not guess."""
    broken = replicated(annotations=prefixed(podset_unconstrained_topology="maybe"))

    with pytest.raises(InvalidObjectError, match=r"JobSet team/set .*replicatedJobs\[0\].*podset-unconstrained"):
        JOBSET.pod_sets(make_jobset(broken), ON)
    with pytest.raises(InvalidObjectError, match=r"replicatedJobs\[1\]\.name.*another pod set"):
        JOBSET.pod_sets(make_jobset(replicated("a"), replicated("A")), ON)


# --- start and stop ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("JobSet", "start with topology")
def test_a_start_adds_to_every_template_what_its_pod_set_got() -> None:
    """Un-suspended in one patch; each template has its own pod set's name, and all of them the gate."""
    jobset = make_jobset()
    workload = admitted(jobset)
    patch = JOBSET.start(jobset, infos_of(workload))
    assert isinstance(patch, dict)
    assert patch.keys() == {"spec"}
    started = apply_merge_patch(jobset, patch)
    templates = [r["template"]["spec"]["template"] for r in started["spec"]["replicatedJobs"]]

    assert started["spec"]["suspend"] is False
    assert [t["metadata"]["labels"]["kueue.x-k8s.io/podset"] for t in templates] == ["leader", "workers"]
    for template in templates:
        assert template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == workload["metadata"]["name"]
        assert template["spec"]["nodeSelector"] == {"pool": "gpu"}
        assert template["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert JOBSET.start(started, infos_of(workload)) == {}


@pytest.mark.proves("JobSet", "stop and restore")
def test_a_stop_gives_back_what_the_user_wrote() -> None:
    """One step suspends and restores; a second stop has nothing left to do."""
    template = make_template(labels={"a": "b"}, annotations=RACK, nodeSelector={"zone": "z"})
    jobset = make_jobset(replicated(template=template), replicated("other"))
    workload = admitted(jobset)
    patch = JOBSET.start(jobset, infos_of(workload))
    assert isinstance(patch, dict)
    running = apply_merge_patch(jobset, patch)
    (step,) = JOBSET.stop(running, infos_at_stop(workload))
    stopped = apply_merge_patch(running, step.patch)

    assert step.suspends
    assert pruned(stopped) == pruned(jobset)
    assert JOBSET.stop(stopped, infos_at_stop(workload)) == ()


def test_a_stop_for_other_pod_sets_only_suspends() -> None:
    """What was there before is not known, so nothing is guessed."""
    running = make_jobset(suspend=False)

    (step,) = JOBSET.stop(running, (PodSetInfo(name="leader"),))
    assert step.patch == {"spec": {"suspend": True}}
    assert JOBSET.stop(running, ()) == (step,)


def test_a_template_left_changed_by_a_suspended_jobset_is_restored_without_a_word() -> None:
    """A user suspended it: the restoration is no second stop."""
    jobset = make_jobset()
    workload = admitted(jobset)
    patch = JOBSET.start(jobset, infos_of(workload))
    assert isinstance(patch, dict)
    suspended = apply_merge_patch(apply_merge_patch(jobset, patch), {"spec": {"suspend": True}})

    (step,) = JOBSET.stop(suspended, infos_at_stop(workload))
    assert not step.suspends
    assert pruned(apply_merge_patch(suspended, step.patch)) == pruned(jobset)


@pytest.mark.parametrize(
    ("jobset", "infos", "reason"),
    [
        pytest.param(make_jobset(), (PodSetInfo(name="leader"),), "2 pod sets and the admission has 1", id="too-few"),
        pytest.param(
            make_jobset(replicated(template=make_template(nodeSelector={"pool": "cpu"})), replicated("b")),
            infos_of(admitted(make_jobset(replicated(), replicated("b")))),
            r"replicatedJobs[0].template.spec.template: nodeSelector entry pool is 'cpu'",
            id="a-contradiction-in-one-template",
        ),
        pytest.param(
            make_jobset(annotations={EXCLUSIVE: "rack"}),
            infos_of(admitted(make_jobset())),
            f"metadata.annotations[{EXCLUSIVE}] places pods on its own",
            id="exclusive-placement-on-chosen-hosts",
        ),
    ],
)
def test_what_cannot_be_started_says_why(jobset: JSON, infos: tuple[PodSetInfo, ...], reason: str) -> None:
    """Nothing is started in part."""
    refused = JOBSET.start(jobset, infos)

    assert isinstance(refused, Refused)
    assert reason in str(refused)


def test_exclusive_placement_starts_on_flavors_without_topology() -> None:
    """There it is the JobSet controller alone that places; and only the replicated job that has it is concerned."""
    jobset = make_jobset(annotations={EXCLUSIVE: "rack"})
    one = make_jobset(replicated("a", outer={EXCLUSIVE: "rack"}), replicated("b"))
    without, placed = infos_of(admitted(one, placed=False)), infos_of(admitted(one))

    assert isinstance(JOBSET.start(jobset, infos_of(admitted(jobset, placed=False))), dict)
    assert isinstance(JOBSET.start(one, (without[0], placed[1])), dict)
    assert isinstance(JOBSET.start(one, (placed[0], without[1])), Refused)


# --- what its status says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobset", "active"),
    [
        pytest.param(make_jobset(), False, id="nothing-known-yet"),
        pytest.param(make_jobset(status=counts(leader={"active": 0}, workers={"active": 1})), True, id="one-child"),
        pytest.param(make_jobset(status=counts(leader={"suspended": 1})), False, id="all-suspended"),
        pytest.param(
            make_jobset(status={"conditions": [{"type": "Suspended", "status": "False"}]}),
            True,
            id="told-to-stop-and-not-noticed-yet",
        ),
        pytest.param(
            make_jobset(status={"conditions": [{"type": "Suspended", "status": "True"}]}), False, id="stopped"
        ),
        pytest.param(
            make_jobset(suspend=False, status={"conditions": [{"type": "Suspended", "status": "False"}]}),
            False,
            id="resumed-without-pods-yet",
        ),
    ],
)
def test_it_is_active_until_the_jobset_controller_has_seen_the_last_pod_go(jobset: JSON, active: bool) -> None:
    """Counts of child Jobs matter, and whether they can be older than the stop."""
    assert JOBSET.active(jobset) is active


@pytest.mark.parametrize(
    ("conditions", "end"),
    [
        pytest.param([], None, id="no-condition"),
        pytest.param([{"type": "Suspended", "status": "True"}], None, id="another-condition"),
        pytest.param([{"type": "Completed", "status": "False"}], None, id="a-false-one"),
        pytest.param(
            [{"type": "Completed", "status": "True", "message": "ok"}], Finished("ok", success=True), id="completed"
        ),
        pytest.param(
            [{"type": "Failed", "status": "True", "message": "no"}], Finished("no", success=False), id="failed"
        ),
    ],
)
@pytest.mark.proves("JobSet", "finished")
def test_a_jobset_ends_by_condition(conditions: list[JSON], end: Finished | None) -> None:
    """Completed or Failed, with its message."""
    assert JOBSET.finished(make_jobset(status={"conditions": conditions})) == end


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        pytest.param({}, False, id="nothing-yet"),
        pytest.param(counts(leader={"ready": 1}, workers={"ready": 1}), False, id="one-child-missing"),
        pytest.param(counts(leader={"ready": 1}, workers={"ready": 2}), True, id="all-ready"),
        pytest.param(counts(leader={"succeeded": 1}, workers={"ready": 2}), True, id="some-succeeded"),
        pytest.param(counts(leader={"active": 1}, workers={"active": 2}), False, id="active-is-not-ready"),
    ],
)
@pytest.mark.proves("JobSet", "pods ready")
def test_pods_are_ready_when_all_child_jobs_are(status: JSON, ready: bool) -> None:
    """Child Jobs count, not pods."""
    assert JOBSET.pods_ready(make_jobset(status=status)) is ready


@pytest.mark.parametrize(
    ("status", "spec", "reclaimable"),
    [
        pytest.param({}, {}, {}, id="no-status"),
        pytest.param(counts(workers={"succeeded": 1}), {}, {"workers": 2}, id="pods-of-one-child"),
        pytest.param(
            counts(leader={"succeeded": 1}, workers={"succeeded": 2}), {}, {"leader": 1, "workers": 4}, id="all"
        ),
        pytest.param(counts(workers={"succeeded": 3}), {}, {}, id="more-than-there-are"),
        pytest.param(counts(workers={"failed": 1}), {}, {}, id="failures-do-not-count"),
        pytest.param(
            counts(workers={"succeeded": 1}), {"failurePolicy": {"maxRestarts": 2}}, {}, id="it-could-all-run-again"
        ),
        pytest.param(
            {**counts(workers={"succeeded": 1}), "restarts": 2},
            {"failurePolicy": {"maxRestarts": 2}},
            {"workers": 2},
            id="no-restart-is-left",
        ),
        pytest.param(
            {**counts(workers={"succeeded": 1}), "restarts": 5, "restartsCountTowardsMax": 1},
            {"failurePolicy": {"maxRestarts": 2}},
            {},
            id="not-every-restart-counts",
        ),
        pytest.param(
            counts(workers={"succeeded": 1}),
            {"failurePolicy": {"rules": [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]}},
            {},
            id="a-rule-restarts-without-limit",
        ),
    ],
)
@pytest.mark.proves("JobSet", "reclaimable pods")
def test_succeeded_child_jobs_give_their_quota_back(status: JSON, spec: JSON, reclaimable: dict[str, int]) -> None:
    """Unless a restart could need it again."""
    assert JOBSET.reclaimable(make_jobset(status=status, **spec)) == reclaimable


@pytest.mark.proves("JobSet", "managed by")
def test_a_jobset_is_found_by_framework_and_by_kind() -> None:
    """The registry knows it, and it knows its pods and its controller."""
    assert BY_FRAMEWORK["jobset.x-k8s.io/jobset"] is BY_GROUP_KIND["jobset.x-k8s.io", "JobSet"]
    assert JOBSET.gvk.api_version == "jobset.x-k8s.io/v1alpha2"
    assert JOBSET.pod_selector(make_jobset()) == {"jobset.sigs.k8s.io/jobset-name": "set"}
    assert JOBSET.managed_by(make_jobset()) == "jobset.sigs.k8s.io/jobset-controller" == JOBSET.own_controller
    assert JOBSET.managed_by(make_jobset(managedBy="example.com/x")) == "example.com/x"
    assert (JOBSET.suspend(make_jobset()), JOBSET.suspend(make_jobset(suspend=False))) == (
        {},
        {"spec": {"suspend": True}},
    )


# --- webhooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobset", "around", "patch"),
    [
        pytest.param(make_jobset(suspend=False), HERE, {"spec": {"suspend": True}}, id="queued"),
        pytest.param(make_jobset(), HERE, {}, id="suspended-already"),
        pytest.param(make_jobset(suspend=False, labels={}), HERE, {}, id="not-ours"),
        pytest.param(make_jobset(suspend=False), JobContext(managed_ancestor=True), {}, id="an-owner-is-queued"),
        pytest.param(
            make_jobset(suspend=False, labels={}),
            JobContext(default_queue=True),
            {"metadata": {"labels": prefixed(queue_name="default")}, "spec": {"suspend": True}},
            id="a-default-queue",
        ),
    ],
)
@pytest.mark.proves("JobSet", "webhook defaults")
def test_a_queued_jobset_begins_suspended(jobset: JSON, around: JobContext, patch: JSON) -> None:
    """And nothing else is written."""
    assert JOBSET.defaults(jobset, around) == patch


def test_a_jobset_on_its_way_out_is_left_alone() -> None:
    """Finalizers must be removable, whatever is wrong."""
    jobset = make_jobset(labels=prefixed(queue_name="Not Valid"), suspend=False)
    jobset["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert JOBSET.defaults(jobset, HERE) == {}
    assert JOBSET.problems(jobset, None, HERE) == []


GROUPED = {**RACK, **prefixed(podset_group_name="team")}
REFUSED = [
    pytest.param(
        make_jobset(labels=prefixed(queue_name="Not Valid", max_exec_time_seconds="soon")),
        ["metadata.labels[kueue.x-k8s.io/queue-name]", "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"],
        id="labels-of-every-kind",
    ),
    pytest.param(
        make_jobset(
            replicated(annotations={**RACK, **prefixed(podset_preferred_topology="rack")}),
            replicated("b", annotations=prefixed(podset_slice_size="2")),
        ),
        [TEMPLATE.format(0), TEMPLATE.format(1) + "[kueue.x-k8s.io/podset-slice-size]"],
        id="each-template-with-its-path",
    ),
    pytest.param(
        make_jobset(
            replicated(annotations=prefixed(podset_slice_required_topology="rack", podset_slice_size="5")),
        ),
        [TEMPLATE.format(0) + "[kueue.x-k8s.io/podset-slice-size]"],
        id="a-slice-larger-than-the-pod-set",
    ),
    pytest.param(
        make_jobset(replicated(annotations=GROUPED), replicated("b")),
        [TEMPLATE.format(0) + "[kueue.x-k8s.io/podset-group-name]"],
        id="a-group-of-one",
    ),
    pytest.param(
        make_jobset(*(replicated(name, annotations=GROUPED) for name in ("a", "b"))),
        [TEMPLATE.format(0) + "[kueue.x-k8s.io/podset-group-name]"],
        id="a-group-without-leader",
    ),
    pytest.param(
        make_jobset(
            replicated("a", replicas=1, pods=1, annotations=GROUPED),
            replicated("b", annotations={**GROUPED, **prefixed(podset_required_topology="block")}),
        ),
        [TEMPLATE.format(1) + "[kueue.x-k8s.io/podset-required-topology]"],
        id="a-group-that-wants-two-places",
    ),
    pytest.param(make_jobset(replicatedJobs=[]), ["spec.replicatedJobs"], id="no-replicated-job"),
    pytest.param(
        make_jobset(*(replicated(f"r{i}") for i in range(19))), ["spec.replicatedJobs"], id="too-many-replicated-jobs"
    ),
    pytest.param(
        make_jobset(replicated("a"), replicated("A"), replicated("not valid")),
        ["spec.replicatedJobs[1].name", "spec.replicatedJobs[2].name"],
        id="names-that-are-no-pod-sets",
    ),
    pytest.param(
        make_jobset(replicated(replicas=-1), replicated("b", replicas=2**20, pods=2**20)),
        ["spec.replicatedJobs[0].replicas", "spec.replicatedJobs[1].replicas"],
        id="impossible-numbers",
    ),
    pytest.param(
        make_jobset(replicated(annotations=RACK), annotations={EXCLUSIVE: "rack"}),
        [f"metadata.annotations[{EXCLUSIVE}]"],
        id="exclusive-placement-beside-a-request",
    ),
    pytest.param(
        make_jobset(
            replicated("a", outer={EXCLUSIVE: "rack"}),
            replicated("b", annotations=RACK, outer={EXCLUSIVE: "rack"}),
            replicated("c", annotations={**RACK, EXCLUSIVE: "rack"}),
        ),
        [
            f"spec.replicatedJobs[1].template.metadata.annotations[{EXCLUSIVE}]",
            TEMPLATE.format(2) + f"[{EXCLUSIVE}]",
        ],
        id="exclusive-placement-of-the-same-child-jobs",
    ),
]


@pytest.mark.parametrize(("jobset", "paths"), REFUSED)
@pytest.mark.proves("JobSet", "webhook validation")
def test_mistakes_are_refused_at_submission_all_at_once(jobset: JSON, paths: list[str]) -> None:
    """Each with its path."""
    assert [problem.path for problem in JOBSET.problems(jobset, None, HERE)] == paths


def test_a_jobset_that_nobody_queues_may_have_any_shape() -> None:
    """What becomes no Workload needs not fit into one."""
    many = [replicated(f"r{i}") for i in range(19)]

    assert JOBSET.problems(make_jobset(*many, labels={}), None, HERE) == []


def test_the_elastic_annotation_is_refused() -> None:
    """Workload slices are for other kinds."""
    jobset = make_jobset(annotations=prefixed(elastic_job="true"))
    problems = JOBSET.problems(jobset, None, JobContext(switches=JobFeatures(elastic_jobs=True)))

    assert [problem.path for problem in problems] == ["metadata.annotations[kueue.x-k8s.io/elastic-job]"]


LEFT_OVER = prefixed(podset_slice_required_topology="r", podset_slice_size="5")
"""Slices larger than the pod set of `replicated`."""


def changed(jobset: JSON, **spec: Any) -> JSON:
    return {**copy.deepcopy(jobset), "spec": {**jobset["spec"], **spec}}


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        pytest.param(
            make_jobset(suspend=False),
            make_jobset(suspend=False, labels=prefixed(queue_name="other")),
            ["metadata.labels[kueue.x-k8s.io/queue-name]"],
            id="another-queue-while-running",
        ),
        pytest.param(
            make_jobset(), make_jobset(labels=prefixed(queue_name="other")), [], id="another-queue-while-suspended"
        ),
        pytest.param(
            make_jobset(replicated(annotations=LEFT_OVER)),
            make_jobset(replicated(annotations={**LEFT_OVER, **prefixed(workload="w")}), suspend=False),
            [],
            id="a-start-does-not-judge-sizes-again",
        ),
        pytest.param(
            make_jobset(replicated(annotations=LEFT_OVER)),
            make_jobset(replicated(annotations=LEFT_OVER), annotations={"note": "x"}),
            [],
            id="nor-does-a-change-of-something-else",
        ),
        pytest.param(
            make_jobset(replicated(replicas=5, annotations=LEFT_OVER)),
            make_jobset(replicated(replicas=2, annotations=LEFT_OVER)),
            [TEMPLATE.format(0) + "[kueue.x-k8s.io/podset-slice-size]"],
            id="fewer-pods-than-a-slice-has",
        ),
        pytest.param(
            make_jobset(replicated(annotations=RACK), annotations={EXCLUSIVE: "rack"}),
            changed(make_jobset(replicated(annotations=RACK), annotations={EXCLUSIVE: "rack"}), suspend=False),
            [],
            id="an-old-mistake-does-not-block-other-changes",
        ),
    ],
)
def test_changes_are_judged_by_what_they_change(old: JSON, new: JSON, paths: list[str]) -> None:
    """The rules of all kinds; and what was accepted once is not held against a later write."""
    assert [problem.path for problem in JOBSET.problems(new, old, HERE)] == paths


@pytest.mark.parametrize(
    ("jobset", "said"),
    [
        pytest.param(make_jobset(), [], id="nothing-to-say"),
        pytest.param(make_jobset(annotations={EXCLUSIVE: "rack"}), ["left to the JobSet controller"], id="exclusive"),
        pytest.param(
            make_jobset(annotations=prefixed(job_min_parallelism="2")), ["is ignored: a JobSet starts"], id="partial"
        ),
        pytest.param(
            make_jobset(replicated(annotations=prefixed(podset_unconstrained_topology="false"))),
            ["replicatedJobs[0]"],
            id="a-request-for-nothing",
        ),
    ],
)
def test_what_has_no_effect_is_said(jobset: JSON, said: list[str]) -> None:
    """The JobSet is accepted all the same."""
    warnings = JOBSET.warnings(jobset, HERE)

    assert len(warnings) == len(said)
    assert all(part in warning for part, warning in zip(said, warnings, strict=True))
    assert JOBSET.problems(jobset, None, HERE) == []
