"""The entries of the how-to on declared kinds: each reads a manifest, starts it, stops it and sees its end."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import parse
from kqueue.jobs.declared import Declared
from kqueue.jobs.kind import PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures

JSON = dict[str, Any]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "declare-kinds.md"
KINDS = {
    declared.kind: Declared(declared)
    for declared in parse(
        re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0], source=PAGE.name
    ).integrations.declared_kinds
}
SWITCHES = JobFeatures()


def pods(cpu: str, **more: Any) -> JSON:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **more}}


EXPERIMENT: JSON = {
    "leader": {"port": 80, "template": pods("1")},
    "groups": [
        {"name": "Small", "replicas": 2, "least": 0, "template": pods("2")},
        {"name": "large", "replicas": 3, "template": pods("8", nodeSelector={"pool": "a"})},
    ],
}
MANIFESTS: dict[str, tuple[JSON, JSON, JSON]] = {
    "Experiment": (
        {"suspend": True, **EXPERIMENT},
        {"phase": "Running", "pods": "ready"},
        {"phase": "Succeeded", "message": "done", "pods": "ready"},
    ),
    "Server": (
        {"suspend": True, "replicas": 3, "template": pods("1")},
        {"conditions": [{"type": "Available", "status": "True"}]},
        {},
    ),
}
"""By kind: a spec, a status when all pods are ready, and one after its success."""
POD_SETS = {
    "Experiment": [("leader", 1), ("small", 2), ("large", 3)],
    "Server": [("main", 3)],
}


def test_each_entry_has_a_manifest() -> None:
    assert set(KINDS) == set(MANIFESTS) == set(POD_SETS)


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_entry_follows_an_object_of_its_kind(name: str) -> None:
    """Its pod sets, its start and its stop, and what its controller says."""
    kind, (spec, running, ended) = KINDS[name], MANIFESTS[name]
    gvk = kind.gvk
    obj: JSON = {
        "apiVersion": f"{gvk.group}/{gvk.version}",
        "kind": name,
        "metadata": {"name": "sample", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": copy.deepcopy(spec),
        "status": {},
    }
    found = kind.pod_sets(obj, SWITCHES)
    assert [(p["name"], p["count"]) for p in found] == POD_SETS[name]
    assert (kind.is_suspended(obj), kind.finished(obj), kind.pods_ready(obj)) == (True, None, False)

    infos = [PodSetInfo(name=p["name"], count=p["count"], node_selector={"zone": "b"}) for p in found]
    start = kind.start(obj, infos)
    assert not isinstance(start, Refused)
    started = apply_merge_patch(obj, start)
    assert not kind.is_suspended(started)
    selectors = [p["template"]["spec"]["nodeSelector"] for p in kind.pod_sets(started, SWITCHES)]
    assert all(selector["zone"] == "b" for selector in selectors)
    assert kind.pods_ready({**started, "status": running})

    own = [
        PodSetInfo(name=p["name"], count=p["count"], node_selector=p["template"]["spec"].get("nodeSelector", {}))
        for p in found
    ]
    (step,) = kind.stop(started, own)
    stopped = apply_merge_patch(started, step.patch)
    assert kind.is_suspended(stopped)
    assert [p["template"]["spec"].get("nodeSelector", {}) for p in kind.pod_sets(stopped, SWITCHES)] == [
        p["template"]["spec"].get("nodeSelector", {}) for p in found
    ]

    done = kind.finished({**started, "status": ended})
    assert (done is not None and done.success) is (name != "Server")
    assert kind.finished({**started, "status": running}) is None


def test_a_failure_is_seen() -> None:
    spec, status = MANIFESTS["Experiment"][0], {"phase": "Failed", "message": "worker died"}
    done = KINDS["Experiment"].finished({"spec": spec, "status": status})

    assert done is not None
    assert (done.success, done.message) == (False, "worker died")
