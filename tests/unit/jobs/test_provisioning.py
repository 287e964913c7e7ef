"""ProvisioningRequests: names, the pods that need nodes, and what the autoscaler's conditions mean for a check.

Ids such as `17.1.4` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import provisioning as api
from kqueue.jobs.check_entry import new_entry
from kqueue.jobs.kind import Refused
from kqueue.jobs.provisioning.meaning import Facts, decide
from kqueue.jobs.provisioning.naming import attempt_of, request_name, template_name
from kqueue.jobs.provisioning.wanted import ProvisionedPods, counts_in_need, provisioned_pods, request_object
from tests.unit.controllers.builders import condition, make_workload, read, reserved

JSON = dict[str, Any]
SINCE = "2026-01-01T00:00:00Z"
NOW = "2026-01-02T00:00:00Z"
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
LONG = "w" * 240


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param(request_name("job-a", "nodes", 2), "job-a-nodes-2", id="17.1.4 a request"),
        pytest.param(template_name("job-a-nodes-2", "main"), "ppt-job-a-nodes-2-main", id="17.1.4 a pod template"),
        pytest.param(request_name("w" * 243, "c", 1), "w" * 243 + "-c-1", id="17.1.4 247 characters stay"),
        pytest.param(
            request_name("w" * 244, "c", 1),
            "w" * 244 + "-c-" + "-" + hashlib.sha1(("w" * 244 + "-c-1").encode()).hexdigest()[:5],
            id="17.1.4 a longer one is shortened",
        ),
    ],
)
def test_names(name: str, want: str) -> None:
    assert name == want
    assert len(name) <= 253


@pytest.mark.parametrize(
    ("request_", "workload", "check", "want"),
    [
        pytest.param("a-nodes-3", "a", "nodes", 3, id="its attempt"),
        pytest.param("a-nodes-b-3", "a", "nodes", None, id="of check nodes-b"),
        pytest.param("b-nodes-3", "a", "nodes", None, id="of another workload"),
        pytest.param("a-nodes-03", "a", "nodes", None, id="no number of ours"),
        pytest.param("a-nodes-x", "a", "nodes", None, id="no number"),
        pytest.param(request_name(LONG, "nodes", 7), LONG, "nodes", 7, id="of a shortened name"),
        pytest.param(request_name(LONG, "other", 7), LONG, "nodes", None, id="of a shortened name of another check"),
    ],
)
def test_the_attempt_is_read_from_the_name(request_: str, workload: str, check: str, want: int | None) -> None:
    assert attempt_of(request_, workload, check) == want


# --- pods that need nodes ---------------------------------------------------------------------------------------------


def pods(name: str = "main", count: int = 2, *, limits: bool = False, init: bool = False, **requests: str) -> JSON:
    """A pod set; `init`: an init container requests the resources, too."""
    amounts = {"limits" if limits else "requests": {k.replace("gpu", "nvidia.com/gpu"): v for k, v in requests.items()}}
    container = {"name": "c", "image": "i", "resources": amounts}
    spec = {"containers": [{"name": "c", "image": "i"} if init else container]}
    if init:
        spec["initContainers"] = [container]
    return {"name": name, "count": count, "template": {"spec": spec}}


def gang(*pod_sets: JSON, counts: dict[str, int] | None = None, flavor: str = "default") -> JSON:
    """A Workload with quota; `counts` are admitted pods that differ from the spec."""
    workload = make_workload("a", status=reserved(condition("Admitted", "False")))
    workload["spec"]["podSets"] = [*pod_sets]
    workload["status"]["admission"]["podSetAssignments"] = [
        {"name": p["name"], "flavors": {"cpu": flavor}, "count": (counts or {}).get(p["name"], p["count"])}
        for p in pod_sets
    ]
    return workload


@pytest.mark.parametrize(
    ("workload", "managed", "want"),
    [
        pytest.param(gang(pods(cpu="1")), [], {"main": 2}, id="17.1.2 nothing is managed, so all is"),
        pytest.param(gang(pods(cpu="1")), ["nvidia.com/gpu"], {}, id="17.1.2 it requests no managed resource"),
        pytest.param(gang(pods(gpu="1")), ["nvidia.com/gpu"], {"main": 2}, id="17.1.2 in requests"),
        pytest.param(gang(pods(gpu="1", limits=True)), ["nvidia.com/gpu"], {"main": 2}, id="17.1.2 in limits"),
        pytest.param(gang(pods(gpu="1", init=True)), ["nvidia.com/gpu"], {"main": 2}, id="17.1.2 in an init container"),
        pytest.param(gang(pods(count=0, cpu="1")), [], {}, id="17.1.2 a pod set without pods"),
        pytest.param(gang(pods(cpu="1"), counts={"main": 0}), [], {}, id="17.1.2 none of its pods is admitted"),
        pytest.param(gang(pods(cpu="1"), counts={"main": 1}), [], {"main": 1}, id="17.1.2 admitted pods count"),
        pytest.param(
            gang(pods("driver", 1, cpu="1"), pods("worker", 3, gpu="1")),
            ["nvidia.com/gpu"],
            {"worker": 3},
            id="17.1.2 of several pod sets those alone",
        ),
    ],
)
def test_pod_sets_that_need_nodes(workload: JSON, managed: list[str], want: dict[str, int]) -> None:
    assert counts_in_need(workload, managed) == want


FLAVORS = {
    "default": {
        "metadata": {"name": "default"},
        "spec": {"nodeLabels": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    },
    "other": {"metadata": {"name": "other"}, "spec": {"nodeLabels": {"pool": "other"}}},
}


def config(**spec: Any) -> api.ProvisioningRequestConfigSpec:
    found: api.ProvisioningRequestConfigSpec = read(
        api.ProvisioningRequestConfigSpec, {"provisioningClassName": CLASS, **spec}
    )
    return found


def wanted(workload: JSON, **spec: Any) -> list[ProvisionedPods]:
    found = provisioned_pods(workload, config(**spec), FLAVORS)
    assert not isinstance(found, Refused)
    return found


def test_a_template_has_the_nodes_of_its_flavor_and_a_request_for_each_limit() -> None:
    """17.1.4: node labels and tolerations of the flavor, and limits in place of requests that are missing."""
    workload = gang(pods(gpu="1", limits=True))
    container = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"]["requests"] = {"cpu": "2"}

    (found,) = wanted(workload)

    spec = found.template["spec"]
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2", "nvidia.com/gpu": "1"}
    assert spec["containers"][0]["image"] == "i"


def test_a_template_that_contradicts_its_flavor_is_refused() -> None:
    workload = gang(pods(cpu="1"))
    workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"pool": "none"}

    found = provisioned_pods(workload, config(), FLAVORS)

    assert isinstance(found, Refused)
    assert "nodeSelector entry pool" in str(found)


def changed(pod_set: JSON, **spec: Any) -> JSON:
    """The pod set with other fields of its pods' spec."""
    template = pod_set["template"]
    return {**pod_set, "template": {**template, "spec": {**template["spec"], **spec}}}


SAME_TEMPLATES, SAME_REQUIREMENTS = "IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"


@pytest.mark.parametrize(
    ("policy", "second", "merges"),
    [
        pytest.param(None, pods("b", 3, cpu="1"), False, id="17.1.4 no policy"),
        pytest.param(SAME_TEMPLATES, pods("b", 3, cpu="1"), True, id="17.1.4 equal templates"),
        pytest.param(SAME_TEMPLATES, pods("b", 3, cpu="1000m"), True, id="17.1.4 equal amounts"),
        pytest.param(
            SAME_TEMPLATES, changed(pods("b", 3, cpu="1"), restartPolicy="Never"), False, id="17.1.4 other templates"
        ),
        pytest.param(
            SAME_REQUIREMENTS, changed(pods("b", 3, cpu="1"), restartPolicy="Never"), True, id="17.1.4 equal needs"
        ),
        pytest.param(SAME_REQUIREMENTS, pods("b", 3, cpu="2"), False, id="17.1.4 other requests"),
        pytest.param(SAME_REQUIREMENTS, pods("b", 3, cpu="1", init=True), False, id="17.1.4 in an init container"),
        *(
            pytest.param(SAME_REQUIREMENTS, changed(pods("b", 3, cpu="1"), **{field: value}), False, id=f"17.1.4 {field}")
            for field, value in [
                ("resources", {"requests": {"cpu": "3"}}),
                ("nodeSelector", {"zone": "a"}),
                ("tolerations", [{"key": "x"}]),
                ("affinity", {"podAffinity": {}}),
                ("resourceClaims", [{"name": "x"}]),
            ]
        ),
    ],
)  # fmt: skip
def test_pod_sets_are_merged_into_the_first(policy: str | None, second: JSON, merges: bool) -> None:
    """The counts are added, and name and template are those of the first."""
    found = wanted(gang(pods("a", 2, cpu="1"), second), podSetMergePolicy=policy)

    assert [(one.name, one.count) for one in found] == ([("a", 5)] if merges else [("a", 2), ("b", 3)])


def test_pod_sets_of_different_flavors_are_not_merged() -> None:
    """Their pods need different nodes."""
    workload = gang(pods("a", cpu="1"), pods("b", cpu="1"))
    workload["status"]["admission"]["podSetAssignments"][1]["flavors"] = {"cpu": "other"}

    assert [one.name for one in wanted(workload, podSetMergePolicy=SAME_TEMPLATES)] == ["a", "b"]


def test_a_request_names_class_parameters_and_templates() -> None:
    """17.1.4, 17.1.5: annotations of the workload win over the config's parameters; all objects are marked as ours."""
    workload = gang(pods(cpu="1"))
    workload["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/zone": "b", "provreq.kueue.x-k8s.io/spot": "1"}
    obj: wire.Workload = read(wire.Workload, workload)

    made = request_object("a-nodes-1", obj, config(parameters={"zone": "a", "tier": "x"}), wanted(workload))

    assert made["spec"] == {
        "provisioningClassName": CLASS,
        "parameters": {"zone": "b", "tier": "x", "spot": "1"},
        "podSets": [{"count": 2, "podTemplateRef": {"name": "ppt-a-nodes-1-main"}}],
    }
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
    assert [(o["kind"], o["uid"]) for o in made["metadata"]["ownerReferences"]] == [("Workload", "uid-of-a")]


# --- states -----------------------------------------------------------------------------------------------------------


def request(
    *conditions: JSON, attempt: int = 1, details: dict[str, str] | None = None, **spec: Any
) -> api.ProvisioningRequest:
    """A request of one attempt for two pods."""
    found: api.ProvisioningRequest = read(
        api.ProvisioningRequest,
        {
            "metadata": {"name": f"a-nodes-{attempt}", "namespace": "ns", "uid": f"uid-{attempt}"},
            "spec": {
                "provisioningClassName": CLASS,
                "podSets": [{"count": 2, "podTemplateRef": {"name": f"ppt-a-nodes-{attempt}-main"}}],
                **spec,
            },
            "status": {"conditions": [*conditions], "provisioningClassDetails": details or {}},
        },
    )
    return found


def facts(
    *requests: api.ProvisioningRequest,
    state: str = "Pending",
    retries: int | None = None,
    admitted: bool = False,
    active: bool = True,
    settings: JSON | None = None,
    annotations: dict[str, str] | None = None,
    delayed: bool = False,
    **entry: Any,
) -> Facts:
    """A workload of two pods, and its check; `delayed`: it waits for domains."""
    check = {
        "name": "nodes",
        "state": state,
        "message": "",
        "lastTransitionTime": SINCE,
        "retryCount": retries,
        **entry,
    }
    workload = gang(pods(cpu="1"))
    workload["metadata"]["annotations"] = annotations or {}
    workload["spec"]["active"] = active
    workload["status"]["conditions"] = [condition("QuotaReserved"), condition("Admitted", str(admitted))]
    workload["status"]["admissionChecks"] = [check]
    if delayed:
        workload["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    obj: wire.Workload = read(wire.Workload, workload)
    chosen = config(**settings) if settings is not None else config()
    return Facts(workload=obj, entry=obj.status.admission_checks[0], config=chosen, requests=requests)


def told(kind: str, message: str = "why") -> JSON:
    return condition(kind, reason="X", message=message)


FAILED, REVOKED, EXPIRED = told("Failed"), told("CapacityRevoked"), told("BookingExpired")
PROVISIONED, ACCEPTED = told("Provisioned"), told("Accepted")
AGAIN = "There is no request for its nodes any more; they are requested again"
ETA = condition("Provisioned", "False", message="in 5 minutes")


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(facts(request(FAILED)), ("Retry", "why", 60), id="17.1.7 Failed, the first attempt"),
        pytest.param(facts(request(FAILED, attempt=2), retries=1), ("Retry", "why", 120), id="17.1.7 the second"),
        pytest.param(facts(request(FAILED, attempt=3), retries=2), ("Retry", "why", 240), id="17.1.7 the third"),
        pytest.param(facts(request(FAILED, attempt=4), retries=3), ("Rejected", "why", None), id="17.1.7 the fourth"),
        pytest.param(
            facts(request(FAILED), settings={"retryStrategy": {"backoffLimitCount": 0}}),
            ("Rejected", "why", None),
            id="17.1.7 backoffLimitCount 0",
        ),
        pytest.param(
            facts(request(FAILED, attempt=9), retries=8, settings={"retryStrategy": {"backoffLimitCount": 99}}),
            ("Retry", "why", 1800),
            id="17.1.7 the longest wait",
        ),
        pytest.param(
            facts(
                request(FAILED, attempt=99),
                retries=98,
                settings={"retryStrategy": {"backoffLimitCount": 99, "backoffMaxSeconds": 2**31 - 1}},
            ),
            ("Retry", "why", 2**31 - 1),
            id="a wait that the schema can hold",
        ),
        pytest.param(
            facts(request(FAILED), settings={"retryStrategy": {"backoffBaseSeconds": -9}}),
            ("Retry", "why", 0),
            id="a config with a negative wait",
        ),
        pytest.param(
            facts(request(FAILED), retries=1), ("Pending", "why", None), id="17.1.7 already retried: the message alone"
        ),
        pytest.param(facts(request(REVOKED)), ("Rejected", "why", None), id="17.1.7 CapacityRevoked"),
        pytest.param(
            facts(request(REVOKED, PROVISIONED), admitted=True, state="Ready"),
            ("Rejected", "why", None),
            id="17.1.7 CapacityRevoked after admission",
        ),
        pytest.param(facts(request(REVOKED), active=False), None, id="17.1.7 CapacityRevoked of an inactive workload"),
        pytest.param(
            facts(request(EXPIRED, PROVISIONED)), ("Retry", "why", 60), id="17.1.7 BookingExpired before admission"
        ),
        pytest.param(
            facts(request(EXPIRED, PROVISIONED), admitted=True, state="Ready"),
            None,
            id="17.1.7 BookingExpired after admission",
        ),
        pytest.param(
            facts(request(REVOKED, EXPIRED)), ("Rejected", "why", None), id="17.1.7 CapacityRevoked before BookingExpired"
        ),
        pytest.param(facts(request(FAILED, REVOKED)), ("Retry", "why", 60), id="17.1.7 Failed before CapacityRevoked"),
        pytest.param(facts(request(PROVISIONED, ACCEPTED)), ("Ready", "why", None), id="17.1.7 Provisioned"),
        pytest.param(
            facts(request(ACCEPTED, ETA)), ("Pending", "in 5 minutes", None), id="17.1.7 Accepted, with an ETA"
        ),
        pytest.param(facts(request(ACCEPTED)), None, id="17.1.7 Accepted, without a word"),
        pytest.param(facts(request(), message="before"), ("Pending", "", None), id="17.1.7 no condition"),
        pytest.param(facts(request(), state="Ready"), None, id="16.1 a Ready check does not go back to Pending"),
        pytest.param(facts(), None, id="17.1.7 no request yet"),
        pytest.param(facts(state="Ready"), None, id="17.1.7 an answered check needs no request"),
        pytest.param(
            facts(state="Ready", delayed=True), ("Retry", AGAIN, 60), id="it waits for domains: nobody makes nodes for it"
        ),
        pytest.param(
            facts(request(provisioningClassName="mine"), state="Ready", delayed=True, retries=1), ("Retry", AGAIN, 120),
            id="so if the config has changed",
        ),
        pytest.param(facts(state="Ready", delayed=True, admitted=True), None, id="it is admitted already"),
        pytest.param(facts(delayed=True), None, id="its check is not answered"),
        pytest.param(facts(request(PROVISIONED), state="Ready", delayed=True), ("Ready", "why", None), id="it has a request"),
    ],
)  # fmt: skip
def test_conditions_are_the_state_of_the_check(asked: Facts, want: tuple[str, str, int | None] | None) -> None:
    answer = decide(asked).answer
    assert (None if answer is None else (answer.state, answer.message, answer.seconds)) == want


def test_pods_get_the_request_and_the_labels_of_its_nodes() -> None:
    """17.1.7: missing details are left out."""
    selector = [
        {"key": "example.com/nodes", "valueFromProvisioningClassDetail": "Group"},
        {"key": "example.com/none", "valueFromProvisioningClassDetail": "None"},
    ]
    answer = decide(
        facts(request(PROVISIONED, details={"Group": "g7"}), settings={"podSetUpdates": {"nodeSelector": selector}})
    ).answer

    assert answer is not None
    assert answer.updates == (
        {
            "name": "main",
            "annotations": {
                "autoscaling.x-k8s.io/consume-provisioning-request": "a-nodes-1",
                "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
            },
            "nodeSelector": {"example.com/nodes": "g7"},
        },
    )


OTHER_CLASS: dict[str, Any] = {"provisioningClassName": "other"}


@pytest.mark.parametrize(
    ("asked", "active", "create"),
    [
        pytest.param(facts(), None, 1, id="17.1.8 none exists"),
        pytest.param(facts(retries=2), None, 3, id="17.1.4 the attempt starts behind the retries"),
        pytest.param(facts(state="Ready"), None, None, id="17.1.7 an answered check needs no request"),
        pytest.param(facts(state="Retry"), None, None, id="17.1.8 the check is not Pending again"),
        pytest.param(facts(request()), 1, None, id="17.1.8 one exists"),
        pytest.param(facts(request(FAILED)), 1, None, id="17.1.8 it failed, and that is not counted yet"),
        pytest.param(facts(request(FAILED), retries=1), 1, 2, id="17.1.8 it failed, and the check is Pending again"),
        pytest.param(facts(request(FAILED), retries=1, state="Retry"), 1, None, id="17.1.8 it is not Pending yet"),
        pytest.param(facts(request(EXPIRED), retries=1), 1, 2, id="17.1.8 BookingExpired before admission"),
        pytest.param(facts(request(EXPIRED), retries=1, admitted=True), 1, None, id="17.1.8 BookingExpired after it"),
        pytest.param(facts(request(attempt=1), request(attempt=2)), 2, None, id="17.1.6 the highest attempt"),
        pytest.param(
            facts(request(attempt=1), request(attempt=2, **OTHER_CLASS)), 1, None, id="17.1.6 of those that match"
        ),
        pytest.param(facts(request(attempt=2, **OTHER_CLASS)), None, 2, id="17.1.6 another class: the same attempt"),
        pytest.param(
            facts(request(parameters={"zone": "a"}), settings={"parameters": {"zone": "b"}}),
            None,
            1,
            id="17.1.6 another parameter",
        ),
        pytest.param(
            facts(request(parameters={"zone": "b", "more": "1"}), settings={"parameters": {"zone": "b"}}),
            1,
            None,
            id="17.1.6 all parameters of the config",
        ),
        pytest.param(
            facts(
                request(parameters={"zone": "mine"}),
                settings={"parameters": {"zone": "b"}},
                annotations={"provreq.kueue.x-k8s.io/zone": "mine"},
            ),
            1,
            None,
            id="17.1.5 a parameter that the workload sets itself",
        ),
        pytest.param(
            facts(request(podSets=[{"count": 9, "podTemplateRef": {"name": "x"}}])), None, 1, id="another number of pods"
        ),
        pytest.param(
            facts(request(PROVISIONED, podSets=[{"count": 9}]), admitted=True, state="Ready"),
            1,
            None,
            id="another number of pods after the answer",
        ),
    ],
)  # fmt: skip
def test_requests_to_keep_and_to_create(asked: Facts, active: int | None, create: int | None) -> None:
    decision = decide(asked)
    kept = decision.active.metadata.name if decision.active is not None else None
    assert kept == (f"a-nodes-{active}" if active is not None else None)
    assert decision.create == create


def test_pods_that_need_no_nodes_make_the_check_ready() -> None:
    """17.1.2: at once; its requests go."""
    decision = decide(facts(request(), settings={"managedResources": ["nvidia.com/gpu"]}))
    assert decision.answer is not None
    assert (decision.active, decision.create, decision.answer.state) == (None, None, "Ready")


@pytest.mark.parametrize(("state", "answers"), [("Pending", True), ("Ready", False), ("Retry", False)])
def test_without_a_config_the_check_is_not_active(state: str, answers: bool) -> None:
    """17.1.3, 17.1.6: it loses its request; what was answered stays."""
    asked = facts(request(PROVISIONED), state=state)
    decision = decide(replace(asked, config=None))
    assert (decision.active, decision.create) == (None, None)
    assert (decision.answer is not None and "not active" in decision.answer.message) is answers


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(
            facts(request(FAILED, attempt=2), retries=1, requeueAfterSeconds=60),
            {"state": "Retry", "message": "why", "lastTransitionTime": NOW, "requeueAfterSeconds": 120, "retryCount": 1},
            id="another state",
        ),
        pytest.param(
            facts(request(ACCEPTED, ETA), retries=1, requeueAfterSeconds=60),
            {"state": "Pending", "message": "in 5 minutes", "lastTransitionTime": SINCE, "requeueAfterSeconds": 60, "retryCount": 1},
            id="the same state keeps its time",
        ),
        pytest.param(
            facts(request(REVOKED), state="Ready", admitted=True, podSetUpdates=[{"name": "main", "labels": {"a": "b"}}]),
            {"state": "Rejected", "message": "why", "lastTransitionTime": NOW},
            id="updates are replaced",
        ),
    ],
)  # fmt: skip
def test_an_entry_is_written_as_a_whole(asked: Facts, want: JSON) -> None:
    """16.1: the transition time changes only with the state, retryCount is kept, all else is replaced."""
    answer = decide(asked).answer
    assert answer is not None
    assert new_entry(asked.entry, answer, NOW) == {"name": "nodes", **want}
    again: wire.AdmissionCheckState = msgspec.convert({"name": "nodes", **want}, wire.AdmissionCheckState)
    assert new_entry(again, answer, "later")["lastTransitionTime"] == want["lastTransitionTime"]
