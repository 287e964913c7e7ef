"""Asks plugins before the pods of a workload are released, lets them release pods, and tells them of released pods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog
from cachetools import LRUCache, TTLCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import Recorder, Reporter, workload_reference
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.core.hooks import NO_HOOKS, HooksByProfile, ProfileHooks
from kqueue.core.plugins import PodRef, ReleasePatch
from kqueue.errors import PluginError

_log = structlog.get_logger(__name__)

MOST_AT_ONCE = 4
"""Workloads whose plugins are asked at the same time.  Further ones are read again soon: the workers of a controller
serve workloads without plugins, too.
"""
_TURN = 0.5
"""Seconds until a workload is read again that was not asked about, because others were."""
_LONGEST_PAUSE = 60
"""Seconds between two questions about one workload that a plugin refuses: 1, 2, 4 and so on up to this."""
_REMEMBERED = 20_000
_SENT_FOR = 60.0
"""Seconds in which the watch reports a pod that a plugin has released."""

_Admitted = tuple[str, datetime | None]
"""UID of a Workload, and the time of its admission."""
_GATES = (names.ADMISSION_GATE, names.TOPOLOGY_GATE, names.ELASTIC_JOB_GATE)


class PluginReleases(ReleaseHooks):
    """The plugins of the profile of a Workload's ClusterQueue.

    Consent is kept in memory for one admission of a Workload: after a restart plugins are asked again about workloads
    with pods that are still held.
    """

    def __init__(
        self, hooks: HooksByProfile, *, profile_of: Callable[[str], str], recorder: Recorder, clock: Clock
    ) -> None:
        """`profile_of` returns the profile of a ClusterQueue; `recorder` records events on Workloads."""
        self._hooks, self._profile_of, self._recorder = hooks, profile_of, recorder
        self._agreed: LRUCache[str, _Admitted] = LRUCache(_REMEMBERED)
        """By workload: the admission to which all plugins have agreed."""
        self._refused: LRUCache[str, tuple[_Admitted, int]] = LRUCache(_REMEMBERED)
        """By workload: an admission, and the number of refusals of it in a row."""
        self._sent: TTLCache[tuple[str, str], bool] = TTLCache(_REMEMBERED, _SENT_FOR, clock.monotonic)
        """UID and resource version of pods that plugins have released."""
        self._asking = 0

    async def pause_before(self, workload: wire.Workload) -> float | None:
        """Ask each plugin of point `before_release`; report a refusal or failure, and repeat it with growing pauses."""
        hooks, key = self._of(workload), model.workload_key(workload)
        admitted = (workload.metadata.uid, model.since(workload, names.CONDITION_ADMITTED))
        if not hooks.before_releases or self._agreed.get(key) == admitted:
            return None
        if self._asking >= MOST_AT_ONCE:
            return _TURN
        self._asking += 1
        try:
            refusal = await _refusal(hooks, key, workload)
        finally:
            self._asking -= 1
        if not refusal:
            self._agreed[key] = admitted
            self._refused.pop(key, None)
            return 0.0
        known, often = self._refused.get(key, (admitted, 0))
        often = often + 1 if known == admitted else 1
        self._refused[key] = admitted, often
        pause = min(2 ** min(often - 1, 10), _LONGEST_PAUSE)
        message = f"The pods are not released: {refusal}"
        self._recorder.record(
            workload_reference(workload), reason=names.EVENT_RELEASE_REFUSED, message=message, warning=True
        )
        _log.info("a plugin refuses a release", workload=key, why=refusal, seconds=pause)
        return float(pause)

    async def is_released(self, workload: wire.Workload, pod: PodRef, patch: ReleasePatch) -> bool:
        """Ask the plugins of point `release` one after the other, about the patch that removes the last gate."""
        hooks = self._of(workload)
        if not hooks.releases or _leaves_a_gate(patch) or not await hooks.is_released(pod, patch):
            return False
        self._sent[pod.uid, patch["metadata"]["resourceVersion"]] = True
        return True

    def is_sent(self, pod: PodRef, version: str) -> bool:
        """Whether a plugin has said within a minute that it has released the pod."""
        return (pod.uid, version) in self._sent

    def tell_released(self, workload: wire.Workload, pods: int) -> None:
        """Tell the plugins of point `after_release`."""
        if pods:
            self._of(workload).tell_released(model.workload_key(workload), pods)

    def _of(self, workload: wire.Workload) -> ProfileHooks:
        admission = workload.status.admission
        return self._hooks.get(self._profile_of(admission.cluster_queue), NO_HOOKS) if admission else NO_HOOKS


async def _refusal(hooks: ProfileHooks, key: str, workload: wire.Workload) -> str:
    """Return why the pods must not be released; empty: all plugins agree."""
    admission = model.admission(workload)
    if admission is None:
        return "the Workload has no reservation"
    try:
        refusal = await hooks.refused_release(key, admission)
    except PluginError as e:
        return str(e)
    return str(refusal) if refusal is not None else ""


def _leaves_a_gate(patch: ReleasePatch) -> bool:
    """Whether another gate of kqueue holds the pod after the patch."""
    gates = patch["spec"]["schedulingGates"] or ()
    return any(gate["name"] in _GATES for gate in gates)


def make_release_hooks(manager: Manager) -> ReleaseHooks:
    """Return the release hooks of a process."""
    hooks = {name: found for name, found in manager.hooks.items() if found.releases_pods}
    if not hooks:
        return NO_RELEASE_HOOKS
    recorder = manager.recorder(Reporter.WORKLOADS)
    profile_of = manager.cache.quota.plugin_profile
    return PluginReleases(hooks, profile_of=profile_of, recorder=recorder, clock=manager.clock)
