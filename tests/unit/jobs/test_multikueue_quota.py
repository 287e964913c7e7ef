"""Quotas of a manager's ClusterQueue that follow its workers: which count, and when they are not touched."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.jobs.multikueue.quota import QuotaPlan, WorkerQueues, quota_plan, with_nominal
from tests.unit.controllers.builders import JSON, read

MINE = [("ns", "main"), ("ns", "second")]


def group(*flavors: dict[str, Any]) -> JSON:
    """One resource group; each flavor is a dictionary of quotas."""
    made = [
        {"name": f"f{n}", "resources": [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]}
        for n, quotas in enumerate(flavors)
    ]
    return {"coveredResources": list(flavors[0]), "flavors": made}


def queue(*groups: JSON, name: str = "q") -> wire.ClusterQueue:
    found: wire.ClusterQueue = read(
        wire.ClusterQueue, {"metadata": {"name": name}, "spec": {"resourceGroups": list(groups)}}
    )
    return found


def local(name: str, to: str, namespace: str = "ns") -> wire.LocalQueue:
    found: wire.LocalQueue = read(
        wire.LocalQueue, {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": to}}
    )
    return found


def worker(*locals_: wire.LocalQueue, **queues: Any) -> WorkerQueues:
    """A worker with these LocalQueues, and ClusterQueues by name."""
    made = [queue(*groups, name=name) for name, groups in queues.items()]
    return WorkerQueues(local_queues=list(locals_), cluster_queues=made)


OWN = queue(group({"cpu": "1", "gpu": "0"}))
SILENT = WorkerQueues(are_known=False)


@pytest.mark.parametrize(
    ("workers", "want"),
    [
        pytest.param([], {"cpu": 0, "gpu": 0}, id="no worker"),
        pytest.param([worker(local("main", "a"), a=[group({"cpu": "4"})])], {"cpu": 4000, "gpu": 0}, id="a part of the resources"),
        pytest.param([worker(local("main", "a"), a=[group({"cpu": "4"})]), worker(local("main", "b"), b=[group({"cpu": "500m", "gpu": 3})])], {"cpu": 4500, "gpu": 3}, id="two workers"),
        pytest.param([worker(local("main", "a"), local("second", "a"), a=[group({"cpu": "4"})])], {"cpu": 4000, "gpu": 0}, id="one behind two counts once"),
        pytest.param([worker(local("main", "a"), local("second", "b"), a=[group({"cpu": "4"})], b=[group({"cpu": "2"})])], {"cpu": 6000, "gpu": 0}, id="two behind two"),
        pytest.param([worker(local("main", "a"), a=[group({"cpu": "4"}, {"cpu": "2"}), group({"gpu": "5"})])], {"cpu": 6000, "gpu": 5}, id="flavors and groups"),
        pytest.param([worker(local("main", "a", "else"), local("third", "a"), a=[group({"cpu": "4"})])], {"cpu": 0, "gpu": 0}, id="other LocalQueues"),
        pytest.param([worker(a=[group({"cpu": "4"})])], {"cpu": 0, "gpu": 0}, id="no LocalQueue"),
        pytest.param([worker(local("main", "a"), a=[group({"cpu": "-4", "gpu": str(2**63)})])], {"cpu": 0, "gpu": 2**63 - 1}, id="out of range"),
        pytest.param([SILENT], {"cpu": 1000, "gpu": 0}, id="a silent worker lowers nothing"),
        pytest.param([SILENT, worker(local("main", "a"), a=[group({"cpu": "4"})])], {"cpu": 4000, "gpu": 0}, id="but others raise it"),
    ],
)  # fmt: skip
def test_quotas_are_the_sums_of_the_workers(workers: list[WorkerQueues], want: dict[str, int]) -> None:
    plan = quota_plan(OWN, MINE, workers, is_automated=True)
    assert (plan.reason, plan.nominal) == ("QuotaAutomated", want)


@pytest.mark.parametrize(
    ("plan", "reason", "said"),
    [
        pytest.param(quota_plan(OWN, MINE, [], is_automated=False), "NotRequested", "by hand", id="by hand"),
        pytest.param(quota_plan(OWN, MINE, [], is_automated=True, problem="no config"), "UnsupportedConfiguration", "no config", id="no config"),
        pytest.param(quota_plan(queue(), MINE, [], is_automated=True), "UnsupportedConfiguration", "or none", id="no flavor"),
        pytest.param(quota_plan(queue(group({"cpu": 1}, {"cpu": 1})), MINE, [], is_automated=True), "UnsupportedConfiguration", "more than one flavor", id="two flavors"),
        pytest.param(quota_plan(queue(group({"cpu": 1}), group({"gpu": 1})), MINE, [], is_automated=True), "UnsupportedConfiguration", "more than one flavor", id="two groups"),
        pytest.param(quota_plan(OWN, MINE, [worker(local("main", "a"), a=[group({"memory": 1, "disk": 1})])], is_automated=True), "UnsupportedConfiguration", "coveredResources: disk, memory", id="not covered"),
        pytest.param(quota_plan(OWN, MINE, [worker(local("main", "a"), a=[group({"cpu": "many"})])], is_automated=True), "UnsupportedConfiguration", "no amount", id="no amount"),
    ],
)  # fmt: skip
def test_what_cannot_follow_is_told_and_not_touched(plan: QuotaPlan, reason: str, said: str) -> None:
    assert (plan.reason, plan.nominal) == (reason, None)
    assert said in plan.message


def test_limits_stay_and_equal_amounts_are_not_written_anew() -> None:
    groups = [group({"cpu": "1000m", "gpu": "0"})]
    groups[0]["flavors"][0]["resources"][1]["borrowingLimit"] = "2"
    assert with_nominal(groups, {"cpu": 1000, "gpu": 0}) is None
    written = with_nominal(groups, {"cpu": 1000, "gpu": 3})
    assert written is not None
    assert written[0]["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "1000m"},
        {"name": "gpu", "nominalQuota": "3", "borrowingLimit": "2"},
    ]
