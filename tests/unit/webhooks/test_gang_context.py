"""The queue of a gang whose pods name none: where it is looked for, in which order, and what that costs."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.config.selector import RequirementSettings, SelectorSettings
from kqueue.jobs.gang.naming import workload_of_gang
from kqueue.jobs.gang.registry import switched_on
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import GANG_DIALECTS
from tests.unit.webhooks.test_surroundings import CRON_JOB, NOT_LEFT, World
from webhooks.review import Request, RequestUser, ReviewResult
from webhooks.routes import routes
from webhooks.surroundings import LookupFailedError, Policy

Object = dict[str, Any]
QUEUE = names.QUEUE_NAME_LABEL
SWITCHES = JobFeatures(gangs=switched_on(GANG_DIALECTS), default_priority_class=False)
POLICY = Policy(switches=SWITCHES, namespaces=NOT_LEFT, kinds=frozenset({("batch", "Job")}))
LABELLED = {gang_names.COSCHEDULING_NAME_LABEL: "g", gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: "2"}
IN_PODGROUP = {gang_names.POD_GROUP_X_K8S_LABEL: "g"}
IN_VOLCANO = {gang_names.VOLCANO_GROUP_ANNOTATIONS[0]: "g"}
X_K8S, VOLCANO = "scheduling.x-k8s.io/podgroup", "scheduling.volcano.sh/podgroup"
OPERATOR = RequestUser("system:serviceaccount:operators:o")


def pod(labels: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    """A new pod."""
    metadata: Object = {"name": "p", "namespace": "ns", "labels": dict(labels or {})}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [], **spec}}


async def reviewed(
    word: str, obj: Object, world: World, policy: Policy = POLICY, namespace: str = "ns"
) -> ReviewResult:
    handler = routes(list(GANG_DIALECTS), policy.switches, policy=policy, lookups=world)[f"/{word}--v1-pod"]
    asked = Request(
        uid="u", operation="CREATE", obj=obj, old=None, namespace=namespace, group="", kind="Pod", user=OPERATOR
    )
    return await handler(asked)


async def queue_of(obj: Object, world: World, **more: Any) -> str | None:
    """The queue that the webhook writes; None: the pod stays as it is."""
    patch = (await reviewed("mutate", obj, world, **more)).patch
    if not patch:
        return None
    assert patch["metadata"]["labels"][names.MANAGED_LABEL] == "true"
    assert patch["spec"]["schedulingGates"]
    return str(patch["metadata"]["labels"].get(QUEUE, ""))


def world(
    *, group: Object | None = None, framework: str = X_K8S, namespace: str = "", queues: tuple[str, ...] = ()
) -> World:
    """Lookups with a group object, a label on the namespace, and LocalQueues."""
    made = World(queues=queues)
    if group is not None:
        made.groups[GangRef(framework=framework, namespace="ns", name="g")] = group
    if namespace:
        made.labels["ns"] = {gang_names.GANG_QUEUE_LABEL: namespace}
    return made


WITH_LABEL: Object = {"metadata": {"labels": {QUEUE: "of-group"}}}
WITH_FIELD: Object = {"metadata": {}, "spec": {"queue": "of-volcano"}}


@pytest.mark.parametrize(
    ("obj", "settings", "queue", "asked"),
    [
        pytest.param(pod(LABELLED | {QUEUE: "own"}), {"namespace": "n"}, "", [], id="its-own-label-costs-no-look-up"),
        pytest.param(pod(LABELLED), {"namespace": "n"}, "n", ["namespace"], id="label-of-the-namespace"),
        pytest.param(
            pod(LABELLED), {"queues": ("ns",)}, "default", ["namespace", "queue"], id="the-queue-named-default"
        ),
        pytest.param(pod(LABELLED), {}, None, ["namespace", "queue"], id="a-stranger"),
        pytest.param(
            pod(IN_PODGROUP), {"group": WITH_LABEL, "namespace": "n"}, "of-group", ["group g"], id="label-of-the-group"
        ),
        pytest.param(
            pod(IN_PODGROUP),
            {"group": {"metadata": {}}, "namespace": "n"},
            "n",
            ["group g", "namespace"],
            id="a-group-without-a-label",
        ),
        pytest.param(
            pod(IN_PODGROUP), {"namespace": "n"}, "n", ["group g", "namespace"], id="the-group-does-not-exist-yet"
        ),
        pytest.param(pod(IN_PODGROUP), {}, None, ["group g", "namespace", "queue"], id="a-stranger-before-its-group"),
        pytest.param(
            pod(None, IN_VOLCANO),
            {"group": WITH_FIELD, "framework": VOLCANO, "queues": ("ns/of-volcano",), "namespace": "n"},
            "of-volcano",
            ["group g", "queue"],
            id="queue-of-volcano-that-is-a-local-queue",
        ),
        pytest.param(
            pod(None, IN_VOLCANO),
            {"group": WITH_FIELD, "framework": VOLCANO, "namespace": "n"},
            "n",
            ["group g", "queue", "namespace"],
            id="queue-of-volcano-that-is-none",
        ),
        pytest.param(
            pod(None, IN_VOLCANO),
            {"group": WITH_LABEL | {"spec": {"queue": "x"}}, "framework": VOLCANO},
            "of-group",
            ["group g"],
            id="the-label-goes-before-the-field",
        ),
        pytest.param(
            pod(None, {gang_names.VOLCANO_GROUP_ANNOTATIONS[0]: "../x"}),
            {"namespace": "n"},
            "n",
            ["namespace"],
            id="a-name-that-no-object-has-is-not-looked-up",
        ),
        pytest.param(pod(), {"namespace": "n"}, None, ["queue"], id="a-pod-in-no-gang"),
        pytest.param(
            pod(None, {names.POD_GROUP_NAME_ANNOTATION: "g", names.POD_GROUP_TOTAL_COUNT_ANNOTATION: "1"}),
            {"namespace": "n"},
            None,
            ["queue"],
            id="a-group-of-kueue",
        ),
    ],
)
async def test_the_first_queue_that_is_named_counts(
    obj: Object, settings: Object, queue: str | None, asked: list[str]
) -> None:
    """G2.4, G2.10, G2.14, G2.15: it is written on the pod; the dialect's own marks stay."""
    lookups = world(**settings)

    assert await queue_of(obj, lookups) == queue
    assert lookups.asked == asked


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": "p", "labels": [], "annotations": {"scheduling.k8s.io/group-name": 7}}},
        {"metadata": {"name": "p", "labels": {gang_names.POD_GROUP_X_K8S_LABEL: ["g"]}, "ownerReferences": [7]}},
        {"metadata": {"name": "p", "labels": LABELLED | {gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: 2}}},
        {"metadata": {"name": "p", "annotations": {gang_names.VOLCANO_GROUP_ANNOTATIONS[0]: "g" * 10_000}}},
        {"metadata": {"name": "p", "labels": IN_PODGROUP | LABELLED}, "spec": {"schedulingGroup": "g"}},
        {"metadata": {"name": "p"}, "spec": {"schedulingGroup": {"podGroupName": {"a": 1}}, "schedulingGates": 7}},
        {"metadata": {"name": "p", "labels": IN_PODGROUP}, "spec": []},
    ],
)
@pytest.mark.parametrize("word", ["mutate", "validate"])
@pytest.mark.parametrize("group", [{}, {"metadata": []}, {"metadata": {"labels": {QUEUE: 7}}, "spec": {"queue": []}}])
async def test_no_shape_of_pod_or_group_is_too_much(broken: Object, word: str, group: Object) -> None:
    """An answer comes, whatever a user writes where schemas do not look."""
    lookups = World(queues=("ns",))
    for framework in (X_K8S, VOLCANO, "scheduling.k8s.io/podgroup"):
        lookups.groups[GangRef(framework=framework, namespace="ns", name="g")] = group

    assert isinstance(await reviewed(word, {"kind": "Pod", "spec": {}, **broken}, lookups), ReviewResult)


async def test_a_gang_without_a_queue_is_held_where_all_jobs_are_managed() -> None:
    """G2.7, G2.8: by the namespace, as pods are; elsewhere it is left alone, and nothing is looked up."""
    by_label = SelectorSettings(match_expressions=(RequirementSettings(key="team", operator="Exists"),))
    policy = Policy(switches=SWITCHES, namespaces=by_label, manage_without_queue=True)
    lookups = World()
    lookups.labels["in"] = {"team": "a"}

    assert await queue_of(pod(LABELLED), lookups, policy=policy, namespace="in") == ""
    assert await queue_of(pod(LABELLED), lookups, policy=policy, namespace="out") is None
    lookups.asked.clear()
    assert await queue_of(pod(LABELLED), lookups, namespace="left") is None
    assert lookups.asked == []


async def test_a_queue_that_cannot_be_looked_up_refuses_the_pod() -> None:
    """It could never be gated later; the sentence names what could not be read."""
    lookups = world()
    lookups.fails = LookupFailedError("the API server did not answer about PodGroup ns/g within 2 s")
    answer = await reviewed("mutate", pod(IN_PODGROUP), lookups)

    assert answer.fault is not None
    assert (answer.fault.code, "PodGroup ns/g within 2 s" in answer.fault.sentence) == (503, True)


async def test_pods_of_a_queued_owner_are_strangers() -> None:
    """G2.9: the Workload of the owner counts them; a warning says which mark has no effect."""
    owner = CRON_JOB | {"kind": "Job"}
    obj = pod(LABELLED | {gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: "two"})
    obj["metadata"]["ownerReferences"] = [owner]
    user = RequestUser("system:serviceaccount:kube-system:job-controller")
    lookups = World(queued=("Job",))
    lookups.labels["ns"] = {gang_names.GANG_QUEUE_LABEL: "n"}
    handlers = routes(list(GANG_DIALECTS), SWITCHES, policy=POLICY, lookups=lookups)
    asked = Request(uid="u", operation="CREATE", obj=obj, old=None, namespace="ns", kind="Pod", user=user)
    mutated, validated = [await handlers[f"/{word}--v1-pod"](asked) for word in ("mutate", "validate")]

    assert mutated.patch == {}
    assert validated.allowed
    assert list(validated.warnings) == [
        f"metadata.labels[{gang_names.COSCHEDULING_NAME_LABEL}] has no effect: Job s, which owns the pod, is queued itself"
    ]


async def test_a_stranger_is_not_judged() -> None:
    """G2.8: its marks may be for another scheduler, which takes other values.  Without its labels, a gated pod would
    wait for ever, so that is refused: another webhook has taken them off."""
    wrong = LABELLED | {gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: "two"}
    stranger = await reviewed("validate", pod(wrong), World())
    gated = await reviewed("validate", pod(wrong, schedulingGates=[{"name": names.ADMISSION_GATE}]), World())
    queued = await reviewed("validate", pod(wrong | {QUEUE: "q"}), World())

    assert (stranger.allowed, list(stranger.warnings)) == (True, [])
    assert [problem.path for problem in gated.problems] == ["spec.schedulingGates"]
    assert [problem.value for problem in queued.problems] == ["two"]


GATED: Object = {"schedulingGates": [{"name": names.ADMISSION_GATE}]}
OF_LABELS = workload_of_gang(GangRef(framework="kqueue.dev/coscheduling-labels", namespace="ns", name="g"), SWITCHES)
OF_OBJECT = workload_of_gang(GangRef(framework=X_K8S, namespace="ns", name="g"), SWITCHES, uid="of-group")
EXTRA = {gang_names.EXTRA_ANNOTATION: "true"}


@pytest.mark.parametrize(
    ("obj", "asked"),
    [
        pytest.param(pod(LABELLED, **GATED), [f"admitted {OF_LABELS}"], id="a-group-by-labels"),
        pytest.param(
            pod(IN_PODGROUP, **GATED), ["group g", f"admitted {OF_OBJECT}"], id="named-after-the-group-object"
        ),
        pytest.param(pod(IN_VOLCANO, **GATED), ["admitted pod-uid"], id="in-no-gang"),
        pytest.param(pod(LABELLED, EXTRA, **GATED), ["admitted pod-uid"], id="an-extra-has-a-workload-of-its-own"),
        pytest.param(
            pod(
                None,
                {names.POD_GROUP_NAME_ANNOTATION: "k", names.POD_GROUP_TOTAL_COUNT_ANNOTATION: "1"} | EXTRA,
                **GATED,
            ),
            ["admitted k"],
            id="a-group-of-kueue",
        ),
    ],
)
@pytest.mark.parametrize("admitted", [True, False])
async def test_a_member_is_released_only_if_its_workload_is_admitted(
    obj: Object, asked: list[str], admitted: bool
) -> None:
    """Whoever removes the gate: the Workload is that of the gang, or its own, as of an extra; a mark that comes with
    the request does not count."""
    lookups = world(group={"metadata": {"uid": "of-group"}})
    lookups.admitted = admitted
    old = {**obj, "metadata": {**obj["metadata"], "uid": "pod-uid"}}
    old["metadata"]["labels"] = old["metadata"]["labels"] | {QUEUE: "q", names.MANAGED_LABEL: "true"}
    new = {**old, "spec": {"containers": []}}
    new["metadata"] = {**old["metadata"], "annotations": old["metadata"].get("annotations", {}) | EXTRA}
    handlers = routes(["pod", *GANG_DIALECTS], SWITCHES, policy=POLICY, lookups=lookups)
    answer = await handlers["/validate--v1-pod"](
        Request(uid="u", operation="UPDATE", obj=new, old=old, namespace="ns", kind="Pod")
    )

    assert ("spec.schedulingGates" in [problem.path for problem in answer.problems]) is not admitted
    alone = ["admitted pod-uid"]
    assert lookups.asked == (asked if admitted or asked == alone else asked + alone)


@pytest.mark.parametrize(
    ("scheduler", "labels", "wanted"),
    [
        pytest.param("volcano", LABELLED, "default-scheduler", id="taken-over"),
        pytest.param("other", LABELLED, None, id="not-listed"),
        pytest.param("volcano", {}, None, id="in-no-gang"),
        pytest.param("volcano", LABELLED | {"stranger": "1"}, None, id="a-stranger"),
    ],
)
async def test_schedulers_that_are_listed_are_taken_over(scheduler: str, labels: Object, wanted: str | None) -> None:
    """G2.11: on queued pods of gangs only."""
    switches = JobFeatures(gangs=SWITCHES.gangs, take_over_schedulers=frozenset({"volcano"}))
    policy = Policy(switches=switches, namespaces=NOT_LEFT)
    lookups = world(namespace="" if "stranger" in labels else "n")
    answer = await reviewed("mutate", pod(labels, schedulerName=scheduler), lookups, policy)

    assert answer.patch.get("spec", {}).get("schedulerName") == wanted


@pytest.mark.parametrize(
    ("obj", "settings", "given"),
    [
        pytest.param(pod(IN_PODGROUP), {"group": WITH_LABEL}, "of-group", id="of-the-group-object"),
        pytest.param(pod(LABELLED), {"namespace": "n"}, "n", id="of-the-namespace"),
        pytest.param(pod(IN_PODGROUP | {QUEUE: "own"}), {"group": WITH_LABEL}, None, id="its-own"),
    ],
)
async def test_a_pod_that_was_given_a_queue_says_so(obj: Object, settings: Object, given: str | None) -> None:
    """Such a pod follows its group object to another queue; one that named a queue does not."""
    patch = (await reviewed("mutate", obj, world(**settings))).patch
    assert patch["metadata"].get("annotations", {}).get(gang_names.GIVEN_QUEUE_ANNOTATION) == given
