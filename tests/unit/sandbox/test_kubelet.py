from __future__ import annotations

import pytest

from kqueue.sandbox.api import NODES, PODS
from kqueue.sandbox.kubelet import KubeletOptions
from tests.unit.sandbox.simulated_world import FAIL, NAMESPACE, RUN, condition_of, make_pod, simulated


async def test_a_bound_pod_starts_with_everything_that_readers_look_at() -> None:
    """Phase, times, addresses, conditions and container states are those of a running pod."""
    async with simulated() as world:
        await world.add(PODS, make_pod(annotations={RUN: "10"}))

        pod = world.pod("p")
        status = pod["status"]
        assert status["phase"] == "Running"
        assert status["startTime"] == "2026-01-01T00:00:00Z"
        assert status["podIP"] == status["podIPs"][0]["ip"]
        assert status["hostIP"] == world.node(pod["spec"]["nodeName"])["status"]["addresses"][0]["address"]
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
            assert condition_of(pod, kind) == ("True", "")
        (container,) = status["containerStatuses"]
        assert (container["ready"], container["state"]) == (True, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})


@pytest.mark.parametrize(
    ("annotations", "policy", "seconds", "phase"),
    [
        pytest.param({RUN: "5"}, "Never", 4, "Running", id="still-running"),
        pytest.param({RUN: "5"}, "Never", 5, "Succeeded", id="succeeds-on-time"),
        pytest.param({RUN: "0.5"}, "Never", 0.5, "Succeeded", id="fractions-of-a-second"),
        pytest.param({RUN: "5", FAIL: "true"}, "Never", 5, "Failed", id="fails-on-request"),
        pytest.param({RUN: "5"}, "Always", 5, "Succeeded", id="said-run-time-beats-restart-policy"),
        pytest.param({}, "Never", 10, "Succeeded", id="default-run-time"),
        pytest.param({}, "Always", 100_000, "Running", id="restarting-pods-run-until-deleted"),
        pytest.param({RUN: "soon"}, "Never", 10, "Succeeded", id="no-number-means-default"),
        pytest.param({RUN: "-1"}, "Never", 9, "Running", id="negative-means-default"),
        pytest.param({RUN: "nan"}, "Never", 9, "Running", id="nan-means-default"),
    ],
)
async def test_pods_run_as_long_as_they_say(
    annotations: dict[str, str], policy: str, seconds: float, phase: str
) -> None:
    """The annotation decides, then the restart policy, then the default."""
    async with simulated() as world:
        await world.add(PODS, make_pod(annotations=annotations, restartPolicy=policy))
        await world.pass_time(seconds)

        assert world.pod("p")["status"]["phase"] == phase


async def test_an_ended_pod_says_how_it_ended() -> None:
    """Exit code, reason and readiness of a failed pod are those that Job controllers and people read."""
    async with simulated() as world:
        await world.add(PODS, make_pod(annotations={RUN: "3", FAIL: "true"}))
        await world.pass_time(3)

        pod = world.pod("p")
        (container,) = pod["status"]["containerStatuses"]
        assert container["state"]["terminated"] == {
            "exitCode": 1,
            "reason": "Error",
            "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:00:03Z",
        }
        assert condition_of(pod, "Ready") == ("False", "PodFailed")


@pytest.mark.parametrize(
    ("options", "seconds", "phase"),
    [
        pytest.param(KubeletOptions(speed=60), 1, "Succeeded", id="speed-divides-run-times"),
        pytest.param(KubeletOptions(run_seconds=None), 100_000, "Running", id="no-default-run-time"),
        pytest.param(KubeletOptions(start_seconds=5), 4, "Pending", id="starting-takes-time"),
        pytest.param(KubeletOptions(start_seconds=5), 14, "Running", id="run-time-begins-at-the-start"),
        pytest.param(KubeletOptions(start_seconds=5), 15, "Succeeded", id="ends-after-start-and-run"),
    ],
)
async def test_options_change_how_pods_behave(options: KubeletOptions, seconds: float, phase: str) -> None:
    """Speed, default run time and start time are settings."""
    async with simulated(kubelet=options) as world:
        await world.add(PODS, make_pod())
        await world.pass_time(seconds)

        assert world.pod("p")["status"]["phase"] == phase


async def test_a_deleted_pod_ends_and_goes() -> None:
    """Without a finalizer it vanishes; with one it stays, ended, until that is gone."""
    async with simulated() as world:
        await world.add(PODS, make_pod("plain"))
        held = make_pod("held")
        held["metadata"]["finalizers"] = ["example.com/mine"]
        await world.add(PODS, held)
        for name in ("plain", "held"):
            await world.api.delete(PODS, name, namespace=NAMESPACE)
        await world.pass_time(1)

        (pod,) = world.pods()
        assert pod["metadata"]["name"] == "held"
        assert pod["status"]["phase"] == "Failed"
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        await world.patch_pod("held", {"metadata": {"finalizers": None}})
        assert not world.pods()


async def test_stopping_takes_its_time_but_never_longer_than_the_grace_period() -> None:
    """`stop_seconds` passes before the pod ends; a shorter grace period cuts it."""
    async with simulated(kubelet=KubeletOptions(stop_seconds=20)) as world:
        for name in ("slow", "cut"):
            await world.add(PODS, make_pod(name, annotations={RUN: "1000"}))
        await world.api.delete(PODS, "slow", namespace=NAMESPACE)
        await world.api.delete(PODS, "cut", namespace=NAMESPACE, grace_period_seconds=5)

        await world.pass_time(4)
        assert len(world.pods()) == 2
        await world.pass_time(2)
        assert [pod["metadata"]["name"] for pod in world.pods()] == ["slow"]
        await world.pass_time(15)
        assert not world.pods()


async def test_a_pod_may_say_how_long_it_takes_to_end() -> None:
    """By annotation; nonsense there counts for nothing."""
    key = "sandbox.kqueue.dev/stop-seconds"
    async with simulated(kubelet=KubeletOptions()) as world:
        for name, seconds in (("slow", "10"), ("odd", "soon")):
            await world.add(PODS, make_pod(name, annotations={RUN: "1000", key: seconds}))
            await world.api.delete(PODS, name, namespace=NAMESPACE)
        await world.pass_time(9)
        assert [pod["metadata"]["name"] for pod in world.pods()] == ["slow"]
        await world.pass_time(2)
        assert not world.pods()


async def test_a_failed_node_keeps_its_pods_and_drives_them_out_after_five_minutes() -> None:
    """The node is tainted, its pods are not ready, do not end, are deleted after 300 s and go when the node is back."""
    async with simulated("1x1x1") as world:
        await world.add(PODS, make_pod(annotations={RUN: "30"}))
        (node,) = world.api.list(NODES)
        name = node["metadata"]["name"]
        await world.patch_node(name, {"metadata": {"annotations": {FAIL: "true"}}})

        assert condition_of(world.node(name), "Ready") == ("False", "FailedOnRequest")
        taints = {(t["key"], t["effect"]) for t in world.node(name)["spec"]["taints"]}
        assert taints == {("node.kubernetes.io/not-ready", effect) for effect in ("NoSchedule", "NoExecute")}
        assert condition_of(world.pod("p"), "Ready") == ("False", "")
        await world.pass_time(299)
        assert world.pod("p")["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in world.pod("p")["metadata"]
        await world.pass_time(2)
        assert "deletionTimestamp" in world.pod("p")["metadata"]
        assert condition_of(world.pod("p"), "DisruptionTarget") == ("True", "DeletionByTaintManager")

        await world.patch_node(name, {"metadata": {"annotations": {FAIL: None}}})
        assert condition_of(world.node(name), "Ready") == ("True", "KubeletReady")
        assert not world.node(name)["spec"].get("taints")
        await world.pass_time(1)
        assert not world.pods()


async def test_a_ready_condition_written_by_hand_is_believed() -> None:
    """Whoever writes Ready=False has killed the node until Ready=True is written."""
    async with simulated("1x1x1") as world:
        (node,) = world.api.list(NODES)
        name, conditions = node["metadata"]["name"], node["status"]["conditions"]
        dead = [{**entry, "status": "Unknown"} if entry["type"] == "Ready" else entry for entry in conditions]
        await world.patch_node(name, {"status": {"conditions": dead}}, subresource="status")
        await world.pass_time(60)
        assert condition_of(world.node(name), "Ready") == ("Unknown", "KubeletReady")
        assert {t["key"] for t in world.node(name)["spec"]["taints"]} == {"node.kubernetes.io/unreachable"}
        await world.add(PODS, make_pod())
        assert condition_of(world.pod("p"), "PodScheduled") == ("False", "Unschedulable")

        await world.patch_node(name, {"status": {"conditions": conditions}}, subresource="status")
        assert world.pod("p")["status"]["phase"] == "Running"


async def test_pods_of_a_vanished_node_are_removed() -> None:
    """They are marked as failed by the disruption and go."""
    async with simulated("1x1x1") as world:
        held = make_pod(annotations={RUN: "1000"})
        held["metadata"]["finalizers"] = ["example.com/mine"]
        await world.add(PODS, held)
        await world.api.delete(NODES, world.pod("p")["spec"]["nodeName"])
        await world.pass_time(6)

        assert world.pod("p")["status"]["phase"] == "Failed"
        assert condition_of(world.pod("p"), "DisruptionTarget") == ("True", "DeletionByPodGC")
        await world.patch_pod("p", {"metadata": {"finalizers": None}})
        assert not world.pods()


@pytest.mark.parametrize(
    ("tolerations", "gone_after"),
    [
        pytest.param([], 0, id="not-tolerated-goes-at-once"),
        pytest.param(
            [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            60,
            id="tolerated-for-a-time",
        ),
        pytest.param([{"key": "spot", "operator": "Exists"}], None, id="tolerated-for-ever"),
    ],
)
async def test_a_no_execute_taint_drives_pods_out(tolerations: list[object], gone_after: int | None) -> None:
    """The toleration's seconds count from the taint, however long the node has been ready."""
    async with simulated("1x1x1") as world:
        await world.add(PODS, make_pod(annotations={RUN: "10000"}, tolerations=tolerations))
        await world.pass_time(500)
        name = world.pod("p")["spec"]["nodeName"]
        await world.patch_node(name, {"spec": {"taints": [{"key": "spot", "effect": "NoExecute"}]}})

        if gone_after:
            await world.pass_time(gone_after - 1)
            assert world.phases() == {"Running": 1}
        await world.pass_time(gone_after or 2)
        assert len(world.pods()) == (0 if gone_after is not None else 1)
