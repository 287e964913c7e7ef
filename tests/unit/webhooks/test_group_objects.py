"""Reviews of group objects: what is refused, what is warned of, and what may change while quota is reserved."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.jobs.gang.registry import switched_on
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import GANG_DIALECTS
from tests.unit.webhooks.test_gang_selection import hooks
from tests.unit.webhooks.test_surroundings import NOT_LEFT, World
from webhooks.review import Request, ReviewResult
from webhooks.routes import routes
from webhooks.surroundings import Policy

Object = dict[str, Any]
SWITCHES = JobFeatures(gangs=switched_on(GANG_DIALECTS), default_priority_class=False, longest_schedule_seconds=1800.0)
POLICY = Policy(switches=SWITCHES, namespaces=NOT_LEFT)
QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
LONGEST = gang_names.MAX_SCHEDULE_TIME_ANNOTATION
X, V, K = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/v1beta1"


def group(
    api_version: str, spec: Object | None = None, *, queue: str | None = "main", annotations: Object | None = None
) -> Object:
    """A PodGroup."""
    labels = {} if queue is None else {names.QUEUE_NAME_LABEL: queue}
    metadata = {"name": "g", "namespace": "ns", "uid": "u", "labels": labels, "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec or {}}


async def reviewed(
    obj: Object, old: Object | None = None, *, lookups: World | None = None, namespace: str = "ns"
) -> ReviewResult:
    """The answer of the validating webhook of the object's kind."""
    api_group, version = obj["apiVersion"].split("/")
    path = f"/validate-{api_group.replace('.', '-')}-{version}-{obj['kind'].lower()}"
    handlers = routes(list(GANG_DIALECTS), SWITCHES, policy=POLICY, lookups=lookups or World())
    return await handlers[path](
        Request(
            uid="u",
            operation="CREATE" if old is None else "UPDATE",
            obj=obj,
            old=old,
            namespace=namespace,
            group=api_group,
            kind=obj["kind"],
        )
    )


@pytest.mark.proves("PodGroup", "webhook validation")
@pytest.mark.proves("Volcano PodGroup", "webhook validation")
@pytest.mark.proves("Kubernetes PodGroup", "webhook validation")
@pytest.mark.parametrize(
    ("obj", "said"),
    [
        pytest.param(group(X, {"minMember": 3}), [], id="fine"),
        pytest.param(group(X, {"minMember": -1}), ["spec.minMember: must be 1 or more (found -1)"], id="negative"),
        pytest.param(
            group(X, {"minMember": 10001}), ["spec.minMember: must be at most 10000 (found 10001)"], id="too-many"
        ),
        pytest.param(
            group(X, {"minResources": {"cpu": "x"}}),
            ["spec.minResources[cpu]: must be a quantity of 0 or more (found 'x')"],
            id="no-quantity",
        ),
        pytest.param(
            group(X, {"minResources": {"cpu": "-1"}}),
            ["spec.minResources[cpu]: must be a quantity of 0 or more (found '-1')"],
            id="a-negative-quantity",
        ),
        pytest.param(
            group(X, {"scheduleTimeoutSeconds": 0}),
            ["spec.scheduleTimeoutSeconds: must be 1 or more; leave it out for the default (found 0)"],
            id="no-time",
        ),
        pytest.param(
            group(X, annotations={LONGEST: "soon"}),
            [f"metadata.annotations[{LONGEST}]: must be a whole number of seconds, 1 or more (found 'soon')"],
            id="no-number-of-seconds",
        ),
        pytest.param(
            group(X, {"minMember": -1, "scheduleTimeoutSeconds": -5}),
            [
                "spec.minMember: must be 1 or more (found -1)",
                "spec.scheduleTimeoutSeconds: must be 1 or more; leave it out for the default (found -5)",
            ],
            id="all-mistakes-at-once",
        ),
        pytest.param(
            group(V, {"minMember": 10001}), ["spec.minMember: must be at most 10000 (found 10001)"], id="volcano"
        ),
        pytest.param(
            group(V, {"minResources": {"memory": "-1Gi"}}),
            ["spec.minResources[memory]: must be a quantity of 0 or more (found '-1Gi')"],
            id="volcano-quantity",
        ),
        pytest.param(
            group(K, {"schedulingPolicy": {"gang": {"minCount": 10001}}}),
            ["spec.schedulingPolicy.gang.minCount: must be at most 10000 (found 10001)"],
            id="kubernetes",
        ),
        pytest.param(
            group(X, annotations={names.REQUIRED_TOPOLOGY_ANNOTATION: "not a label"}),
            [
                f"metadata.annotations[{names.REQUIRED_TOPOLOGY_ANNOTATION}]: must be a label key: an optional DNS "
                "subdomain and '/', then at most 63 characters of A-Z, a-z, 0-9, '-', '_' and '.', framed by letters "
                "or digits (found 'not a label')"
            ],
            id="topology",
        ),
        pytest.param(
            group(X, annotations={names.PREBUILT_WORKLOAD_NAME_ANNOTATION: "w"}),
            [
                f"metadata.annotations[{names.PREBUILT_WORKLOAD_NAME_ANNOTATION}]: this kind cannot use a prebuilt "
                "workload; remove it (found 'w')"
            ],
            id="prebuilt",
        ),
    ],
)
async def test_a_mistake_of_a_group_object_is_refused_in_words(obj: Object, said: list[str]) -> None:
    """7.3, with the path, the sentence and the value; an update may keep the mistakes that are there."""
    assert [str(problem) for problem in (await reviewed(obj)).problems] == said
    assert (await reviewed(obj, obj)).allowed


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        pytest.param(group(X, {"scheduleTimeoutSeconds": 1800}), [], id="the-longest-deadline"),
        pytest.param(
            group(X, {"scheduleTimeoutSeconds": 1801}),
            ["spec.scheduleTimeoutSeconds is cut to 1800 s, the cluster's maximum"],
            id="a-longer-one",
        ),
        pytest.param(
            group(X, annotations={LONGEST: "3600"}),
            [f"metadata.annotations[{LONGEST}] is cut to 1800 s, the cluster's maximum"],
            id="by-annotation",
        ),
        pytest.param(
            group(V, {"minMember": 2, "minTaskMember": {"a": 2, "b": 1}}),
            ["spec.minMember is 2 and spec.minTaskMember needs 3 together; 3 counts"],
            id="minima-of-tasks",
        ),
        pytest.param(
            group(V, {"subGroupPolicy": [{"name": "s"}]}),
            ["subGroupPolicy has no effect; use one PodGroup per subgroup, or topology annotations"],
            id="subgroups",
        ),
        pytest.param(
            group(V, annotations={gang_names.VOLCANO_WAITING_TIME_ANNOTATION: "1h"}),
            ["metadata.annotations[volcano.sh/sla-waiting-time] has no effect"],
            id="sla",
        ),
        pytest.param(group(V, {"networkTopology": {"mode": "hard", "highestTierName": "rack"}}), [], id="a-level"),
        pytest.param(
            group(V, {"networkTopology": {"mode": "soft", "highestTierName": "tier"}}),
            ["spec.networkTopology has no effect: tier is no level of a Topology"],
            id="a-tier-that-is-no-level",
        ),
        pytest.param(
            group(V, {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}),
            ["spec.networkTopology has no effect: 2 is no level of a Topology"],
            id="a-tier-by-number",
        ),
        pytest.param(
            group(K, {"schedulingConstraints": {"topology": [{"key": "tier"}]}}),
            ["spec.schedulingConstraints names tier, which is a level of no Topology"],
            id="a-constraint-of-kubernetes",
        ),
        pytest.param(
            group(X, annotations={names.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}), [], id="topology-annotations-count"
        ),
        pytest.param(
            group(X, annotations={"kueue.x-k8s.io/podset-required-topologie": "rack"}),
            [
                "metadata.annotations: kueue.x-k8s.io/podset-required-topologie is unknown and has no effect; did you "
                "mean kueue.x-k8s.io/podset-required-topology?"
            ],
            id="misspelt",
        ),
    ],
)
async def test_fields_without_effect_are_told_where_the_gang_is_queued(obj: Object, said: list[str]) -> None:
    """G3.42, G3.V8 to G3.V10, 7.3; another scheduler may use them in the group of a stranger, who is told nothing."""
    lookups = World()
    lookups.levels = frozenset({"rack"})
    stranger = {**obj, "metadata": {**obj["metadata"], "labels": {}}}
    by_namespace = World()
    by_namespace.levels = lookups.levels
    by_namespace.labels["ns"] = {gang_names.GANG_QUEUE_LABEL: "q"}

    assert list((await reviewed(obj, lookups=lookups)).warnings) == said
    assert list((await reviewed(stranger, lookups=lookups)).warnings) == []
    assert list((await reviewed(stranger, lookups=by_namespace)).warnings) == said


@pytest.mark.parametrize(
    ("holds", "after", "paths"),
    [
        pytest.param(False, group(X, queue="other"), [], id="the-queue-while-it-waits"),
        pytest.param(True, group(X, queue="other"), [QUEUE], id="the-queue-while-quota-is-reserved"),
        pytest.param(True, group(X, {"minMember": 7}), [], id="the-quorum-at-any-time"),
        pytest.param(True, group(X, {"queue": "other"}), [], id="a-field-that-the-kind-does-not-have"),
    ],
)
async def test_the_queue_of_a_group_changes_only_while_nothing_is_reserved(
    holds: bool, after: Object, paths: list[str]
) -> None:
    """G2.6, G3.P19; the Workload is looked up only where that matters."""
    lookups = World()
    lookups.quota = holds
    answer = await reviewed(after, group(X), lookups=lookups)

    assert [problem.path for problem in answer.problems] == paths
    assert [asked for asked in lookups.asked if asked.startswith("quota")] == (
        [] if after["spec"] else ["quota podgroup-g-"]
    )


@pytest.mark.parametrize(
    ("label", "holds", "after", "paths"),
    [
        pytest.param(None, True, "other", ["spec.queue"], id="while-quota-is-reserved"),
        pytest.param(None, False, "other", [], id="while-it-waits"),
        pytest.param(None, True, "one", [], id="no-change"),
        pytest.param("main", True, "other", [], id="the-label-counts"),
    ],
)
async def test_a_field_with_the_queue_changes_only_while_nothing_is_reserved(
    label: str | None, holds: bool, after: str, paths: list[str]
) -> None:
    """G2.6 for Volcano's `spec.queue`."""
    lookups = World()
    lookups.quota = holds
    before = group(V, {"queue": "one"}, queue=label)
    answer = await reviewed(group(V, {"queue": after}, queue=label), before, lookups=lookups)

    assert [problem.path for problem in answer.problems] == paths


async def test_a_queue_in_a_namespace_that_is_not_managed_is_warned_of() -> None:
    """And nothing else is said there."""
    answer = await reviewed(group(X, {"scheduleTimeoutSeconds": 1801}), namespace="left")

    assert [said.partition(":")[0] for said in answer.warnings] == [
        "namespace left is not managed (managedJobsNamespaceSelector)"
    ]


@pytest.mark.parametrize("api_version", [X, V, K])
@pytest.mark.parametrize(
    "broken",
    [
        {"spec": 7},
        {"spec": {"minResources": [1], "minTaskMember": "x", "networkTopology": [], "schedulingPolicy": 1}},
        {"metadata": {"name": "g", "labels": [], "annotations": {"a": 1}}},
        {"spec": {"schedulingConstraints": {"topology": [7]}, "disruptionMode": []}},
    ],
)
async def test_no_shape_of_json_is_too_much(api_version: str, broken: Object) -> None:
    """Schemas may be missing; an answer comes all the same."""
    assert isinstance(await reviewed(group(api_version) | broken), ReviewResult)


# --- BatchProcesses, which are kqueue's own

BATCH = "kqueue.dev/batchprocess"
WITH_BATCH = JobFeatures(gangs=("pod", BATCH), default_priority_class=False)


def batch(queue: str | None = "main", *, replicas: int = 4, **spec: Any) -> Object:
    """A BatchProcess of two types."""
    processes = [{"name": name, "replicas": 2, "minAvailable": 1} for name in ("teacher", "student")]
    labels = {} if queue is None else {names.QUEUE_NAME_LABEL: queue}
    group_spec = {"replicas": replicas, "minAvailable": 2}
    return {
        "apiVersion": "kqueue.dev/v1alpha1",
        "kind": "BatchProcess",
        "metadata": {"name": "distill", "namespace": "ns", "uid": "u", "labels": labels},
        "spec": {"image": "train:1", "podGroup": group_spec, "simpleProcesses": processes, **spec},
    }


async def batch_reviewed(
    word: str, obj: Object, old: Object | None = None, *, lookups: World | None = None, namespace: str = "ns"
) -> ReviewResult:
    policy = Policy(switches=WITH_BATCH, namespaces=NOT_LEFT)
    handlers = routes([BATCH], WITH_BATCH, policy=policy, lookups=lookups or World())
    verb = "CREATE" if old is None else "UPDATE"
    asked = Request(
        uid="u", operation=verb, obj=obj, old=old, namespace=namespace, group="kqueue.dev", kind=obj["kind"]
    )
    return await handlers[f"/{word}-kqueue-dev-v1alpha1-batchprocess"](asked)


@pytest.mark.proves("BatchProcess", "webhook defaults")
@pytest.mark.parametrize(
    ("obj", "namespace", "queue"),
    [
        pytest.param(batch(), "ns", None, id="its-own"),
        pytest.param(batch(None), "ns", "of-namespace", id="of-the-namespace"),
        pytest.param(batch(None), "other", "default", id="the-one-named-default"),
        pytest.param(batch(None), "nothing", None, id="none"),
        pytest.param(batch(None), "left", None, id="not-managed"),
    ],
)
async def test_a_batch_process_gets_its_queue_at_its_creation(obj: Object, namespace: str, queue: str | None) -> None:
    """G2.4; nothing else of it is changed."""
    lookups = World(queues=("other",))
    lookups.labels["ns"] = {gang_names.GANG_QUEUE_LABEL: "of-namespace"}
    patch = (await batch_reviewed("mutate", obj, lookups=lookups, namespace=namespace)).patch

    assert patch == ({} if queue is None else {"metadata": {"labels": {names.QUEUE_NAME_LABEL: queue}}})


@pytest.mark.proves("BatchProcess", "webhook validation")
async def test_a_batch_process_is_checked() -> None:
    """G3.B30, 7.3: all mistakes at once; numbers of pods change only while no quota is reserved."""
    wrong = await batch_reviewed("validate", batch(replicas=5, image=""))
    tight = batch(podGroup={"replicas": 4, "minAvailable": 1})
    warned = await batch_reviewed("validate", tight)
    changed: dict[bool, list[str]] = {}
    for holds in (False, True):
        lookups = World()
        lookups.quota = holds
        answer = await batch_reviewed("validate", tight, batch(), lookups=lookups)
        changed[holds] = [str(problem) for problem in answer.problems]
    suspended = World()
    await batch_reviewed("validate", batch(suspend=True), batch(), lookups=suspended)

    assert [str(problem) for problem in wrong.problems] == [
        "spec.podGroup.replicas: the processes have 4 replicas together; make them equal, or leave it out (found 5)",
        "spec.simpleProcesses[0].image: must be set here, in spec.image or in the template",
        "spec.simpleProcesses[1].image: must be set here, in spec.image or in the template",
    ]
    assert list(warned.warnings) == ["spec.podGroup.minAvailable is 1 and the processes need 2 together; 2 counts"]
    assert changed == {False: [], True: ["spec.podGroup: cannot change after creation; make another"]}


def test_a_new_batch_process_waits_for_its_review() -> None:
    """G2.13: the reconciler would make pods of it; an update is not held up."""
    made = {hook["name"]: hook for hook in hooks(BATCH)}
    found = {
        name: (hook["failurePolicy"], hook["rules"][0]["operations"]) for name, hook in made.items() if "batch" in name
    }

    assert found == {
        "mbatchprocess.kb.io": ("Fail", ["CREATE"]),
        "vbatchprocess.kb.io": ("Fail", ["CREATE"]),
        "vbatchprocess-update.kb.io": ("Ignore", ["UPDATE"]),
    }


# --- entries


def test_entries_for_group_objects_fail_open() -> None:
    """G2.13: in managed namespaces, on creation and update, without a mutating entry; only of dialects that are on."""
    made = {hook["name"]: hook for hook in hooks(*GANG_DIALECTS)}
    entry = made["vpodgroup-x-k8s-io.kb.io"]

    assert (entry["failurePolicy"], entry["rules"][0]["operations"]) == ("Ignore", ["CREATE", "UPDATE"])
    assert made["vpodgroup-k8s-io.kb.io"]["rules"][0]["apiVersions"] == ["v1beta1", "v1alpha3", "v1alpha2"]
    assert made["vpodgroup-volcano-sh.kb.io"]["rules"][0]["apiGroups"] == ["scheduling.volcano.sh"]
    assert not any(name.startswith("mpodgroup") for name in made)
    assert not any("podgroup-" in hook["name"] for hook in hooks("pod", "kqueue.dev/coscheduling-labels"))
    handlers = routes(list(GANG_DIALECTS), SWITCHES)
    assert all(hook["clientConfig"]["url"].removeprefix("https://h:1") in handlers for hook in made.values())
