"""The questions that owners and ungaters ask before, while and after they release the pods of a workload.

`plugin_releases` asks plugins; without plugins nothing is asked.
"""

from __future__ import annotations

from kqueue.api.wire import kueue as wire
from kqueue.core.plugins import PodRef, ReleasePatch


class ReleaseHooks:
    """The hooks of a process without plugins: it agrees to everything and does nothing."""

    async def pause_before(self, workload: wire.Workload) -> float | None:
        """Return None if the pods of an admitted Workload may be released, else the seconds until it is read again.

        Zero seconds: plugins were asked just now and agree, and the caller's objects may have changed meanwhile.
        """
        del workload
        return None

    async def is_released(self, workload: wire.Workload, pod: PodRef, patch: ReleasePatch) -> bool:
        """Return whether a plugin has released a pod.  Raises PluginError, and then the pod must not be released."""
        del workload, pod, patch
        return False

    def is_sent(self, pod: PodRef, version: str) -> bool:
        """Whether a plugin has released the pod at this resource version, which the watch will report."""
        del pod, version
        return False

    def tell_released(self, workload: wire.Workload, pods: int) -> None:
        """Tell plugins that so many pods were released."""
        del workload, pods


NO_RELEASE_HOOKS = ReleaseHooks()
