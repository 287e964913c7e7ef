"""AppWrapper, and a double of its controller.

An AppWrapper that is not suspended has the objects of its components, with what stands beside each manifest merged into
the pod templates; a suspended one has none.  Its conditions and phases follow from the pods.  Source: the
AppWrapper project.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kqueue.kinds import FRAMEWORKS, Kind
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import CustomDouble, owned_by, playing

Object = dict[str, Any]
ROW = FRAMEWORKS["workload.codeflare.dev/appwrapper"]
LABEL = "workload.codeflare.dev/appwrapper"
TEMPLATE = ("spec", "template")
"""Where the pod template of a Job is; the double knows no other kind with pods."""
_COLLECTIONS = {"Job": "/apis/batch/v1/namespaces/{}/jobs", "ConfigMap": "/api/v1/namespaces/{}/configmaps"}


@asynccontextmanager
async def appwrappers_run(cluster: Cluster) -> AsyncIterator[None]:
    """AppWrappers of Jobs and ConfigMaps have a controller while the block runs."""
    async with playing(AppWrapperDouble(cluster.access, [ROW]).run()):
        yield


class AppWrapperDouble(CustomDouble):
    async def look(self, row: Kind, obj: Object) -> None:
        if obj.get("status", {}).get("phase") == "Succeeded":
            return
        namespace, label = obj["metadata"]["namespace"], f"{LABEL}={obj['metadata']['name']}"
        pods = await self.found(f"/api/v1/namespaces/{namespace}/pods", label)
        suspended, left = obj["spec"].get("suspend"), 0
        for kind, path in _COLLECTIONS.items():
            there = await self.found(path.format(namespace), label)
            left += len(there)
            if suspended:
                await self.delete(path.format(namespace), there)
                continue
            names = {made["metadata"]["name"] for made in there}
            for component in obj["spec"]["components"]:
                made = made_of(component, obj)
                if made["kind"] == kind and made["metadata"]["name"] not in names:
                    await self.ask("POST", path.format(namespace), made)
        await self.tell(row, obj, _status(obj, pods, left + len(pods)))


def made_of(component: Object, wrapper: Object) -> Object:
    """The object that the controller makes of a component."""
    made: Object = copy.deepcopy(component["template"])
    label = {LABEL: wrapper["metadata"]["name"]}
    metadata = made.setdefault("metadata", {})
    metadata |= {**owned_by(wrapper), "labels": {**metadata.get("labels", {}), **label}}
    if made["kind"] == "Job":
        template = made["spec"]["template"]
        added = component.get("podSetInfos", [{}])[0]
        own = template.setdefault("metadata", {})
        own["labels"] = {**own.get("labels", {}), **added.get("labels", {}), **label}
        own["annotations"] = {**own.get("annotations", {}), **added.get("annotations", {})}
        spec = template["spec"]
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **added.get("nodeSelector", {})}
        for part in ("tolerations", "schedulingGates"):
            spec[part] = [*spec.get(part, []), *added.get(part, [])]
    return made


def _expected(wrapper: Object) -> int:
    jobs = [c["template"]["spec"] for c in wrapper["spec"]["components"] if c["template"]["kind"] == "Job"]
    return sum(job.get("parallelism", 1) for job in jobs)


def _status(wrapper: Object, pods: list[Object], left: int) -> Object:
    """The status of an AppWrapper with these pods, and with as many objects and pods left."""
    phases = [pod["status"].get("phase") for pod in pods]
    expected = _expected(wrapper)
    ready = sum(phase in ("Running", "Succeeded") for phase in phases) >= expected
    suspended = bool(wrapper["spec"].get("suspend"))
    if suspended:
        phase = "Suspending" if left else "Suspended"
    else:
        phase = "Succeeded" if phases.count("Succeeded") >= expected else "Running" if ready else "Resuming"
    holds = {
        "QuotaReserved": left > 0 if suspended else phase != "Succeeded",
        "ResourcesDeployed": left > 0 if suspended else True,
        "PodsReady": ready and not suspended,
    }
    conditions = [{"type": kind, "status": str(value), "reason": phase, "message": ""} for kind, value in holds.items()]
    return {"phase": phase, "conditions": conditions}
