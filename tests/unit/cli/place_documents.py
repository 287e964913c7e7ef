"""Placement documents for tests: hosts `block/rack/host`, pods of one cpu."""

from __future__ import annotations

import json
from typing import Any

from kqueue.placing.run import Answer, run

JSON = dict[str, Any]
HOST = "kubernetes.io/hostname"
LEVELS = ["block", "rack", HOST]


def make_host(path: str, *, cpu: int | str = 8, **changes: Any) -> JSON:
    """The node `node-HOST` of the host BLOCK/RACK/HOST.  `labels` come on top of those of the levels."""
    block, rack, host = path.split("/")
    labels = {"block": block, "rack": rack, HOST: host, **changes.pop("labels", {})}
    return {"name": f"node-{host}", "labels": labels, "allocatable": {"cpu": cpu, "pods": 110}, **changes}


def make_pods(count: int, name: str = "main", *, cpu: int | str = 1, **changes: Any) -> JSON:
    """A pod set.  `required`, `preferred` and `slices` (pairs of level and size) become its topology request."""
    request: JSON = {key: changes.pop(key) for key in ("required", "preferred", "unconstrained") if key in changes}
    if "slices" in changes:
        layers = [{"topology": level, "size": size} for level, size in changes.pop("slices")]
        request["podsetSliceRequiredTopologyConstraints"] = layers
    pods: JSON = {"name": name, "count": count, "requests": {"cpu": cpu}}
    if request:
        pods["topologyRequest"] = request
    return {**pods, **changes}


def make_document(*hosts: JSON | str, pods: list[JSON] | None = None, **changes: Any) -> JSON:
    """A document with these hosts (a text: eight cpu there); without any, two racks of two hosts."""
    nodes = hosts or ("b1/r1/h1", "b1/r1/h2", "b1/r2/h3", "b1/r2/h4")
    return {
        "topology": {"levels": [*LEVELS]},
        "nodes": [make_host(host) if isinstance(host, str) else host for host in nodes],
        "podSets": [make_pods(1)] if pods is None else pods,
        **changes,
    }


def ask(document: Any) -> Answer:
    """The answer to a document."""
    return run(json.dumps(document).encode())


def where(answer: Answer, name: str = "main") -> dict[str, int]:
    """Pods per domain of a placed pod set, in the order of the answer; domains are written joined by slashes."""
    (entry,) = (found for found in answer.document["podSets"] if found["name"] == name)
    assert entry["status"] == "Placed", entry
    return {"/".join(domain["values"]): domain["count"] for domain in entry["assignment"]["domains"]}


def statuses(answer: Answer) -> dict[str, str]:
    """Status by pod set."""
    return {entry["name"]: entry["status"] for entry in answer.document["podSets"]}


def failure(answer: Answer, name: str = "main") -> JSON:
    """Why a pod set was not placed."""
    (entry,) = (found for found in answer.document["podSets"] if found["name"] == name)
    found: JSON = entry["failure"]
    return found


def problems(answer: Answer) -> dict[str, str]:
    """Problems by pointer."""
    assert answer.document["error"]["code"] == "InvalidInput"
    return {found["path"]: found["problem"] for found in answer.document["error"]["problems"]}
