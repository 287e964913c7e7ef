"""The same requests to the sandbox and to the real API server: the answers must be the same.

Compared are status, reason, the fields that are complained of, and, of objects, spec and status and labels.  Not compared
are words, times, identities, and what only other parts of a cluster write.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.server import ApiServer
from tests.integration.controlplane.plane import ControlPlane
from tests.unit.sandbox.objects import definition

MERGE, STRATEGIC, JSON = (f"application/{kind}-patch+json" for kind in ("merge", "strategic-merge", "json"))
APPLY = "application/apply-patch+yaml"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
VOLATILE = frozenset(
    [
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "managedFields",
        "deletionTimestamp",
        "lastTransitionTime",
        "lastProbeTime",
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "selfLink",
    ]
)
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Step = tuple[str, str, str, Any]
"""A sentence, the method with the patch type, the path below the namespace, the body."""


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1500m", "memory": "1024Mi", "nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}}
    container = {"name": "c", "image": "img:v1", "resources": resources, "ports": [{"containerPort": 80}]}
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    base = {"schedulingGates": gates, "nodeSelector": {"a": "b"}, "containers": [container], "serviceAccountName": "x",
            "automountServiceAccountToken": False}  # fmt: skip
    return {"metadata": {"name": name}, "spec": {**base, **spec}}


def job(name: str = "j", pod_spec: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "img", "resources": {"requests": {"cpu": "0.5"}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, **(pod_spec or {})}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


def containers(**resources: Any) -> dict[str, Any]:
    return {"containers": [{"name": "a", "image": "b", "resources": resources}]}


def terms(*keys: str) -> dict[str, Any]:
    found = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in keys]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}}


PODS, JOBS, P, J = "/api/v1 pods", "/apis/batch/v1 jobs", "/api/v1 pods/p", "/apis/batch/v1 jobs/j"
POD_STEPS: list[Step] = [
    ("made with gates", "POST", PODS, pod()),
    ("made again", "POST", PODS, pod()),
    ("bad name", "POST", PODS, pod("P_x")),
    ("no containers", "POST", PODS, pod("q", containers=[])),
    ("no image", "POST", PODS, pod("q", containers=[{"name": "a"}])),
    ("bad restart policy", "POST", PODS, pod("q", restartPolicy="No")),
    ("bad selector", "POST", PODS, pod("q", nodeSelector={"a": "c!"})),
    ("gated and bound", "POST", PODS, pod("q", nodeName="n")),
    ("same gate twice", "POST", PODS, pod("q", schedulingGates=[{"name": "a"}, {"name": "a"}])),
    ("bad gate", "POST", PODS, pod("q", schedulingGates=[{"name": "a b"}])),
    ("seconds without effect", "POST", PODS, pod("q", tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 5}])),
    ("value without key", "POST", PODS, pod("q", tolerations=[{"operator": "Equal", "value": "x"}])),
    ("unknown effect", "POST", PODS, pod("q", tolerations=[{"key": "k", "operator": "Exists", "effect": "Huh"}])),
    ("asks for more than allowed", "POST", PODS, pod("q", **containers(requests={"cpu": 2}, limits={"cpu": 1}))),
    ("device without limit", "POST", PODS, pod("q", **containers(requests={"nvidia.com/gpu": "1"}))),
    ("less than nothing", "POST", PODS, pod("q", **containers(requests={"cpu": "-1"}))),
    ("no quantity", "POST", PODS, pod("q", **containers(requests={"cpu": "1x"}))),
    ("text for a number", "POST", PODS, pod("q", terminationGracePeriodSeconds="abc")),
    ("unknown priority class", "POST", PODS, pod("q", priorityClassName="nope")),
    ("priority by hand", "POST", PODS, pod("q", priority=7)),
    ("one gate less and aimed", MERGE, P, {"spec": {"schedulingGates": [{"name": "example.com/b"}], "nodeSelector": {"c": "d"}}}),
    ("aimed elsewhere", MERGE, P, {"spec": {"nodeSelector": {"a": "X"}}}),
    ("one gate more", MERGE, P, {"spec": {"schedulingGates": [{"name": "example.com/b"}, {"name": "example.com/n"}]}}),
    ("more tolerant", STRATEGIC, P, {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
    ("affinity", MERGE, P, {"spec": terms("a")}),
    ("affinity with another term", MERGE, P, {"spec": terms("a", "z")}),
    ("last gate gone", JSON, P, [{"op": "remove", "path": "/spec/schedulingGates"}]),
    ("aimed too late", MERGE, P, {"spec": {"nodeSelector": {"zz": "d"}}}),
    ("new image", STRATEGIC, P, {"spec": {"containers": [{"name": "c", "image": "img:v2"}]}}),
    ("new requests", STRATEGIC, P, {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}),
    ("deadline", MERGE, P, {"spec": {"activeDeadlineSeconds": 5}}),
    ("later deadline", MERGE, P, {"spec": {"activeDeadlineSeconds": 9}}),
    ("no deadline", MERGE, P, {"spec": {"activeDeadlineSeconds": None}}),
    ("node without binding", MERGE, P, {"spec": {"nodeName": "n"}}),
    ("status by the main door", MERGE, P, {"status": {"phase": "Running"}}),
    ("spec by the status door", MERGE, f"{P}/status", {"spec": {"nodeName": "q"}, "status": {"phase": "Running"}}),
    ("condition", STRATEGIC, f"{P}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ("stale", MERGE, P, {"metadata": {"resourceVersion": "1", "labels": {"a": "q"}}}),
    ("renamed", MERGE, P, {"metadata": {"name": "x"}}),
    ("impossible operation", JSON, P, [{"op": "remove", "path": "/spec/nope"}]),
]  # fmt: skip
AIM = {"metadata": {"annotations": {"x": "y"}, "labels": {"n": "o"}},
       "spec": {"nodeSelector": {"a": "b"}, "schedulingGates": [{"name": "g"}], **terms("a")}}  # fmt: skip
JOB_STEPS: list[Step] = [
    ("made", "POST", JOBS, job(completions=2, parallelism=2, completionMode="Indexed")),
    ("made with defaults", "POST", JOBS, job("plain")),
    ("restarts always", "POST", JOBS, job("x", {"restartPolicy": "Always"})),
    ("indexed without end", "POST", JOBS, job("x", completionMode="Indexed")),
    ("negative", "POST", JOBS, job("x", parallelism=-1)),
    ("text for a number", "POST", JOBS, job("x", parallelism="abc")),
    ("unknown mode", "POST", JOBS, job("x", completionMode="Foo")),
    ("selector by hand", "POST", JOBS, job("x", selector={"matchLabels": {"a": "b"}})),
    ("back-off per index", "POST", JOBS, job("y", completions=2, completionMode="Indexed", backoffLimitPerIndex=1)),
    ("aimed", MERGE, J, {"spec": {"template": AIM}}),
    ("affinity to pods", MERGE, J, {"spec": {"template": {"spec": {"affinity": {"podAffinity": {}}}}}}),
    ("new image", STRATEGIC, J, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}}),
    ("new requests", STRATEGIC, J, {"spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}}}),
    ("new priority", MERGE, J, {"spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}}),
    ("more completions", MERGE, J, {"spec": {"completions": 5}}),
    ("more of both", MERGE, J, {"spec": {"completions": 5, "parallelism": 5}}),
    ("another mode", MERGE, J, {"spec": {"completionMode": "NonIndexed"}}),
    ("generated label dropped", JSON, J, [{"op": "remove", "path": "/spec/template/metadata/labels/job-name"}]),
    ("aimed and started", MERGE, J, {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": {"a": "q"}}}}}),
    ("aimed while running", MERGE, J, {"spec": {"template": {"spec": {"nodeSelector": {"a": "z"}}}}}),
    ("has a start", MERGE, f"{J}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}}),
    ("suspended again", MERGE, J, {"spec": {"suspend": True}}),
    ("aimed after its start", MERGE, J, {"spec": {"template": {"spec": {"nodeSelector": {"a": "z"}}}}}),
    ("start taken back", MERGE, f"{J}/status", {"status": {"startTime": None}}),
    ("restored", MERGE, J, {"spec": {"template": {"spec": {"nodeSelector": None, "affinity": None}}}}),
]  # fmt: skip
T = "/apis/example.com/v1 things"
THING_STEPS: list[Step] = [
    ("made", "POST", T, {"metadata": {"name": "t"}, "spec": {"n": 3, "junk": 1, "parts": [{"name": "x"}], "amount": "5"}}),
    ("strict", "POST", f"{T}?fieldValidation=Strict", {"metadata": {"name": "u"}, "spec": {"junk": 1}}),
    ("all wrong", "POST", T, {"metadata": {"name": "u"}, "spec": {"color": "green", "n": 9, "word": "ABCDE", "tags": ["a", "a"], "amount": True}}),
    ("no version", "PUT", f"{T}/t", {"metadata": {"name": "t"}, "spec": {"n": 3}}),
    ("patched", MERGE, f"{T}/t", {"spec": {"n": 4}, "status": {"phase": "no"}}),
    ("strategic", STRATEGIC, f"{T}/t", {"spec": {"n": 4}}),
    ("status", MERGE, f"{T}/t/status", {"metadata": {"labels": {"a": "b"}}, "spec": {"n": 5}, "status": {"phase": "yes"}}),
    ("first apply", APPLY, f"{T}/s?fieldManager=one", {"metadata": {"name": "s"}, "spec": {"n": 3, "parts": [{"name": "a", "size": 1}, {"name": "b"}], "tags": ["x"]}}),
    ("second manager", APPLY, f"{T}/s?fieldManager=two", {"metadata": {"name": "s"}, "spec": {"parts": [{"name": "c"}], "tags": ["y"], "word": "abc"}}),
    ("conflict", APPLY, f"{T}/s?fieldManager=two", {"metadata": {"name": "s"}, "spec": {"n": 4, "parts": [{"name": "a", "size": 2}]}}),
    ("forced", APPLY, f"{T}/s?fieldManager=two&force=true", {"metadata": {"name": "s"}, "spec": {"n": 4}}),
    ("applies less", APPLY, f"{T}/s?fieldManager=one", {"metadata": {"name": "s"}, "spec": {"parts": [{"name": "a", "size": 1}]}}),
    ("edited", MERGE, f"{T}/s?fieldManager=hand", {"spec": {"n": 5}}),
    ("conflict with the edit", APPLY, f"{T}/s?fieldManager=two", {"metadata": {"name": "s"}, "spec": {"n": 1}}),
]  # fmt: skip
MAPS, C = "/api/v1 configmaps", "/api/v1 configmaps/c"


def config_map(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}}


MAP_STEPS: list[Step] = [
    ("made", "POST", MAPS, config_map(labels={"a": "b"})),
    ("made again", "POST", MAPS, config_map()),
    ("no name", "POST", MAPS, {"metadata": {}}),
    ("another kind", "POST", MAPS, {"kind": "Secret", "apiVersion": "v1", **config_map("d")}),
    ("another version", "POST", MAPS, {"kind": "ConfigMap", "apiVersion": "v2", **config_map("d")}),
    ("with a version", "POST", MAPS, config_map("d", resourceVersion="1")),
    ("in another namespace", "POST", MAPS, config_map("d", namespace="other")),
    ("number for a text", "POST", MAPS, {**config_map("d"), "data": {"a": 1}}),
    ("unknown field", "POST", MAPS, {**config_map("d"), "dat": {}}),
    ("unknown field, strictly", "POST", f"{MAPS}?fieldValidation=Strict", {**config_map("e"), "dat": {}}),
    ("bad validation", "POST", f"{MAPS}?fieldValidation=Maybe", config_map("e")),
    ("bad dry run", "POST", f"{MAPS}?dryRun=Some", config_map("e")),
    ("dry run", "POST", f"{MAPS}?dryRun=All", config_map("e")),
    ("bad label", "POST", MAPS, config_map("e", labels={"a b": "c d"})),
    ("bad annotation", "POST", MAPS, config_map("e", annotations={"a b": "c d"})),
    ("foreign finalizers", "POST", MAPS, config_map("e", finalizers=["x", "a b", "orphan", "example.com/x"])),
    ("half an owner", "POST", MAPS, config_map("e", ownerReferences=[{"kind": "x"}])),
    ("two controllers", "POST", MAPS, config_map("e", ownerReferences=[{"apiVersion": "v1", "kind": "x", "name": n, "uid": n, "controller": True} for n in "ab"])),
    ("put", "PUT", C, {**config_map(), "data": {"a": "1"}}),
    ("put under a stale version", "PUT", C, config_map(resourceVersion="1")),
    ("put under another name", "PUT", C, config_map("d")),
    ("put what is not there", "PUT", f"{MAPS}/zz", config_map("zz")),
    ("patched strictly", MERGE, f"{C}?fieldValidation=Strict", {"dat": {}}),
    ("patched with a number", MERGE, C, {"data": {"a": 1}}),
    ("patched with a number, by strategy", STRATEGIC, C, {"data": {"a": 1}}),
    ("a test that fails", JSON, C, [{"op": "test", "path": "/data/a", "value": "2"}]),
    ("an unknown operation", JSON, C, [{"op": "twist", "path": "/data/a"}]),
    ("no list of operations", JSON, C, {"op": "add"}),
    ("a list for an object", MERGE, C, []),
    ("an unknown patch", "application/x-patch", C, {}),
    ("patched what is not there", MERGE, f"{MAPS}/zz", {}),
    ("immutable", MERGE, C, {"immutable": True}),
    ("mutated", MERGE, C, {"data": {"a": "3"}}),
    ("no status", MERGE, f"{C}/status", {}),
    ("no scale", "GET", f"{C}/scale", None),
    ("unknown kind", "GET", "/api/v1 nothings", None),
    ("unknown group", "GET", "/apis/no.such/v1 nothings", None),
    ("missing", "GET", f"{MAPS}/zz", None),
    ("deleted under another uid", "DELETE", C, {"preconditions": {"uid": "x"}}),
    ("bad propagation", "DELETE", C, {"propagationPolicy": "Sideways"}),
    ("a dry run in the query", "DELETE", f"{C}?dryRun=All", None),
    ("a dry run in the body", "DELETE", C, {"dryRun": ["All"]}),
    ("a query beside a body, which counts alone", "DELETE", f"{C}?dryRun=All", {"propagationPolicy": "Background"}),
    ("gone", "GET", C, None),
]  # fmt: skip
DEPLOYMENTS, S = "/apis/apps/v1 deployments", "/apis/apps/v1 deployments/d/scale"
LABELS = {"app": "d"}
DEPLOYMENT = {"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": {"matchLabels": LABELS, "matchExpressions": [{"key": "x", "operator": "In", "values": ["b", "a"]}]}, "template": {"metadata": {"labels": {**LABELS, "x": "a"}}, "spec": {"containers": [{"name": "c", "image": "img:v1"}]}}}}  # fmt: skip
SCALE_STEPS: list[Step] = [
    ("made", "POST", DEPLOYMENTS, DEPLOYMENT),
    ("read", "GET", S, None),
    ("patched", MERGE, S, {"spec": {"replicas": 3}}),
    ("patched by operation", JSON, S, [{"op": "replace", "path": "/spec/replicas", "value": 4}]),
    ("below zero", MERGE, S, {"spec": {"replicas": -1}}),
    ("text for a number", MERGE, S, {"spec": {"replicas": "a"}}),
    ("stale", MERGE, S, {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 5}}),
    ("put", "PUT", S, {"metadata": {"name": "d"}, "spec": {"replicas": 6}}),
    ("put nothing", "PUT", S, {"metadata": {"name": "d"}, "spec": {}}),
    ("counted", "GET", f"{DEPLOYMENTS}/d", None),
    ("posted", "POST", S, {}),
    ("deleted", "DELETE", S, None),
    ("of what is not there", "GET", f"{DEPLOYMENTS}/e/scale", None),
    ("of what has none", "GET", "/apis/batch/v1 jobs/j/scale", None),
    ("of a custom kind that has none", "GET", "/apis/example.com/v1 things/t/scale", None),
]  # fmt: skip
READ_STEPS: list[Step] = [
    ("made", "POST", MAPS, config_map(labels={"a": "b"})),
    *(
        (query, "GET", f"{MAPS}?{query}", None)
        for query in (
            "labelSelector=a=b",
            "labelSelector=a%20b",
            "labelSelector=a%20in%20()",
            "labelSelector=a%20in%20(b",
            "labelSelector=!a%3Db",
            "labelSelector=-a=b",
            "labelSelector=a=b%20c",
            "fieldSelector=metadata.name=c",
            "fieldSelector=spec.x=c",
            "fieldSelector=metadata.name",
            "fieldSelector=metadata.name=c,metadata.namespace!=d",
            "limit=1",
            "limit=x",
            "limit=-1",
            "continue=zzz",
            "resourceVersion=x",
            "resourceVersion=0",
            "resourceVersion=-1",
            "resourceVersion=99999999999",
            "resourceVersion=1&resourceVersionMatch=Sideways",
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=Exact&continue=zzz",
            "timeoutSeconds=x",
            "sendInitialEvents=true",
            "watch=true&sendInitialEvents=true",
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "watch=true&labelSelector=a%20b",
            "watch=true&fieldSelector=spec.x=c",
            "watch=true&timeoutSeconds=x",
        )
    ),
]


TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {
        "restartPolicy": "Always",
        "nodeSelector": {"a": "b"},
        "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}],
    },
}
PODS_OF = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
RBAC, NAMED = "/apis/rbac.authorization.k8s.io/v1", {"metadata": {"name": "printed"}}
CRON = {"schedule": "* * * * *", "timeZone": "Etc/UTC", "jobTemplate": {"spec": job()["spec"]}}
SUBJECTS = [
    {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
    {"kind": "User", "name": "v", "apiGroup": "rbac.authorization.k8s.io"},
    {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
]
ROLE = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
PRINTED: list[tuple[str, dict[str, Any]]] = [
    (PODS, pod("printed")),
    (JOBS, job("printed", completions=3, parallelism=2)),
    ("/apis/batch/v1 cronjobs", {**NAMED, "spec": CRON}),
    ("/apis/apps/v1 deployments", {**NAMED, "spec": PODS_OF}),
    ("/apis/apps/v1 replicasets", {**NAMED, "spec": PODS_OF}),
    ("/apis/apps/v1 statefulsets", {**NAMED, "spec": {**PODS_OF, "serviceName": "s"}}),
    ("/apis/apps/v1 daemonsets", {**NAMED, "spec": PODS_OF}),
    (MAPS, {**NAMED, "data": {"a": "b"}}),
    ("/api/v1 secrets", {**NAMED, "stringData": {"a": "b"}}),
    ("/api/v1 serviceaccounts", NAMED),
    ("/api/v1 resourcequotas", {**NAMED, "spec": {"hard": {"cpu": "1"}}}),
    ("/api/v1 limitranges", {**NAMED, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
    ("/apis/policy/v1 poddisruptionbudgets", {**NAMED, "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}}),
    ("/apis/networking.k8s.io/v1 networkpolicies", {**NAMED, "spec": {"podSelector": {"matchLabels": LABELS}}}),
    (f"{RBAC} roles", {**NAMED, "rules": []}),
    (f"{RBAC} rolebindings", {**NAMED, "roleRef": ROLE, "subjects": SUBJECTS}),
    ("/apis/coordination.k8s.io/v1 leases", {**NAMED, "spec": {"holderIdentity": "me"}}),
    (T, {**NAMED, "spec": {"n": 3}}),
]  # fmt: skip


def event(name: str, **fields: Any) -> dict[str, Any]:
    """One of events.k8s.io, about a pod."""
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "happenings", "name": "p"}
    base = {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/x", "action": "Try",
            "reportingInstance": "x-1", "reason": "Tried", "note": "n", "type": "Normal", "regarding": about}  # fmt: skip
    return {"metadata": {"name": name}, **base, **fields}


def core_event(name: str, **fields: Any) -> dict[str, Any]:
    """One of the core group, about a pod, with all fields that kqueue writes."""
    new = event(name)
    base = {"eventTime": new["eventTime"], "reportingComponent": "example.com/x", "message": "n", "count": 1,
            "involvedObject": new["regarding"], "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "example.com/x"}}  # fmt: skip
    kept = {key: new[key] for key in ("metadata", "action", "reportingInstance", "reason", "type")}
    return {**kept, **base, **fields}


NEW_EVENTS, CORE_EVENTS = "/apis/events.k8s.io/v1 events", "/api/v1 events"
EVENT_STEPS: list[Step] = [
    ("new", "POST", NEW_EVENTS, event("new")),
    ("without a time", "POST", NEW_EVENTS, event("a", eventTime=None)),
    ("without words", "POST", NEW_EVENTS, event("a", reason="", action="", reportingInstance="")),
    ("without a controller", "POST", NEW_EVENTS, event("a", reportingController="")),
    ("long words", "POST", NEW_EVENTS, event("a", reason="R" * 129, action="A" * 129, note="n" * 1025)),
    ("an odd type", "POST", NEW_EVENTS, event("a", type="Odd")),
    ("a first time", "POST", NEW_EVENTS, event("a", deprecatedFirstTimestamp="2026-01-01T00:00:00Z")),
    ("a last time", "POST", NEW_EVENTS, event("a", deprecatedLastTimestamp="2026-01-01T00:00:00Z")),
    ("a count", "POST", NEW_EVENTS, event("a", deprecatedCount=2)),
    ("a source", "POST", NEW_EVENTS, event("a", deprecatedSource={"component": "x"})),
    ("core", "POST", CORE_EVENTS, core_event("core")),
    ("core, as older controllers write it", "POST", CORE_EVENTS, core_event("old", eventTime=None, action="")),
    ("core without words", "POST", CORE_EVENTS, core_event("a", reason="", action="", reportingInstance="")),
    ("core without a component", "POST", CORE_EVENTS, core_event("a", reportingComponent="")),
    ("core with long words", "POST", CORE_EVENTS, core_event("a", reason="R" * 129, message="n" * 1025)),
    ("core about an object without a namespace", "POST", CORE_EVENTS, core_event("a", involvedObject={"kind": "Node"})),
    ("a repeat", MERGE, f"{CORE_EVENTS}/core", {"count": 2, "lastTimestamp": "2026-01-01T00:00:09Z"}),
    ("all", "GET", CORE_EVENTS, None),
]


class Side:
    """One of the two servers, with a namespace of its own."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self._session, self._namespace = session, namespace

    async def send(self, method: str, path: str, body: Any, kind: str = "application/json") -> tuple[int, Any]:
        headers = {"Content-Type": kind}
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else {}

    async def prepare(self) -> None:
        """The namespace, and the custom kind, once it is served."""
        assert (await self.send("POST", "/api/v1/namespaces", {"metadata": {"name": self._namespace}}))[0] == 201
        await self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        async with asyncio.timeout(30):
            while (await self.send("GET", "/apis/example.com/v1/things", None))[0] != 200:
                await asyncio.sleep(0.05)

    async def answer(self, method: str, path: str, body: Any) -> Any:
        """What is compared."""
        group, _, rest = path.partition(" ")
        verb, kind = ("PATCH", method) if "/" in method else (method, "application/json")
        is_thing = "example" in group and body is not None
        sent = {"apiVersion": "example.com/v1", "kind": "Thing", **body} if is_thing else body
        status, found = await self.send(verb, f"{group}/namespaces/{self._namespace}/{rest}", sent, kind)
        if status >= 400:
            return status, found.get("reason"), complaints(found)
        if "items" in found:
            return status, [each["metadata"]["name"] for each in found["items"]]
        return status, normal({key: found.get(key) for key in ("spec", "status")}), found["metadata"].get("generation")

    async def printed(self, collection: str, body: Any) -> Any:
        """How kubectl is told to print an object that is made now, and its row without times."""
        group, _, plural = collection.partition(" ")
        path = f"{group}/namespaces/{self._namespace}/{plural}"
        sent = {"apiVersion": "example.com/v1", "kind": "Thing", **body} if "example" in group else body
        status, found = await self.send("POST", path, sent)
        assert status == 201, found
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
        async with self._session.get(f"{path}/printed", headers=accept) as answer:
            table = await answer.json()
        columns = [
            tuple(each[key] for key in ("name", "type", "format", "priority")) for each in table["columnDefinitions"]
        ]
        [row] = table["rows"]
        cells = [UID.sub("", cell) if isinstance(cell, str) else cell for cell in row["cells"]]
        return [(c, cell) for c, cell in zip(columns, cells, strict=True) if c[0] not in ("Age", "Created At")]


def complaints(status: Any) -> list[tuple[str, str]]:
    """Reasons and fields of a Status."""
    causes = (status.get("details") or {}).get("causes") or ()
    return sorted((each.get("reason", ""), each.get("field", "")) for each in causes)


def normal(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items() if key not in VOLATILE}
    return [normal(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def bare_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The real API server alone, where nobody else writes."""
    started = ControlPlane.start(tmp_path_factory.mktemp("bare"))
    with asyncio.Runner() as runner:
        plane = runner.run(started.__aenter__())
        yield plane
        runner.run(started.__aexit__(None, None, None))


@pytest.mark.controlplane
@pytest.mark.xdist_group("controlplane")
@pytest.mark.parametrize(
    ("namespace", "steps"),
    [
        pytest.param("pods", POD_STEPS, id="pods"),
        pytest.param("jobs", JOB_STEPS, id="jobs"),
        pytest.param("things", THING_STEPS, id="custom-kinds"),
        pytest.param("maps", MAP_STEPS, id="config-maps"),
        pytest.param("scales", SCALE_STEPS, id="scales"),
        pytest.param("happenings", EVENT_STEPS, id="events"),
        pytest.param("reads", READ_STEPS, id="reads"),
    ],
)
async def test_both_servers_answer_alike(bare_plane: ControlPlane, namespace: str, steps: list[Step]) -> None:
    """Step by step, each on the state that the steps before it have left."""
    server = ApiServer(ClusterApi())
    await server.start()
    try:
        async with bare_plane.cluster.access.session() as theirs, aiohttp.ClientSession(server.url) as ours:
            real, sandbox = Side(theirs, namespace), Side(ours, namespace)
            await real.prepare()
            await sandbox.prepare()
            for sentence, method, path, body in steps:
                wanted = await real.answer(method, path, body)
                assert await sandbox.answer(method, path, body) == wanted, sentence
    finally:
        await server.stop()


@pytest.mark.controlplane
@pytest.mark.xdist_group("controlplane")
async def test_both_servers_print_alike(bare_plane: ControlPlane) -> None:
    """Columns and cells of kubectl get, for a fresh object of each kind, the hidden columns of -o wide included."""
    server = ApiServer(ClusterApi())
    await server.start()
    try:
        async with bare_plane.cluster.access.session() as theirs, aiohttp.ClientSession(server.url) as ours:
            real, sandbox = Side(theirs, "printed"), Side(ours, "printed")
            await real.prepare()
            await sandbox.prepare()
            rows = {each: (await sandbox.printed(each, body), await real.printed(each, body)) for each, body in PRINTED}
            assert {each: pair for each, pair in rows.items() if pair[0] != pair[1]} == {}
    finally:
        await server.stop()
