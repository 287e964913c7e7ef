"""A sandbox whose objects stand there from the first moment, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kqueue.api.crd_files import crd_folder
from kqueue.runtime.loop import tune_collector
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.cluster import Sandbox, SandboxOptions

NOW = "2026-01-01T00:00:00Z"
GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"


def ours(plural: str) -> GroupVersionResource:
    """A kind of kqueue's."""
    return GroupVersionResource(GROUP, VERSION, plural)


def condition(kind: str, *, holds: bool = True, reason: str = "") -> Object:
    """A condition of an object's first generation."""
    return {"type": kind, "status": "True" if holds else "False", "reason": reason or kind, "message": "as it was",
            "lastTransitionTime": NOW, "observedGeneration": 1}  # fmt: skip


class Planted:
    """Puts objects where the API server keeps them, as if they had been written long ago: nothing checks them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.api = sandbox.api
        self._uids = 0

    def put(self, resource: GroupVersionResource, name: str, obj: Object, namespace: str = "", **meta: Any) -> None:
        """Store `obj` under a name; `meta` are further fields of its metadata."""
        self._uids += 1
        uid = f"00000000-0000-4000-8000-{self._uids:012d}"
        born: Object = {"name": name, "uid": uid, "creationTimestamp": NOW, "generation": 1, **meta}
        if namespace:
            born["namespace"] = namespace
        kind = self.api.kind(resource)
        obj = {"apiVersion": f"{resource.group}/{resource.version}".strip("/"), "kind": kind.kind, **obj}
        self.api.store(kind).put(obj | {"metadata": born})


async def serve(kubeconfig: Path, fill: Callable[[Sandbox], object]) -> None:
    """The API server with what `fill` puts into it, until SIGTERM; prints a line when it is there."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await sandbox.start()
    fill(sandbox)
    tune_collector()
    sandbox.write_kubeconfig(kubeconfig)
    print(json.dumps({"filled": time.time()}), flush=True)
    await stopped.wait()
    await sandbox.stop()
