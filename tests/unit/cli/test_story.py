"""The demo checks itself: it must notice a pod outside its rack, an exceeded quota, and a wait without a word."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from rich.console import Console

from kqueue.api.crd_files import crd_folder
from kqueue.cli.story import CHAPTERS, LEAVES, NEVER, WAITS, Story
from kqueue.cli.story_view import JOB_SETS, JOBS, View, templates_of
from kqueue.controllers.resources import CLUSTER_QUEUES, NODES, PODS, WORKLOADS
from kqueue.kube.definitions import read_definitions
from kqueue.runtime.client import Client
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.api import CRDS
from kqueue.sandbox.simulated_kinds import SIMULATED
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL

JSON = dict[str, Any]
HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
(IMPOSSIBLE,) = NEVER
GANG = "rack-gang"
SAID = f"{IMPOSSIBLE} should wait and say why"


class Stage:
    """A cluster of two blocks, two racks each, two hosts each, on which everything is put by hand."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.page = io.StringIO()
        self.story = Story(client, Console(file=self.page, width=200), [BLOCK_LABEL, RACK_LABEL, HOST])

    async def build(self) -> None:
        """The nodes, and the queues research and serving with eight GPUs each in one cohort."""
        for b, r, h in ((b, r, h) for b in "01" for r in "01" for h in "01"):
            name = f"b{b}-r{r}-h{h}"
            labels = {BLOCK_LABEL: f"b{b}", RACK_LABEL: f"r{r}", HOST: name}
            await self._client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        for name in ("research", "serving"):
            quotas = [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "8"}]}]
            groups = [{"coveredResources": [GPU], "flavors": quotas}]
            queue = {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {"cohortName": "company", "resourceGroups": groups},
            }
            await self._client.create(CLUSTER_QUEUES, queue)

    async def run(self, name: str, *hosts: str, pods: int | None = None, level: str = RACK_LABEL) -> None:
        """A job of one pod per host, or of so many, that must run in one domain of the level; it runs there."""
        annotations = {"kueue.x-k8s.io/podset-required-topology": level} if level else {}
        container = {"name": "c", "image": "i"}
        spec = {"restartPolicy": "Never", "containers": [container]}
        template = {"metadata": {"annotations": annotations}, "spec": spec}
        body = {"parallelism": len(hosts) if pods is None else pods, "template": template}
        job = {"metadata": {"name": name, "namespace": "default"}, "spec": body}
        created = await self._client.create(JOBS, job, "default")
        for i, host in enumerate(hosts):
            metadata = {"name": f"{name}-{i}", "namespace": "default", "ownerReferences": [_owned_by(created)]}
            await self._client.create(PODS, {"metadata": metadata, "spec": spec | {"nodeName": host}}, "default")

    async def run_set(self, *hosts: str, attempt: str) -> None:
        """The JobSet's two pods, asked into one rack, are on these hosts."""
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        for i, host in enumerate(hosts):
            labels = {"jobset.sigs.k8s.io/jobset-name": LEAVES}
            metadata = {"name": f"{attempt}-{i}", "namespace": "default", "labels": labels}
            await self._client.create(PODS, {"metadata": metadata, "spec": spec | {"nodeName": host}}, "default")

    async def submit_set(self, *, run: str = "1") -> JSON:
        """A suspended JobSet of a leader and a worker in one rack; it differs by its run time."""
        notes = {"kueue.x-k8s.io/podset-required-topology": RACK_LABEL, "run": run}
        child = {"spec": {"parallelism": 1, "template": {"metadata": {"annotations": notes}, "spec": {}}}}
        jobs = [{"name": name, "replicas": 1, "template": child} for name in ("leader", "worker")]
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": LEAVES, "namespace": "default"},
            "spec": {"suspend": True, "replicatedJobs": jobs},
        }
        return await self._client.create(JOB_SETS, body, "default")

    async def evict(self, name: str) -> None:
        """Its Workload had to leave once."""
        workload = await self._workload(name)
        entry = {"reason": "Preempted", "underlyingCause": "", "count": 1}
        await self._patch(workload, {"schedulingStats": {"evictions": [entry]}})

    async def leave(self, name: str, *, pods: int) -> None:
        """The job's pods are gone, the job stays."""
        for i in range(pods):
            await self._client.delete(PODS, f"{name}-{i}", "default")

    async def hold(self, name: str, *, queue: str, gpus: int) -> None:
        """A Workload of the job of that name holds GPUs of the queue."""
        workload = await self._workload(name)
        entry = {"name": "main", "flavors": {GPU: "gpu"}, "resourceUsage": {GPU: str(gpus)}, "count": 1}
        status = {"admission": {"clusterQueue": queue, "podSetAssignments": [entry]}}
        await self._patch(workload, {**status, "conditions": [_condition("QuotaReserved", "True", "m")]})

    async def finish(self, name: str) -> None:
        """It holds them no more."""
        workload = await self._client.get_json(WORKLOADS, f"w-{name}", "default")
        await self._patch(workload, {"conditions": [_condition("Finished", "True", "m")]})

    async def wait(self, name: str, message: str) -> None:
        """The job waits, and this is why."""
        await self.run(name)
        workload = await self._workload(name)
        await self._patch(workload, {"conditions": [_condition("QuotaReserved", "False", message)]})

    async def _workload(self, name: str) -> JSON:
        template = {"spec": {"containers": [{"name": "c"}]}}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": True}
        workload = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": f"w-{name}", "namespace": "default", "ownerReferences": [owner]},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
        }
        return await self._client.create(WORKLOADS, workload, "default")

    async def _patch(self, workload: JSON, status: JSON) -> None:
        name = workload["metadata"]["name"]
        await self._client.patch(WORKLOADS, name, {"status": status}, "default", subresource="status")


def _owned_by(job: JSON) -> JSON:
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _condition(kind: str, status: str, message: str) -> JSON:
    since = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": since}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A cluster in which nothing happens by itself."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await sandbox.start()
    for definition in read_definitions(SIMULATED):
        await sandbox.api.create(CRDS, definition)
    try:
        async with Client(sandbox.url) as client:
            made = Stage(client)
            await made.build()
            yield made
    finally:
        await sandbox.stop()


async def found(stage: Stage) -> list[str]:
    """The problems that are not about jobs which a test did not submit."""
    absent = (f"{WAITS} never waited", f"{LEAVES} never had to leave", SAID)
    return [problem for problem in await stage.story.problems() if not problem.startswith(absent)]


@pytest.mark.parametrize(
    ("hosts", "level", "fact"),
    [
        pytest.param(("b0-r0-h0", "b0-r0-h1"), RACK_LABEL, None, id="in-one-rack"),
        pytest.param(("b0-r0-h0", "b0-r1-h0"), RACK_LABEL, "must run in one domain", id="in-two-racks"),
        pytest.param(
            ("b0-r0-h0", "b1-r0-h0"), RACK_LABEL, "must run in one domain", id="in-racks-of-one-name-in-two-blocks"
        ),
        pytest.param(("b0-r0-h0", "b0-r1-h0"), BLOCK_LABEL, None, id="in-one-block"),
        pytest.param(("b0-r0-h0", "b1-r0-h0"), BLOCK_LABEL, "must run in one domain", id="in-two-blocks"),
        pytest.param(("b0-r0-h0", "b1-r1-h0"), "", None, id="anywhere-if-nothing-was-asked"),
    ],
)
async def test_a_pod_outside_its_domain_is_noticed(
    stage: Stage, hosts: tuple[str, ...], level: str, fact: str | None
) -> None:
    """A required level means one domain of it; which ones were used is said."""
    await stage.run(GANG, *hosts, level=level)
    problems = await found(stage)

    assert len(problems) == (0 if fact is None else 1)
    assert all(GANG in problem and str(fact) in problem for problem in problems)


async def test_a_pod_that_was_moved_is_noticed_although_it_is_gone(stage: Stage) -> None:
    """What was seen once counts, whatever the cluster looks like at the end."""
    await stage.run(GANG, "b0-r0-h0", "b0-r1-h0")
    first = await found(stage)
    await stage.leave(GANG, pods=2)
    second = await found(stage)

    assert first == second
    assert "must run in one domain" in first[0]


async def test_a_pod_that_never_ran_is_noticed(stage: Stage) -> None:
    """Every pod of a job that can run must have been seen on a node."""
    await stage.run(GANG, "b0-r0-h0", pods=2)

    assert await found(stage) == [f"{GANG} has 2 pods, 1 were seen on nodes"]


@pytest.mark.parametrize(
    ("again", "fact"),
    [
        pytest.param(("b1-r0-h0", "b1-r0-h1"), None, id="in-another-rack"),
        pytest.param(("b1-r0-h0", "b1-r1-h0"), "must run in one domain", id="in-two-racks-at-once"),
        pytest.param((), "has 4 pods, 2 were seen", id="not-at-all"),
    ],
)
async def test_who_comes_back_may_be_elsewhere_but_must_be_together(
    stage: Stage, again: tuple[str, ...], fact: str | None
) -> None:
    """All pods of one moment are in one rack, and there are as many as before."""
    await stage.submit_set()
    await stage.run_set("b0-r0-h0", "b0-r0-h1", attempt="first")
    before = await found(stage)
    await stage.evict(LEAVES)
    await stage.leave("first", pods=2)
    await stage.run_set(*again, attempt="second")
    problems = await found(stage)

    assert before == []
    assert len(problems) == (0 if fact is None else 1)
    assert all(str(fact) in problem for problem in problems)


@pytest.mark.parametrize(("run", "noticed"), [("1", False), ("2", True)], ids=["as-it-was", "changed"])
async def test_a_template_that_is_not_given_back_is_noticed(stage: Stage, run: str, noticed: bool) -> None:
    """A job without quota that is suspended must be what its user wrote."""
    written = await stage.submit_set(run=run)
    templates_of(written)[1]["metadata"]["annotations"]["run"] = "1"
    stage.story._submitted[LEAVES] = written
    problems = await stage.story.problems()

    assert any(f"{LEAVES} was stopped" in problem for problem in problems) is noticed


@pytest.mark.parametrize(
    ("research", "serving", "exceeded"),
    [
        pytest.param(8, 8, False, id="each-has-its-own"),
        pytest.param(12, 4, False, id="one-borrows-what-the-other-leaves"),
        pytest.param(12, 8, True, id="one-borrows-what-the-other-has"),
    ],
)
async def test_an_exceeded_quota_is_noticed(stage: Stage, research: int, serving: int, exceeded: bool) -> None:
    """A cohort may share, but together its queues never hold more than they have."""
    await stage.hold("a", queue="research", gpus=research)
    await stage.hold("b", queue="serving", gpus=serving)

    assert await found(stage) == (["cohort company used 20 nvidia.com/gpu of 16"] if exceeded else [])


async def test_quota_that_was_used_one_after_the_other_is_not_added_up(stage: Stage) -> None:
    """One borrows everything, ends, and only then the other takes its own back; an earlier excess is not forgotten."""
    await stage.hold("a", queue="research", gpus=16)
    lent = await found(stage)
    await stage.finish("a")
    await stage.hold("b", queue="serving", gpus=8)
    taken_back = await found(stage)
    await stage.hold("c", queue="research", gpus=9)
    both = await found(stage)
    await stage.finish("c")

    assert (lent, taken_back) == ([], [])
    assert both == ["cohort company used 17 nvidia.com/gpu of 16"]
    assert await found(stage) == both


@pytest.mark.parametrize(
    ("message", "silent"),
    [
        pytest.param("9 pods do not fit: the best has room for 8", False, id="with-the-numbers"),
        pytest.param("in the queue", True, id="without-the-numbers"),
    ],
)
async def test_a_wait_without_a_reason_is_noticed(stage: Stage, message: str, silent: bool) -> None:
    """The job that can never fit must say where there is room for how many."""
    await stage.wait(IMPOSSIBLE, message)

    assert any(problem.startswith(SAID) for problem in await stage.story.problems()) is silent


async def test_the_job_that_must_wait_for_another_is_missed(stage: Stage) -> None:
    """A story in which nobody waited has not shown what it is for."""
    assert f"{WAITS} never waited" in await stage.story.problems()


# --- what is shown ---------------------------------------------------------------------------------------------------


def make_pod(phase: str, *, gated: bool = False, node: str = "") -> JSON:
    return {
        "spec": {"schedulingGates": [{"name": "g"}] if gated else [], "nodeName": node},
        "status": {"phase": phase},
    }


def made(*conditions: JSON, pods: int = 2) -> JSON:
    return {"spec": {"podSets": [{"count": pods}]}, "status": {"conditions": list(conditions)}}


ADMITTED = made(_condition("Admitted", "True", "m"))


@pytest.mark.parametrize(
    ("job", "workload", "pods", "want"),
    [
        pytest.param(made(), None, [], ("submitted", ""), id="no-workload-yet"),
        pytest.param(made(), made(), [], ("waiting", "in the queue"), id="not-looked-at-yet"),
        pytest.param(
            made(), made(_condition("QuotaReserved", "False", "no room")), [], ("waiting", "no room"), id="waits"
        ),
        pytest.param(
            made(),
            ADMITTED,
            [make_pod("Pending", gated=True)],
            ("starting", "1 gated, 1 released, 0 running"),
            id="admitted",
        ),
        pytest.param(
            made(),
            ADMITTED,
            [make_pod("Running"), make_pod("Pending")],
            ("starting", "0 gated, 1 released, 1 running"),
            id="half-way",
        ),
        pytest.param(
            made(), ADMITTED, [make_pod("Running"), make_pod("Succeeded")], ("running", "1 pods"), id="one-has-ended"
        ),
        pytest.param(made(_condition("Complete", "True", "m")), ADMITTED, [], ("finished", ""), id="complete"),
        pytest.param(made(_condition("Completed", "True", "m")), ADMITTED, [], ("finished", ""), id="complete-jobset"),
        pytest.param(
            made(),
            made(_condition("Admitted", "True", "m"), _condition("Evicted", "True", "makes room")),
            [make_pod("Running")],
            ("leaving", "makes room"),
            id="on-its-way-out",
        ),
    ],
)
def test_the_phase_of_a_job_is_one_word(
    job: JSON, workload: JSON | None, pods: list[JSON], want: tuple[str, str]
) -> None:
    """And why, or how far."""
    view = View(jobs={"j": job}, workloads={"j": workload} if workload is not None else {}, pods={"j": pods})

    assert view.phase("j") == want


async def test_the_map_shows_who_holds_which_node(stage: Stage) -> None:
    """One letter per node, a dot where it is free; a pod that has ended holds nothing."""
    await stage.story.problems()  # looks at the nodes
    first, second = CHAPTERS[:2]
    pods = {
        first: [make_pod("Running", node="b0-r0-h0"), make_pod("Succeeded", node="b0-r0-h1")],
        second: [make_pod("Pending", node="b1-r1-h1")],
    }
    console = Console(file=stage.page, width=120)
    console.print(stage.story.picture(View(pods=pods)))
    page = stage.page.getvalue()

    assert [line.split() for line in page.splitlines() if line.startswith(("  r", "r"))] == [
        ["r0", "A.", "r0", ".."],
        ["r1", "..", "r1", ".B"],
    ]
    assert f"A={first}" in page
    assert f"B={second}" in page
    assert CHAPTERS[2] not in page
