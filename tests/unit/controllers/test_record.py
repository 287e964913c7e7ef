"""Which objects an event about a waiting workload is recorded on."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.record import waiting_references
from tests.unit.controllers.builders import make_workload, read


def owner(kind: str, name: str, *, controller: bool = False) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": controller}


@pytest.mark.parametrize(
    ("owners", "wanted"),
    [
        pytest.param([], [], id="nothing owns it"),
        pytest.param([owner("Job", "j", controller=True)], ["Job j"], id="a job"),
        pytest.param([owner("Pod", "p", controller=True)], ["Pod p"], id="a pod, once"),
        pytest.param([owner("Pod", "p-0"), owner("Pod", "p-1")], ["Pod p-0"], id="the first pod of a group"),
        pytest.param(
            [owner("Pod", "s-0"), owner("StatefulSet", "s", controller=True)],
            ["StatefulSet s", "Pod s-0"],
            id="what controls it, and the first pod",
        ),
    ],
)
def test_events_are_recorded_where_users_look(owners: list[dict[str, Any]], wanted: list[str]) -> None:
    workload: wire.Workload = read(wire.Workload, make_workload(metadata={"ownerReferences": owners}))
    found = waiting_references(workload)

    assert [f"{ref.kind} {ref.name}" for ref in found] == ["Workload a", *wanted]
    assert {ref.namespace for ref in found} == {"ns"}
