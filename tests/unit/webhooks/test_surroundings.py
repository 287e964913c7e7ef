"""What is asked about an object's surroundings, and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kqueue.config.selector import LabelSelector, Requirement
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs.switches import Switches
from webhooks.review import Answer, Request
from webhooks.routes import routes
from webhooks.surroundings import LookupFailedError, Observer, Policy

Object = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"
BY_LABEL = LabelSelector(match_expressions=(Requirement(key="team", operator="Exists"),))
NOT_LEFT = LabelSelector(
    match_expressions=(Requirement(key="kubernetes.io/metadata.name", operator="NotIn", values=("left",)),)
)
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "controller": True, "uid": "u"}
CRON_JOB = JOB_SET | {"apiVersion": "batch/v1", "kind": "CronJob"}


class World:
    """Lookups that know some things and remember what was asked."""

    def __init__(
        self, *, queues: tuple[str, ...] = (), classes: tuple[str, ...] = (), queued: tuple[str, ...] = ()
    ) -> None:
        self.queues, self.classes, self.queued = queues, classes, queued
        self.labels: dict[str, dict[str, str]] = {}
        self.fails: Exception | None = None
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.fails is not None:
            raise self.fails

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        self._ask("namespace")
        return self.labels.get(namespace, {})

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        self._ask("queue")
        assert name == "default"
        return namespace in self.queues

    async def has_priority_class(self, name: str) -> bool:
        self._ask("class")
        return name in self.classes

    async def managed_ancestor(self, obj: Mapping[str, Any], namespace: str) -> bool:
        self._ask("ancestor")
        return obj["metadata"]["ownerReferences"][0]["kind"] in self.queued


def job(queue: str | None = "main", *, owner: Object | None = None, **metadata: Any) -> Object:
    labels = {} if queue is None else {QUEUE: queue}
    owners = {} if owner is None else {"ownerReferences": [owner]}
    return {"kind": "Job", "metadata": {"name": "j", "labels": labels, **owners, **metadata}, "spec": {}}


def request(obj: Object, old: Object | None = None, *, namespace: str = "ns") -> Request:
    return Request(uid="u", operation="CREATE", obj=obj, old=old, namespace=namespace)


POLICY = Policy(
    switches=Switches(default_priority_class=False),
    namespaces=NOT_LEFT,
    kinds=frozenset({("jobset.x-k8s.io", "JobSet"), ("batch", "Job")}),
)
CLASSED = Policy(namespaces=NOT_LEFT)


@pytest.mark.parametrize(
    ("policy", "obj", "namespace", "asked"),
    [
        pytest.param(POLICY, job(), "ns", [], id="a-queue-and-no-owner-costs-nothing"),
        pytest.param(POLICY, job(owner=CRON_JOB), "ns", ["ancestor"], id="owners-are-followed"),
        pytest.param(POLICY, job(None), "ns", ["queue"], id="without-a-queue-the-default-one-is-looked-for"),
        pytest.param(POLICY, job(None), "left", [], id="but-not-where-nobody-manages-jobs"),
        pytest.param(POLICY, job(None, owner=JOB_SET), "ns", ["ancestor"], id="nor-for-what-belongs-to-our-kinds"),
        pytest.param(CLASSED, job(), "ns", ["class"], id="a-class-is-looked-for-where-none-is-named"),
        pytest.param(CLASSED, job(None), "ns", ["queue"], id="but-not-for-what-is-not-queued"),
        pytest.param(
            Policy(namespaces=BY_LABEL, switches=POLICY.switches), job(), "ns", ["namespace"], id="selected-by-label"
        ),
        pytest.param(CLASSED, job(deletionTimestamp="2026-01-01T00:00:00Z"), "ns", [], id="what-is-being-deleted"),
        pytest.param(
            POLICY,
            job(owner=JOB_SET, annotations={"kueue.x-k8s.io/pod-suspending-parent": "deployment"}),
            "ns",
            [],
            id="a-pod-that-says-who-suspends-it",
        ),
    ],
)
async def test_only_what_makes_a_difference_is_asked(
    policy: Policy, obj: Object, namespace: str, asked: list[str]
) -> None:
    """Most objects cost no look-up at all."""
    world = World()
    await Observer(policy, world).at_creation(request(obj, namespace=namespace))

    assert world.asked == asked


async def mutated(policy: Policy, world: World, obj: Object, *, namespace: str = "ns") -> Answer:
    handler = routes(["batch/job"], policy.switches, policy=policy, lookups=world)["/mutate-batch-v1-job"]
    return await handler(request(obj, namespace=namespace))


@pytest.mark.parametrize(
    ("policy", "obj", "patch"),
    [
        pytest.param(
            POLICY,
            job(None),
            {"metadata": {"labels": {QUEUE: "default"}}, "spec": {"suspend": True}},
            id="the-default-queue-is-written-in",
        ),
        pytest.param(
            POLICY,
            job(None, owner=CRON_JOB),
            {"metadata": {"labels": {QUEUE: "default"}}, "spec": {"suspend": True}},
            id="for-jobs-of-a-cron-job-too",
        ),
        pytest.param(POLICY, job(owner=JOB_SET), {}, id="a-child-of-a-queued-parent-is-left-to-it"),
        pytest.param(
            Policy(namespaces=NOT_LEFT, manage_without_queue=True, switches=POLICY.switches),
            job(None, owner=JOB_SET | {"kind": "Stranger"}),
            {"spec": {"suspend": True}, "metadata": {"labels": {QUEUE: "default"}}},
            id="all-jobs-are-managed",
        ),
        pytest.param(
            CLASSED,
            job(),
            {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "default"}}, "spec": {"suspend": True}},
            id="the-default-class-is-written-in",
        ),
    ],
)
@pytest.mark.proves("Job", "webhook defaults")
async def test_defaults_follow_the_surroundings(policy: Policy, obj: Object, patch: Object) -> None:
    """Queue and class named `default`, owners, and the switch for jobs without a queue."""
    world = World(queues=("ns",), classes=("default",), queued=("JobSet",))

    assert (await mutated(policy, world, obj)).patch == patch


@pytest.mark.parametrize(
    ("namespace", "patch"),
    [
        pytest.param("in", {"spec": {"suspend": True}}, id="selected"),
        pytest.param("out", {}, id="not-selected"),
    ],
)
async def test_jobs_without_a_queue_are_held_where_the_selector_says(namespace: str, patch: Object) -> None:
    """By the labels of their namespace."""
    world = World()
    world.labels["in"] = {"team": "a"}
    policy = Policy(namespaces=BY_LABEL, manage_without_queue=True)

    assert (await mutated(policy, world, job(None), namespace=namespace)).patch == patch


async def test_a_job_that_cannot_be_judged_is_refused_in_words() -> None:
    """It might run past its parent's queue; the sentence says what could not be found out."""
    world = World()
    world.fails = LookupFailedError("the API server did not answer about JobSet ns/s within 3 s")
    answer = await mutated(POLICY, world, job(owner=JOB_SET))

    assert answer.fault is not None
    assert (answer.fault.code, "JobSet ns/s within 3 s; nothing was changed" in answer.fault.sentence) == (503, True)


async def test_owners_that_cannot_be_followed_refuse_creation_and_no_change() -> None:
    """A new child without its parent is refused with the path; an orphan can still be edited."""
    world = World()
    world.fails = InvalidObjectError("Job ns/j", [FieldError("metadata.ownerReferences[0]", "is missing")])
    created = await mutated(POLICY, world, job(owner=JOB_SET))
    handler = routes(["batch/job"], POLICY.switches, policy=POLICY, lookups=world)["/validate-batch-v1-job"]
    changed = await handler(request(job(owner=JOB_SET), job(owner=JOB_SET)))

    assert [problem.path for problem in created.problems] == ["metadata.ownerReferences[0]"]
    assert changed.allowed


async def test_a_class_that_cannot_be_looked_up_is_none() -> None:
    """A priority is not worth a refusal."""
    world = World()
    world.fails = LookupFailedError("no answer")

    assert (await mutated(CLASSED, world, job())).patch == {"spec": {"suspend": True}}


@pytest.mark.proves("Job", "webhook validation")
async def test_a_queue_cannot_be_emptied_where_there_is_a_default() -> None:
    """Even while suspended; elsewhere it can.  Only that change is looked up."""
    suspended = {"suspend": True}
    old, new = job() | {"spec": suspended}, job("") | {"spec": suspended}
    for queues, paths in ((("ns",), [f"metadata.labels[{QUEUE}]"]), ((), [])):
        world = World(queues=queues)
        handler = routes(["batch/job"], POLICY.switches, policy=POLICY, lookups=world)["/validate-batch-v1-job"]
        answer = await handler(request(new, old))
        await handler(request(old, old))

        assert [problem.path for problem in answer.problems] == paths
        assert world.asked == ["queue"]


async def test_a_queue_in_a_namespace_that_nobody_manages_is_warned_of() -> None:
    """The job would wait for ever."""
    handler = routes(["batch/job"], POLICY.switches, policy=POLICY)["/validate-batch-v1-job"]
    warned = await handler(request(job(), namespace="left"))
    silent = await handler(request(job()))

    assert (warned.allowed, len(warned.warnings), "managedJobsNamespaceSelector" in warned.warnings[0]) == (
        True,
        1,
        True,
    )
    assert silent.warnings == []


@pytest.mark.parametrize(
    ("path", "group", "kind", "fact"),
    [
        pytest.param(
            "/mutate-batch-v1-job", "", "Pod", "answers for Job of batch/v1, and was asked about Pod", id="job"
        ),
        pytest.param("/validate-batch-v1-job", "apps", "Job", "Job of apps", id="same-kind-of-another-group"),
        pytest.param("/validate-kueue-x-k8s-io-v1beta2-cohort", "", "Pod", "answers for Cohort", id="own-kind"),
        pytest.param("/mutate-default-queue", "apps", "DaemonSet", "answers for Job", id="default-queue"),
        pytest.param("/mutate-default-queue", "", "", "an object without kind", id="no-kind"),
    ],
)
async def test_an_unknown_kind_is_answered_in_words(path: str, group: str, kind: str, fact: str) -> None:
    """Somebody's webhook configuration is wrong, and the person who meets it is told so."""
    asked = Request(uid="u", operation="CREATE", obj=job(), old=None, group=group, kind=kind)
    answer = await routes(["batch/job"], Switches())[path](asked)

    assert answer.fault is not None
    assert (answer.fault.code, fact in answer.fault.sentence) == (400, True), answer.fault
    assert "webhook configuration" in answer.fault.sentence


async def test_one_path_gives_unlabelled_objects_of_every_kind_their_default_queue() -> None:
    """By the kind that the question names."""
    handler = routes(["batch/job"], POLICY.switches, policy=POLICY, lookups=World(queues=("ns",)))
    asked = Request(uid="u", operation="CREATE", obj=job(None), old=None, namespace="ns", group="batch", kind="Job")

    assert (await handler["/mutate-default-queue"](asked)).patch["metadata"]["labels"] == {QUEUE: "default"}
