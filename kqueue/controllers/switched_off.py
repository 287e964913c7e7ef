"""Reports pods with gates and finalizers of switched-off integrations.  It does not release them.

No watch has such pods.  They are listed when this process becomes the leader, and again at intervals.  The operator who
switched the integration off decides whether they may run: `kqueue uninstall --release --integration NAME`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from kqueue.api import names
from kqueue.api.wire.meta import Struct
from kqueue.clock import Clock
from kqueue.controllers.leftovers import Leftover, Seen, of_pod
from kqueue.controllers.manager import Manager
from kqueue.controllers.pod_writes import watch_pods
from kqueue.controllers.record import ObjectReference, Recorder, job_controller
from kqueue.controllers.resources import PODS
from kqueue.errors import ApiError
from kqueue.jobs.pod import FRAMEWORK
from kqueue.runtime.resources import ResourceType

_log = structlog.get_logger(__name__)

EVENT_HELD = "IntegrationSwitchedOff"
_REASON = "integration_off"
_NAMED = 5


class _ListMeta(Struct, frozen=True, kw_only=True, rename={"token": "continue"}):
    token: str = ""


class _Page(Struct, frozen=True, kw_only=True):
    items: tuple[Seen, ...] = ()
    metadata: _ListMeta = _ListMeta()


class SwitchedOff:
    """Lists pods that were queued themselves before, if no pods are queued now."""

    def __init__(
        self,
        list_page: Callable[..., Awaitable[bytes]],
        *,
        recorder: Recorder,
        clock: Clock,
        interval: float,
        report: Callable[[Mapping[str, int]], None],
    ) -> None:
        """Take the functions; `list_page` is the method of a client; `interval` is the number of seconds between two
        lists.

        `report` is called with the number of pods by reason.
        """
        self._list_page, self._recorder, self._clock = list_page, recorder, clock
        self._interval, self._report = interval, report
        self._told: set[str] = set()

    async def run(self) -> None:
        """List the pods until cancelled; then report that there are none."""
        try:
            while True:
                try:
                    await self.look()
                except ApiError as e:
                    _log.warning("pods of integrations that are switched off are looked for again later", error=str(e))
                await self._clock.sleep(self._interval)
        finally:
            self._report({_REASON: 0})

    async def look(self) -> None:
        """List all pods with the label of managed pods once, and report pods with a gate or finalizer.

        Raises:
            ApiError: the list failed.
        """
        found: list[Leftover] = []
        params = {"limit": "500", "labelSelector": f"{names.MANAGED_LABEL}=true"}
        while True:
            page = msgspec.json.decode(await self._list_page(PODS, params=params), type=_Page)
            found += [left for pod in page.items if (left := of_pod(PODS, pod)) is not None]
            if not page.metadata.token:
                break
            params["continue"] = page.metadata.token
        self._report({_REASON: len(found)})
        new = [left for left in found if left.uid not in self._told]
        self._told = {left.uid for left in found}
        for left in new:
            self._tell(left)
        if new:
            by_name = Counter(left.integration for left in found)
            _log.warning("pods are held by gates of integrations that are switched off", new=len(new),
                         in_all=len(found), integrations=dict(by_name), remedy="kqueue uninstall --release",
                         pods=[f"{left.namespace}/{left.name}" for left in new[:_NAMED]])  # fmt: skip

    def _tell(self, left: Leftover) -> None:
        self._recorder.record(
            _reference(left.resource, left),
            reason=EVENT_HELD,
            message=(
                f"Held by {', '.join(left.ours)}, but integration {left.integration} is switched off: "
                f"kqueue uninstall --release --integration {left.integration} lets go of it"
            ),
            warning=True,
        )


def _reference(resource: ResourceType, left: Leftover) -> ObjectReference:
    return ObjectReference(
        api_version=resource.api_version, kind=resource.kind, namespace=left.namespace, name=left.name, uid=left.uid
    )


def setup(manager: Manager) -> None:
    """Add the report on pods that were queued before and that no controller manages now, if no pods are queued."""
    if manager.shared(watch_pods) is not None:
        return
    former = SwitchedOff(
        manager.client.list_page,
        recorder=manager.recorder(job_controller(FRAMEWORK)),
        clock=manager.clock,
        interval=10 * manager.timings.leaked_gate_sweep,
        report=manager.metrics.leaked_gates,
    )
    manager.background.append(former.run)
