"""A filter by the size of pods, and a permit that waits while a file exists."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kqueue.core.decision import Admit
from kqueue.core.plugins import Approve, Permission, WaitFor
from kqueue.core.workload import Flavor, PodSet


class Freeze:
    """A plugin of the points `filter` and `permit`.

    `args` has `file`: while it exists, no workload starts; `seconds`: how long a workload keeps its quota meanwhile
    (600); `maxCpu`: by flavor, the greatest cpu request of one pod.
    """

    name = "freeze"

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._file, self._seconds = Path(args["file"]), float(args.get("seconds", 600))
        self._most = {flavor: 1000 * int(cpus) for flavor, cpus in args.get("maxCpu", {}).items()}

    def allows_flavor(self, pod_set: PodSet, flavor: Flavor) -> str:
        """Return why the pods are too large for a flavor; empty: they are not."""
        asked, most = pod_set.request.requests.get("cpu", 0), self._most.get(flavor.name)
        if most is None or asked <= most:
            return ""
        return f"pods may ask for {most // 1000} cpu, and these ask for {asked / 1000:g}"

    async def permit(self, admit: Admit) -> Permission:
        """Wait while the file exists.  Reading a file may take long, so a thread does it."""
        if await asyncio.to_thread(self._file.exists):
            return WaitFor(self._seconds, f"file {self._file} exists")
        return Approve()
