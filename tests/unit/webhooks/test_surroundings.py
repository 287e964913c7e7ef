"""What is asked about an object's surroundings, and what is not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from kqueue.config.selector import RequirementSettings, SelectorSettings
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs.ancestry import Ancestor, Lineage
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import GroupVersionKind
from kqueue.jobs.others import Reference
from kqueue.jobs.switches import JobFeatures
from webhooks.accounts import Accounts
from webhooks.review import Request, RequestUser, ReviewResult
from webhooks.routes import routes
from webhooks.surroundings import JobContextFinder, LookupFailedError, Policy

Object = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"
BY_LABEL = SelectorSettings(match_expressions=(RequirementSettings(key="team", operator="Exists"),))
NOT_LEFT = SelectorSettings(
    match_expressions=(RequirementSettings(key="kubernetes.io/metadata.name", operator="NotIn", values=("left",)),)
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
        self.above: tuple[tuple[str, str], ...] = ()
        self.groups: dict[GangRef, Object] = {}
        self.others: dict[str, Object] = {}
        self.quota = False
        self.far: set[str] = set()
        """Queues whose jobs MultiKueue sends to other clusters."""
        self.levels: frozenset[str] | None = None
        self.admitted = False
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
        return (namespace if name == "default" else f"{namespace}/{name}") in self.queues

    async def has_priority_class(self, name: str) -> bool:
        self._ask("class")
        return name in self.classes

    async def lineage(self, obj: Mapping[str, Any], kind: tuple[str, str], namespace: str) -> Lineage:
        self._ask("ancestor")
        owner = obj["metadata"]["ownerReferences"][0]
        group, _, version = owner["apiVersion"].rpartition("/")
        gvk = GroupVersionKind(group, version, owner["kind"])
        found = Ancestor(gvk=gvk, namespace=namespace, name="s", uid="u", queue_name="q", elastic=False)
        return Lineage(found if gvk.kind in self.queued else None, ((group, gvk.kind), *self.above))

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        self._ask(f"admitted {group or uid}")
        return self.admitted

    async def group_object(self, ref: GangRef) -> Object | None:
        self._ask(f"group {ref.name}")
        return self.groups.get(ref)

    async def holds_quota(self, workload: str, namespace: str) -> bool:
        self._ask(f"quota {workload[: workload.rindex('-') + 1]}")
        return self.quota

    async def sends_away(self, namespace: str, queue: str) -> bool:
        self._ask(f"far {queue}")
        return queue in self.far

    async def other(self, reference: Reference) -> Object | None:
        self._ask(str(reference))
        return self.others.get(str(reference))

    async def topology_levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        self._ask("levels")
        return self.levels


def job(queue: str | None = "main", *, owner: Object | None = None, **metadata: Any) -> Object:
    labels = {} if queue is None else {QUEUE: queue}
    owners = {} if owner is None else {"ownerReferences": [owner]}
    return {"kind": "Job", "metadata": {"name": "j", "labels": labels, **owners, **metadata}, "spec": {}}


OPERATOR = RequestUser("system:serviceaccount:operators:jobset")
TENANT = RequestUser("ann", ("system:authenticated",))


def request(obj: Object, old: Object | None = None, *, namespace: str = "ns", user: RequestUser = OPERATOR) -> Request:
    return Request(uid="u", operation="CREATE", obj=obj, old=old, namespace=namespace, user=user)


POLICY = Policy(
    switches=JobFeatures(default_priority_class=False),
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
            ["ancestor"],
            id="a-pod-that-says-who-suspends-it",
        ),
    ],
)
async def test_only_what_makes_a_difference_is_asked(
    policy: Policy, obj: Object, namespace: str, asked: list[str]
) -> None:
    """Most objects cost no look-up at all."""
    world = World()
    await JobContextFinder(policy, world).at_creation(request(obj, namespace=namespace))

    assert world.asked == asked


async def mutated(policy: Policy, world: World, obj: Object, *, namespace: str = "ns") -> ReviewResult:
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
    answer = await routes(["batch/job"], JobFeatures())[path](asked)

    assert answer.fault is not None
    assert (answer.fault.code, fact in answer.fault.sentence) == (400, True), answer.fault
    assert "webhook configuration" in answer.fault.sentence


async def test_one_path_gives_unlabelled_objects_of_every_kind_their_default_queue() -> None:
    """By the kind that the question names."""
    handler = routes(["batch/job"], POLICY.switches, policy=POLICY, lookups=World(queues=("ns",)))
    asked = Request(uid="u", operation="CREATE", obj=job(None), old=None, namespace="ns", group="batch", kind="Job")

    assert (await handler["/mutate-default-queue"](asked)).patch["metadata"]["labels"] == {QUEUE: "default"}


# --- who may say that an owner controls an object

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True, "uid": "r"}
QUEUED_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "small", "controller": True, "uid": "small"}
KCM = "system:serviceaccount:kube-system:"


@pytest.mark.parametrize(
    ("owner", "user", "allowed"),
    [
        pytest.param(QUEUED_JOB, TENANT, False, id="a-tenant-names-a-job"),
        pytest.param(QUEUED_JOB, RequestUser("system:serviceaccount:ns:default"), False, id="an-account-of-the-tenant"),
        pytest.param(
            QUEUED_JOB, RequestUser("system:serviceaccount:other:x"), False, id="an-operator-makes-no-pods-of-jobs"
        ),
        pytest.param(QUEUED_JOB, RequestUser(f"{KCM}replicaset-controller"), False, id="another-controller"),
        pytest.param(QUEUED_JOB, RequestUser(f"{KCM}job-controller"), True, id="its-controller"),
        pytest.param(
            QUEUED_JOB, RequestUser("system:kube-controller-manager"), True, id="controllers-without-accounts"
        ),
        pytest.param(QUEUED_JOB, RequestUser("root", ("system:masters",)), True, id="who-may-do-everything"),
        pytest.param(QUEUED_JOB, RequestUser("robot"), True, id="an-account-that-the-configuration-names"),
        pytest.param(
            JOB_SET, RequestUser("system:serviceaccount:jobset-system:jobset-controller-manager"), True, id="jobset"
        ),
        pytest.param(JOB_SET, RequestUser("system:serviceaccount:ns:robot"), False, id="an-operator-in-the-namespace"),
        pytest.param(JOB_SET, TENANT, False, id="a-tenant-names-a-jobset"),
    ],
)
@pytest.mark.parametrize("change", [False, True], ids=["created", "changed"])
async def test_only_its_controller_says_that_an_owner_controls_an_object(
    owner: Object, user: RequestUser, allowed: bool, change: bool
) -> None:
    """What such an owner controls is not queued itself, so nobody else may say so."""
    policy = Policy(namespaces=NOT_LEFT, kinds=POLICY.kinds, accounts=Accounts(controllers=("robot",)))
    word = "validate" if change else "mutate"
    handler = routes(["batch/job"], policy.switches, policy=policy, lookups=World(queued=("Job", "JobSet")))
    answer = await handler[f"/{word}-batch-v1-job"](request(job(owner=owner), job() if change else None, user=user))

    assert answer.allowed is allowed
    if not allowed:
        assert answer.problems[0].path == "metadata.ownerReferences"
        assert "integrations.controllerAccounts" in answer.problems[0].problem


LEADER = {"apiVersion": "v1", "kind": "Pod", "name": "serve-0", "controller": True, "uid": "p"}
LWS = "leaderworkerset.x-k8s.io/leaderworkerset"


@pytest.mark.parametrize(
    ("user", "parent", "allowed"),
    [
        pytest.param(RequestUser("system:serviceaccount:lws-system:lws"), LWS, True, id="the-operator"),
        pytest.param(RequestUser("system:serviceaccount:lws-system:lws"), None, False, id="pods-that-nobody-gates"),
        pytest.param(
            RequestUser("system:serviceaccount:lws-system:lws"), "deployment", False, id="a-parent-that-is-off"
        ),
        pytest.param(RequestUser("system:serviceaccount:ns:robot"), LWS, False, id="an-account-of-the-tenant"),
        pytest.param(TENANT, LWS, False, id="a-tenant"),
    ],
)
async def test_an_operator_lets_a_pod_control_a_set_of_gated_pods(
    user: RequestUser, parent: str | None, allowed: bool
) -> None:
    """The workers of a LeaderWorkerSet: each of them is gated and reviewed itself, so the owner excuses nothing."""
    kinds = frozenset({("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), ("", "Pod")})
    policy = Policy(namespaces=NOT_LEFT, manage_without_queue=True, kinds=kinds)
    marks = {} if parent is None else {"kueue.x-k8s.io/pod-suspending-parent": parent}
    obj = job(None, owner=LEADER) | {"kind": "StatefulSet", "spec": {"template": {"metadata": {"annotations": marks}}}}
    handler = routes([LWS, "statefulset"], policy.switches, policy=policy, lookups=World(queued=("Pod",)))

    assert (await handler["/mutate-apps-v1-statefulset"](request(obj, user=user))).allowed is allowed


DRIVER = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "controller": True, "uid": "driver"}
SPARK, WRAPPER = ("sparkoperator.k8s.io", "SparkApplication"), ("workload.codeflare.dev", "AppWrapper")
OWN = RequestUser("system:serviceaccount:ns:spark", pod_uid="driver")


@pytest.mark.parametrize(
    ("user", "above", "allowed"),
    [
        pytest.param(OWN, (SPARK,), True, id="the-driver-itself"),
        pytest.param(OWN, (SPARK, WRAPPER), True, id="the-driver-in-an-appwrapper"),
        pytest.param(RequestUser("robot"), (SPARK,), True, id="an-account-that-the-configuration-names"),
        pytest.param(RequestUser(OWN.name), (SPARK,), False, id="its-account-from-elsewhere"),
        pytest.param(RequestUser(OWN.name, pod_uid="other"), (SPARK,), False, id="another-pod-of-its-account"),
        pytest.param(OWN, (("batch", "Job"),), False, id="a-pod-of-a-job"),
        pytest.param(OWN, (("batch", "Job"), SPARK), False, id="a-pod-of-a-job-further-down"),
        pytest.param(OWN, (), False, id="a-pod-of-nobody"),
    ],
)
async def test_a_driver_names_itself_as_the_controller_of_its_executors(
    user: RequestUser, above: tuple[tuple[str, str], ...], allowed: bool
) -> None:
    """The API server says which pod a token was made for.  Pods of other kinds make no pods: they would run free."""
    policy = Policy(
        namespaces=NOT_LEFT, kinds=POLICY.kinds, accounts=Accounts(controllers=("robot",)), manage_without_queue=True
    )
    world = World(queued=("Pod",))
    world.above = above
    executor = {"kind": "Pod", **job(None, owner=DRIVER)}
    executor |= {"kind": "Pod", "spec": {"containers": []}}
    handler = routes(["pod"], policy.switches, policy=policy, lookups=world)
    asked = Request(uid="u", operation="CREATE", obj=executor, old=None, namespace="ns", user=user, kind="Pod")
    answer = await handler["/mutate--v1-pod"](asked)

    assert answer.allowed is allowed
    if allowed:
        assert not answer.patch, "it is no job of its own, and has no gate"


async def test_users_may_change_what_a_controller_has_made() -> None:
    """The controller stays the same, and whoever changes the rest is welcome."""
    before, after = job(owner=JOB_SET), job(owner=JOB_SET, annotations={"note": "mine"})
    handler = routes(["batch/job"], POLICY.switches, policy=POLICY, lookups=World(queued=("JobSet",)))

    assert (await handler["/validate-batch-v1-job"](request(after, before, user=TENANT))).allowed


async def test_an_owner_that_is_not_queued_may_be_named_by_anybody() -> None:
    """It excuses nothing."""
    assert (await mutated(POLICY, World(), job(owner=JOB_SET))).allowed


# --- who may say that a parent suspends a pod

SERVING = Policy(namespaces=NOT_LEFT, manage_without_queue=True, kinds=frozenset({("apps", "Deployment"), ("", "Pod")}))
DEPLOYMENT = (("apps", "Deployment"),)


@pytest.mark.parametrize(
    ("said", "owner", "above", "user", "believed"),
    [
        pytest.param("", None, (), TENANT, False, id="nothing"),
        pytest.param("anything", None, (), TENANT, False, id="no-kind"),
        pytest.param("deployment", None, (), TENANT, False, id="no-owner"),
        pytest.param(
            "deployment", REPLICA_SET, (), RequestUser(f"{KCM}replicaset-controller"), False, id="another-owner"
        ),
        pytest.param("deployment", REPLICA_SET, DEPLOYMENT, TENANT, False, id="an-owner-that-a-tenant-names"),
        pytest.param(
            "statefulset", REPLICA_SET, DEPLOYMENT, RequestUser(f"{KCM}replicaset-controller"), False, id="off"
        ),
        pytest.param(
            "deployment", REPLICA_SET, DEPLOYMENT, RequestUser(f"{KCM}replicaset-controller"), True, id="its-parent"
        ),
    ],
)
async def test_a_pod_is_its_parents_only_where_its_owners_say_so(
    said: str, owner: Object | None, above: tuple[tuple[str, str], ...], user: RequestUser, believed: bool
) -> None:
    """Any other is queued for itself: the annotation goes, the gates and the label come."""
    key = "kueue.x-k8s.io/pod-suspending-parent"
    owners = {} if owner is None else {"ownerReferences": [owner]}
    pod = {"kind": "Pod", "metadata": {"name": "p", "annotations": {key: said}, **owners}, "spec": {"containers": []}}
    world = World()
    world.above = above
    handler = routes(["pod", "deployment"], SERVING.switches, policy=SERVING, lookups=world)["/mutate--v1-pod"]
    patch = (await handler(request(pod, user=user))).patch

    assert {"name": "kueue.x-k8s.io/admission"} in patch["spec"]["schedulingGates"]
    assert (key in patch["metadata"]["annotations"]) is not believed
    assert (patch["metadata"].get("labels") == {"kueue.x-k8s.io/managed": "true"}) is not believed


# --- who may start what waits for admission

POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "uid": "u", "labels": {QUEUE: "main", "kueue.x-k8s.io/managed": "true"}},
}
GATED = POD | {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
KQUEUE = RequestUser("system:serviceaccount:kueue-system:kqueue-controller")


def suspended(yes: bool, **metadata: Any) -> Object:
    return job(uid="u", **metadata) | {"spec": {"suspend": yes}}


@pytest.mark.parametrize(
    ("path", "old", "new", "user", "admitted", "refused"),
    [
        pytest.param("batch-v1-job", suspended(True), suspended(False), TENANT, False, "spec.suspend", id="a-job"),
        pytest.param("batch-v1-job", suspended(True), suspended(False), TENANT, True, "", id="an-admitted-job"),
        pytest.param("batch-v1-job", suspended(True), suspended(False), KQUEUE, False, "", id="kqueue-itself"),
        pytest.param(
            "batch-v1-job",
            suspended(True, annotations={"kueue.x-k8s.io/stopping": "true"}),
            suspended(False),
            TENANT,
            False,
            "spec.suspend",
            id="a-job-that-says-it-is-being-stopped",
        ),
        pytest.param("batch-v1-job", suspended(True), suspended(True), TENANT, False, "", id="it-stays-suspended"),
        pytest.param("batch-v1-job", suspended(False), suspended(False), TENANT, False, "", id="it-runs"),
        pytest.param("-v1-pod", GATED, POD | {"spec": {}}, TENANT, False, "spec.schedulingGates", id="a-pod"),
        pytest.param("-v1-pod", GATED, POD | {"spec": {}}, KQUEUE, False, "", id="kqueue-lets-a-pod-go"),
    ],
)
async def test_nobody_else_starts_what_waits_for_admission(
    path: str, old: Object, new: Object, user: RequestUser, admitted: bool, refused: str
) -> None:
    """Refused with the field and what to do; where the Workload is admitted, whoever asks may."""
    world = World()
    world.admitted = admitted
    policy = Policy(namespaces=NOT_LEFT, accounts=Accounts(own_namespace="kueue-system"))
    handler = routes(["batch/job", "pod"], policy.switches, policy=policy, lookups=world)[f"/validate-{path}"]
    answer = await handler(request(new, old, user=user))

    assert [problem.path for problem in answer.problems] == ([refused] if refused else [])
    assert all("when" in p.problem and "admitted" in p.problem for p in answer.problems)
    starts = old["spec"] != new["spec"]
    assert world.asked == (["admitted u"] if starts and user is TENANT else [])


EXTRA = "kqueue.dev/extra"
NAMED: Object = {"name": "p", "uid": "u", "labels": {QUEUE: "main", "kueue.x-k8s.io/managed": "true"}}
MEMBER: Object = GATED | {"metadata": NAMED}
MARKED: Object = GATED | {"metadata": NAMED | {"annotations": {EXTRA: "true"}}}


@pytest.mark.parametrize(
    ("old", "new", "user", "refused"),
    [
        pytest.param(MEMBER, MARKED, TENANT, True, id="a-tenant"),
        pytest.param(MEMBER, MARKED, KQUEUE, False, id="kqueue-itself"),
        pytest.param(MEMBER, MARKED, RequestUser("admin", ("system:masters",)), False, id="an-administrator"),
        pytest.param(MEMBER, MARKED, OPERATOR, True, id="another-controller"),
        pytest.param(MARKED, MARKED, TENANT, False, id="it-has-the-mark"),
        pytest.param(MARKED, MEMBER, TENANT, False, id="it-loses-the-mark"),
    ],
)
async def test_nobody_else_marks_a_pod_beyond_its_quorum(
    old: Object, new: Object, user: RequestUser, refused: bool
) -> None:
    """A marked pod is queued alone, so its owner would start it without its gang."""
    switches = JobFeatures(gangs=("pod", "kqueue.dev/coscheduling-labels"))
    policy = Policy(switches=switches, namespaces=NOT_LEFT, accounts=Accounts(own_namespace="kueue-system"))
    handler = routes(["pod"], switches, policy=policy, lookups=World())["/validate--v1-pod"]
    answer = await handler(request(new, old, user=user))

    said = [(problem.path, problem.problem) for problem in answer.problems]
    expected = (f"metadata.annotations[{EXTRA}]", "is written by kqueue alone; take it out")
    assert said == ([expected] if refused else [])


# --- other objects ----------------------------------------------------------------------------------------------------

RUNTIME = {"spec": {"template": {"spec": {"replicatedJobs": [{"name": "node"}]}}}}
TORCH = "TrainingRuntime ns/torch"


def train(*, suspend: bool = True, **metadata: Any) -> Object:
    """A TrainJob; the API server says the namespace of a new one only beside it."""
    reference = {"name": "torch", "kind": "TrainingRuntime"}
    meta = {"name": "t", "labels": {QUEUE: "main"}, **metadata}
    return {"kind": "TrainJob", "metadata": meta, "spec": {"suspend": suspend, "runtimeRef": reference}}


async def trained(world: World, obj: Object, old: Object | None = None) -> ReviewResult:
    """The answer of the validating webhook of TrainJobs."""
    found = routes(["trainer.kubeflow.org/trainjob"], POLICY.switches, policy=POLICY, lookups=world)
    return await found["/validate-trainer-kubeflow-org-v1alpha1-trainjob"](request(obj, old))


@pytest.mark.parametrize(
    ("obj", "asked"),
    [
        pytest.param(train(), [TORCH], id="its-runtime"),
        pytest.param(train(suspend=False), [TORCH, "JobSet ns/t"], id="of-a-running-one-its-jobset-too"),
        pytest.param(train(deletionTimestamp="now"), [], id="nothing-of-one-that-is-being-deleted"),
    ],
)
async def test_what_a_job_refers_to_is_looked_up(obj: Object, asked: list[str]) -> None:
    """Each object once, also for an update."""
    world = World()
    world.others[TORCH] = RUNTIME
    answer = await trained(world, obj, obj)

    assert answer.allowed
    assert [what for what in world.asked if not what.startswith("levels")] == asked


async def test_a_job_whose_runtime_is_gone_can_still_be_changed() -> None:
    """So that it can be stopped; a new one is refused."""
    world = World()
    created = await trained(world, train())
    changed = await trained(world, train(annotations={"a": "b"}), train())

    assert [problem.path for problem in created.problems] == ["spec.runtimeRef.name"]
    assert changed.allowed


async def test_a_runtime_that_cannot_be_looked_up_refuses_in_words() -> None:
    world = World()
    world.fails = LookupFailedError(f"the API server did not answer about {TORCH} within 2 s")
    answer = await trained(world, train())

    assert answer.fault is not None
    assert answer.fault.code == 503
    assert TORCH in answer.fault.sentence
