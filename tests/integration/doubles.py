"""The common base of doubles of controllers that the real control plane does not have."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from kqueue.kinds import Kind
from tests.integration.controlplane.cluster import Cluster

_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(row: Kind) -> dict[str, Any]:
    """The definition of a kind, with any fields."""
    names = {"kind": row.kind, "plural": row.plural, "singular": row.kind.lower(), "listKind": f"{row.kind}List"}
    version = {"name": row.version, "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _LOOSE, "status": _LOOSE}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{row.plural}.{row.group}"},
        "spec": {"group": row.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def define_rows(cluster: Cluster, folder: Path, rows: Sequence[Kind]) -> None:
    """The API server serves these kinds from here on."""
    for row in rows:
        (folder / f"{row.kind.lower()}.yaml").write_text(yaml.safe_dump(definition(row)))
    await cluster.apply_crds(folder)


@asynccontextmanager
async def playing(double: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """The double acts while the block runs."""
    task = asyncio.create_task(double)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
