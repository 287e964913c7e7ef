"""What the API server is told: whose objects are sent, and which requests wait for us."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.config.declared import DeclaredKind
from kqueue.config.selector import RequirementSettings, SelectorSettings
from kqueue.jobs.declared import Declared
from kqueue.jobs.switches import JobFeatures
from webhooks.configuration import MOST_DEFAULT_QUEUES, WebhookEndpoint, WebhookScope, webhook_configurations
from webhooks.routes import routes

Object = dict[str, Any]
NAME = "kubernetes.io/metadata.name"
QUEUE = "kueue.x-k8s.io/queue-name"
PROTECTED = {"key": NAME, "operator": "NotIn", "values": ["kube-system", "kueue-system"]}
TEAMS = SelectorSettings(
    match_labels={"kind": "batch"},
    match_expressions=(RequirementSettings(key="team", operator="In", values=("a", "b")),),
)
TARGET = WebhookEndpoint(ca_bundle=b"ca", url="https://h:1/")


def hooks(*frameworks: str, target: WebhookEndpoint = TARGET, **scope: Any) -> dict[str, Object]:
    """Every webhook of both configurations by its name."""
    made = webhook_configurations(
        target, WebhookScope(frameworks=frameworks or ("batch/job",), own_namespace="kueue-system", **scope)
    )
    found = [hook for configuration in made for hook in configuration["webhooks"]]
    assert len({hook["name"] for hook in found}) == len(found)
    return {hook["name"]: hook for hook in found}


def test_only_what_names_a_queue_is_sent() -> None:
    """An outage of ours cannot stop a stranger's Job, nor what we need to come back, nor a deletion."""
    made = hooks()
    jobs = {name: hook for name, hook in made.items() if hook["rules"][0]["resources"] == ["jobs"]}

    assert set(jobs) == {"mjob.kb.io", "vjob.kb.io"}
    for hook in jobs.values():
        assert hook["objectSelector"] == {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}]}
        assert hook["namespaceSelector"] == {"matchExpressions": [PROTECTED]}
    assert {h["matchConditions"][0]["expression"] for h in made.values()} == {"!has(object.metadata.deletionTimestamp)"}


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param("mjob.kb.io", "Fail", id="a-job-that-starts-unsuspended-runs-past-its-queue"),
        pytest.param("vjob.kb.io", "Ignore", id="the-reconciler-reports-what-slips-through"),
        pytest.param("vclusterqueue.kb.io", "Fail", id="nobody-else-checks-quotas"),
        pytest.param("vworkload.kb.io", "Fail", id="what-is-admitted-must-not-grow"),
        pytest.param("vworkloadstatus.kb.io", "Ignore", id="decisions-are-written-without-us"),
        pytest.param("mclusterqueue.kb.io", "Ignore", id="the-reconciler-adds-the-finalizer"),
    ],
)
def test_fail_closed_is_what_correctness_needs(name: str, policy: str) -> None:
    """And nothing else; whoever may go on without us does so after five seconds."""
    hook = hooks()[name]

    assert (hook["failurePolicy"], hook["timeoutSeconds"]) == (policy, 10 if policy == "Fail" else 5)


def test_every_hook_has_a_handler() -> None:
    """No path is registered that nobody answers, and the name's first letter says what it does."""
    made = hooks("batch/job", default_queues=["a"]) | hooks("batch/job", without_queue=True)
    handlers = routes(["batch/job"], JobFeatures())

    for name, hook in made.items():
        path = hook["clientConfig"]["url"].removeprefix("https://h:1")

        assert path in handlers
        assert path.startswith("/mutate-" if name.startswith("m") else "/validate-")


def test_kinds_that_are_off_have_no_hook() -> None:
    """Neither mutating nor validating nor by default; our own kinds always have theirs."""
    made = hooks("workload.codeflare.dev/appwrapper", default_queues=["a"], without_queue=False)

    default = made.pop("mdefault-queue.kb.io")
    assert [rule["resources"] for rule in default["rules"]] == [["appwrappers"]]
    assert [name for name in made if not name.endswith("appwrapper.kb.io")] == [
        "mclusterqueue.kb.io",
        "mresourceflavor.kb.io",
        "mworkload.kb.io",
        "vclusterqueue.kb.io",
        "vresourceflavor.kb.io",
        "vcohort.kb.io",
        "vworkload.kb.io",
        "vworkloadstatus.kb.io",
    ]
    assert made["vworkload.kb.io"]["rules"][0]["resources"] == ["workloads"]
    assert made["vworkloadstatus.kb.io"]["rules"][0]["resources"] == ["workloads/status"]


def test_entries_keep_their_order() -> None:
    """Replicas of two versions that disagree would rewrite each other's configuration."""
    frameworks = ("statefulset", "deployment", "pod", "jobset.x-k8s.io/jobset", "batch/job")
    kinds = [name for name in hooks(*frameworks) if name.startswith("v") and not name.startswith("vw")]

    assert kinds[:6] == [
        f"v{kind}.kb.io" for kind in ("job", "pod", "pod-managed", "jobset", "deployment", "statefulset")
    ]


def test_without_queue_names_the_selected_namespaces_send_all_their_jobs() -> None:
    """The selector of the configuration opts namespaces in; an object is sent by one entry only."""
    made = hooks(managed=TEAMS, without_queue=True, default_queues=["a"])
    entry = made["mjob-unlabelled.kb.io"]

    assert entry["objectSelector"] == {"matchExpressions": [{"key": QUEUE, "operator": "DoesNotExist"}]}
    assert entry["namespaceSelector"] == {
        "matchLabels": {"kind": "batch"},
        "matchExpressions": [PROTECTED, {"key": "team", "operator": "In", "values": ["a", "b"]}],
    }
    assert (entry["failurePolicy"], made["vjob-unlabelled.kb.io"]["failurePolicy"]) == ("Fail", "Ignore")
    assert "mdefault-queue.kb.io" not in made


def test_a_default_queue_opts_its_namespace_in() -> None:
    """By name, in order, and only where jobs are managed at all; without any there is no entry."""
    entry = hooks(managed=TEAMS, default_queues=["b", "a"])["mdefault-queue.kb.io"]

    assert [each["operator"] for each in entry["objectSelector"]["matchExpressions"]] == ["DoesNotExist"] * 2
    assert entry["namespaceSelector"]["matchLabels"] == {"kind": "batch"}
    assert entry["namespaceSelector"]["matchExpressions"][-1] == {"key": NAME, "operator": "In", "values": ["a", "b"]}
    assert [rule["resources"] for rule in entry["rules"]] == [["jobs"]]
    assert entry["rules"][0]["operations"] == ["CREATE"]
    assert "mdefault-queue.kb.io" not in hooks()


def test_the_list_of_default_queues_fits_into_an_object() -> None:
    """The API server's store refuses objects of 1.5 MB."""
    names = [f"{number:063}" for number in range(MOST_DEFAULT_QUEUES + 1)]
    listed = hooks(default_queues=names)["mdefault-queue.kb.io"]["namespaceSelector"]["matchExpressions"][-1]["values"]

    assert listed == names[:MOST_DEFAULT_QUEUES]
    assert len(str(listed)) < 400_000


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param(TARGET, {"url": "https://h:1/mutate-batch-v1-job", "caBundle": "Y2E="}, id="by-address"),
        pytest.param(
            WebhookEndpoint(ca_bundle=b"ca", service="hooks", namespace="kueue-system"),
            {
                "service": {
                    "name": "hooks",
                    "namespace": "kueue-system",
                    "path": "/mutate-batch-v1-job",
                    "port": 443,
                },
                "caBundle": "Y2E=",
            },
            id="through-the-service",
        ),
    ],
)
def test_the_api_server_is_told_where_to_ask(target: WebhookEndpoint, want: Object) -> None:
    """Inside a cluster there is no URL.  A target knows its own entries again."""
    hook = hooks(target=target)["mjob.kb.io"]

    assert hook["clientConfig"] == want
    assert target.is_asked_by(hook)
    assert not WebhookEndpoint(ca_bundle=b"ca", url="https://h:11").is_asked_by(hook)
    assert not WebhookEndpoint(ca_bundle=b"ca", service="hooks", namespace="other").is_asked_by(hook)


def test_a_declared_kind_has_entries_of_its_own() -> None:
    """By its group, so that it may be called like a built-in one; on paths that its handlers answer."""
    declared = {
        "apiVersion": "example.com/v1",
        "kind": "Job",
        "podSets": [{"template": "spec.template"}],
        "succeeded": {"condition": "Done"},
        "ready": {"count": "status.ready"},
    }
    kind = Declared(DeclaredKind.model_validate(declared))
    found = hooks(declared=[kind])

    hook = found["mjob-example-com.kb.io"]
    assert hook["rules"][0]["apiGroups"] == ["example.com"]
    assert hook["clientConfig"]["url"].endswith("/mutate-example-com-v1-job")
    assert {"mjob.kb.io", "vjob.kb.io", "vjob-example-com.kb.io"} <= found.keys()
    handlers = routes((), JobFeatures(), declared=[kind])
    assert {"/mutate-example-com-v1-job", "/validate-example-com-v1-job"} <= handlers.keys()


def test_pods_that_get_their_queue_later_are_sent_by_their_label() -> None:
    """Those of a StatefulSet carry `managed` from their template; strangers' pods are not shown to us."""
    made = {name: hook["objectSelector"]["matchExpressions"] for name, hook in hooks("pod", without_queue=True).items()
            if hook["rules"][0]["resources"] == ["pods"]}  # fmt: skip
    managed = {"key": "kueue.x-k8s.io/managed"}
    queue = {"key": QUEUE}
    exists, absent = {"operator": "Exists"}, {"operator": "DoesNotExist"}

    for letter in "mv":
        assert made[f"{letter}pod.kb.io"] == [queue | exists]
        assert made[f"{letter}pod-managed.kb.io"] == [managed | exists, queue | absent]
        assert made[f"{letter}pod-unlabelled.kb.io"] == [queue | absent, managed | absent]


@pytest.mark.parametrize("framework", ["deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"])
def test_kinds_that_are_queued_through_their_pods_bring_the_pods(framework: str) -> None:
    """Whether the file names them or not; once."""
    for frameworks in ((framework,), (framework, "pod")):
        assert "mpod.kb.io" in hooks(*frameworks)
