"""`kqueue record fetch` through an API server: the administrator gets the whole record, a tenant gets nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqueue.clock import SystemClock
from kqueue.errors import ForbiddenError
from kqueue.operations.record_fetch import fetch_record
from kqueue.record.queries import Filter, cycles, decisions
from kqueue.record.records import Record
from kqueue.runtime.client import client_of, connect
from kqueue.runtime.kubeconfig import Overrides, find_cluster
from tests.integration.road import make_road
from tests.integration.teams import configuration
from tests.integration.test_visibility import Plane, token_of, visible

pytestmark = pytest.mark.slow


def _no_progress(_done: int, _whole: int) -> None:
    """Show nothing."""


async def test_only_readers_of_the_record_get_it(either_plane: Plane, tmp_path: Path) -> None:
    """While the controller writes on: the open file is whole up to an entry, and every reader of records reads it."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 1))
    settings = configuration(f"decisionRecord: {{path: {tmp_path / 'ring'}}}\n")
    tenant = await token_of(either_plane.cluster, road.namespace, "tenant")
    async with visible(either_plane, settings):
        await road.submit("runs", pods=1, run_seconds=600)
        await road.until_workload("runs", "Admitted")
        key = f"{road.namespace}/{(await road.workload_of('runs'))['metadata']['name']}"
        async with await connect(either_plane.kubeconfig) as client:
            number, size = await fetch_record(client, tmp_path / "copy", _no_progress)
        found = await find_cluster(either_plane.kubeconfig, None, Overrides(token=tenant), clock=SystemClock())
        async with client_of(found, clock=SystemClock()) as client:
            with pytest.raises(ForbiddenError, match="kqueue-decision-record-reader-role"):
                await fetch_record(client, tmp_path / "stolen", _no_progress)

    record, wanted = Record(tmp_path / "copy"), Filter(workload=key)
    told = [one.row()["decision"] for cycle in cycles(record, wanted) for one in decisions(cycle, wanted)]
    assert (number, told) == (1, ["Admit"])
    assert size == sum(file.stat().st_size for file in record.files)
    assert not (tmp_path / "stolen").exists()
