"""Plugins that take part in releases: of pods that are queued themselves, of gangs with places, and of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.plugin_releases import MOST_AT_ONCE, PluginReleases
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.core.hooks import ProfileHooks
from kqueue.core.plugins import AGREED, PodRef, Verdict
from kqueue.errors import PluginError
from kqueue.runtime.controller import Result
from tests.unit.controllers.builders import condition, make_workload
from tests.unit.controllers.fakes import FakeRecorder
from tests.unit.controllers.gang_world import Gate, make_gang
from tests.unit.controllers.gang_world import make_pod as make_gang_pod
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.controllers.test_job import NAME, Jobs
from tests.unit.jobs.pods import make_pod

REFUSED = "ReleaseRefused"
TOPOLOGY = "kueue.x-k8s.io/topology"


class Says:
    """A plugin whose methods return, or raise, what the test says; those of releases are async."""

    def __init__(self, name: str, calls: list[str] | None = None, **methods: Any) -> None:
        self.name, self.answers = name, methods
        self.calls: list[str] = [] if calls is None else calls
        self.patches: list[Any] = []
        for method in methods:
            setattr(self, method, self._later(method) if method != "after_release" else self._now(method))

    def _later(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def called(*about: Any) -> Any:
            if method == "release":
                self.patches.append(about[1])
            return self._now(method)(*about)

        return called

    def _now(self, method: str) -> Callable[..., Any]:
        def called(*about: Any) -> Any:
            self.calls.append(f"{self.name}.{method}")
            answer = self.answers[method]
            if isinstance(answer, Exception):
                raise answer
            return answer(*about) if callable(answer) else answer

        return called


def hooked(**hooks: Any) -> ProfileHooks:
    return ProfileHooks(**hooks)


async def admitted(**hooks: Any) -> Pods:
    """A pod that is queued alone, admitted, and held by its gate."""
    world = Pods(make_pod("p"), hooks=hooked(**hooks))
    await world.rest("team/p")
    (key,) = world.client.keys(WORKLOADS)
    world.admit(key.partition("/")[2])
    return world


async def again(world: Pods, key: str = "team/p") -> float | None:
    world.sync()
    return (await world.reconcile(key)).requeue_after


# --- before_release --------------------------------------------------------------------------------------------------


async def test_a_refusal_holds_the_pod_and_is_repeated_with_back_off_g5_8() -> None:
    warm = Says("warm", before_release=Verdict("the image is not there yet"))
    world = await admitted(before_releases=(warm,))
    assert [await again(world) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert world.gated("p")
    assert world.recorder.messages[-1] == "The pods are not released: plugin warm: the image is not there yet"
    assert {reason for _, reason in world.recorder.events if reason == REFUSED} == {REFUSED}

    warm.answers["before_release"] = AGREED
    assert await again(world) == 0.0
    assert world.gated("p"), "the objects are read again before the gate is removed"
    assert await again(world) is None
    assert not world.gated("p")
    assert len(warm.calls) == 9


async def test_every_plugin_must_agree_and_the_first_refusal_ends_the_calls_g5_8() -> None:
    calls: list[str] = []
    one, two = (Says(name, calls, before_release=AGREED) for name in ("one", "two"))
    three, four = Says("three", calls, before_release=Verdict("no")), Says("four", calls, before_release=AGREED)
    world = await admitted(before_releases=(one, two, three, four))
    assert await again(world) == 1
    assert calls == ["one.before_release", "two.before_release", "three.before_release"]


async def test_a_plugin_that_fails_holds_the_pod_g5_14() -> None:
    world = await admitted(before_releases=(Says("warm", before_release=OSError("x")),))
    assert await again(world) == 1
    assert world.gated("p")
    assert world.recorder.messages[-1] == "The pods are not released: plugin warm failed: OSError: x"


async def test_an_answer_that_is_no_verdict_is_a_failure() -> None:
    world = await admitted(before_releases=(Says("warm", before_release=True),))
    assert await again(world) == 1
    assert world.recorder.messages[-1].endswith("plugin warm failed: TypeError: the answer is bool, not Verdict")


async def test_consent_is_for_one_admission() -> None:
    """The gang is asked about once, whatever its members do; after an eviction it is asked about again."""
    warm = Says("warm", before_release=AGREED)
    world = Pods(grouped("a"), grouped("b"), hooks=hooked(before_releases=(warm,)))
    await world.rest(GROUP)
    world.admit("g")
    await again(world, GROUP)
    await again(world, GROUP)
    assert (warm.calls, world.gated("a"), world.gated("b")) == (["warm.before_release"], False, False)

    later = condition("Admitted", reason="Admitted") | {"lastTransitionTime": "2031-01-01T00:00:00Z"}
    pods = PluginReleases(
        {"default": hooked(before_releases=(warm,))},
        profile_of=lambda _queue: "default",
        recorder=FakeRecorder(),
        clock=world.clock,
    )
    first, second = workload("Admitted"), workload("Admitted", later)
    assert [await pods.pause_before(w) for w in (first, first, second, second)] == [0.0, None, 0.0, None]


def workload(*conditions: Any, name: str = "a") -> wire.Workload:
    told = [condition(c) if isinstance(c, str) else c for c in conditions]
    kept = {c["type"]: c for c in [condition("QuotaReserved"), *told]}
    assigned = [{"name": "main", "count": 2, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2"}}]
    status = {
        "conditions": list(kept.values()),
        "admission": {"clusterQueue": "team", "podSetAssignments": assigned},
    }
    return msgspec.convert(make_workload(name, status=status), wire.Workload)


async def test_few_workloads_are_asked_about_at_once() -> None:
    """A plugin that takes its time holds up as many workers as that, and no more."""
    goes = asyncio.Event()
    asked: list[str] = []

    class Slow:
        name = "slow"

        async def before_release(self, key: str, _admission: Any) -> Verdict:
            asked.append(key)
            await goes.wait()
            return AGREED

    hooks = PluginReleases(
        {"default": hooked(before_releases=(Slow(),))},
        profile_of=lambda _queue: "default",
        recorder=FakeRecorder(),
        clock=FakeClock(),
    )
    tasks = [asyncio.create_task(hooks.pause_before(workload("Admitted", name=f"w{i}"))) for i in range(6)]
    await asyncio.sleep(0)
    assert len(asked) == MOST_AT_ONCE
    goes.set()
    assert sorted([await task or 0.0 for task in tasks]) == [0.0] * MOST_AT_ONCE + [0.5] * 2


# --- release ---------------------------------------------------------------------------------------------------------


def released_by(world: Pods, name: str = "p") -> Callable[[PodRef, Any], bool]:
    """A plugin's way to release a pod: it sends the patch itself."""

    def release(pod: PodRef, patch: Any) -> bool:
        world.client.change(PODS, f"{pod.namespace}/{pod.name}", {"spec": patch["spec"]})
        return True

    return release


@pytest.mark.mechanism("3.19")
async def test_the_first_plugin_that_releases_a_pod_is_the_last_one_asked_g5_9() -> None:
    """The plugins behind it and kqueue's own patch are left out, and the pod counts as started by kqueue."""
    calls: list[str] = []
    no, yes, late = (Says(n, calls, release=answer) for n, answer in (("no", False), ("yes", True), ("late", True)))
    told = Says("told", after_release=None)
    world = await admitted(releases=(no, yes, late), after_releases=(told,))
    yes.answers["release"] = released_by(world)
    assert await world.look("team/p") == []
    assert calls == ["no.release", "yes.release"]
    assert yes.patches[0]["metadata"].items() >= {"uid": "uid-p"}.items()
    assert yes.patches[0]["spec"]["schedulingGates"] is None
    assert await world.look("team/p") == []
    assert (world.gated("p"), world.started, told.calls) == (False, [1], ["told.after_release"])
    assert world.told("p")[-1] == "Started"


async def test_a_pod_is_not_given_twice_while_its_event_is_late() -> None:
    eager = Says("eager", release=True)
    world = await admitted(releases=(eager,))
    await world.look("team/p")
    await world.look("team/p", late=True)
    assert eager.calls == ["eager.release"]
    assert world.started == [1]


async def test_kqueue_releases_what_no_plugin_does_g5_9() -> None:
    world = await admitted(releases=(Says("no", release=False),))
    assert await world.look("team/p") == ["patch pods team/p"]
    assert not world.gated("p")


async def test_a_release_that_fails_is_tried_again_g5_14() -> None:
    broken = Says("broken", release=OSError("x"))
    world = await admitted(releases=(broken,))
    for _ in range(2):
        world.sync()
        with pytest.raises(PluginError, match=r"plugin broken failed: OSError: x"):
            await world.reconcile("team/p")
    assert world.gated("p")
    broken.answers["release"] = False
    await world.look("team/p")
    assert not world.gated("p")


async def test_a_plugin_releases_pods_with_their_last_gate_g5_9() -> None:
    """A pod with a place has two gates: kqueue removes the first one, and the ungater asks the plugins."""
    never = Says("never", release=True)
    world = Pods(make_pod("p", gates=["kueue.x-k8s.io/admission", TOPOLOGY]), hooks=hooked(releases=(never,)))
    patch = {"spec": {"schedulingGates": [{"name": TOPOLOGY}]}, "metadata": {"resourceVersion": "1"}}
    assert not await world.releases.is_released(workload("Admitted"), PodRef("team", "p", "u"), patch)
    assert never.calls == []


async def test_gangs_with_places_are_released_by_plugins_g5_9() -> None:
    calls: list[str] = []
    world: Gate

    def release(pod: PodRef, patch: Any) -> bool:
        if pod.name == "p0":
            world.client.change(PODS, f"{pod.namespace}/{pod.name}", {"spec": patch["spec"]})
        return pod.name == "p0"

    binder, told = Says("binder", calls, release=release), Says("told", calls, after_release=None)
    prepare = Says("prepare", calls, before_release=AGREED)
    world = Gate(
        make_gang({"h1": 2}),
        make_gang_pod("p0"),
        make_gang_pod("p1"),
        hooks=hooked(before_releases=(prepare,), releases=(binder,), after_releases=(told,)),
    )
    assert await world.step() == Result(requeue_after=0.0)
    assert await world.step() == Result()
    assert calls == ["prepare.before_release", "binder.release", "binder.release", "told.after_release"]
    assert [str(call) for call in world.patches] == ["patch pods ns/p1"]
    assert world.places() == {"p0": "h1", "p1": "h1"}
    assert world.released == 2


async def test_a_plugin_that_lies_is_asked_again_after_a_minute() -> None:
    """It has said True and released nothing: the pod stays gated until the wait for its event ends."""
    liar = Says("liar", release=True)
    world = Gate(make_gang({"h1": 1}), make_gang_pod("p0"), hooks=hooked(releases=(liar,)))
    await world.step()
    assert await world.step() == Result(requeue_after=1.0)
    await world.clock.advance(61)
    await world.step()
    assert liar.calls == ["liar.release", "liar.release"]


async def test_a_gang_waits_for_the_plugin_that_prepares_its_hosts_g5_8() -> None:
    prepare = Says("prepare", before_release=Verdict("the hosts are being cleaned"))
    world = Gate(make_gang({"h1": 1}), make_gang_pod("p0"), hooks=hooked(before_releases=(prepare,)))
    assert await world.step() == Result(requeue_after=1.0)
    assert world.patches == []


# --- after_release ---------------------------------------------------------------------------------------------------


async def test_a_failure_after_the_release_changes_nothing_g5_10() -> None:
    calls: list[str] = []
    broken, told = Says("broken", calls, after_release=OSError("x")), Says("told", calls, after_release=None)
    world = await admitted(after_releases=(broken, told))
    assert await world.look("team/p") == ["patch pods team/p"]
    assert calls == ["broken.after_release", "told.after_release"]
    assert not world.gated("p")


# --- jobs --------------------------------------------------------------------------------------------------------------


async def test_a_job_is_resumed_when_all_plugins_agree_g5_8() -> None:
    """Its pods have no gate, so no plugin of `release` is asked; all of them count as released."""
    warm, binder = Says("warm", before_release=Verdict("not yet")), Says("binder", release=True)
    told: list[tuple[str, int]] = []
    counts = Says("counts", after_release=lambda key, pods: told.append((key, pods)))
    world = Jobs(hooks=hooked(before_releases=(warm,), releases=(binder,), after_releases=(counts,)))
    await world.queued()
    world.admit()
    assert (await world.step(), world.job["spec"]["suspend"]) == ([], True)
    warm.answers["before_release"] = AGREED
    await world.rest()
    await world.step()
    assert (world.job["spec"]["suspend"], told, binder.calls) == (False, [(f"team/{NAME}", 4)], [])
    await world.close()
