"""The chart as a release on a cluster."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fast_yaml import documents
from tests.integration.controlplane import binaries

Object = dict[str, Any]
CHART = Path(__file__).resolve().parents[3] / "charts" / "kqueue"
NAMESPACE = "kueue-system"
_SECONDS = 120


class HelmError(Exception):
    """helm ended with a status other than 0; carries its words."""


@dataclass(frozen=True, slots=True)
class Release:
    """`kqueue` in `kueue-system`."""

    kubeconfig: Path
    folder: Path

    async def install(self, values: Object) -> str:
        """As a user would; returns what helm prints."""
        chart = ("kqueue", str(CHART), "--create-namespace", "--values", "-")
        return await self.helm("install", *chart, stdin=json.dumps(values))

    async def upgrade(self, values: Object) -> str:
        """To other values."""
        return await self.helm("upgrade", "kqueue", str(CHART), "--values", "-", stdin=json.dumps(values))

    async def uninstall(self, *flags: str) -> str:
        """With its hooks, unless a flag says otherwise."""
        return await self.helm("uninstall", "kqueue", *(flags or ("--timeout", "90s")))

    async def manifests(self) -> list[Object]:
        """What is installed, and the hooks."""
        texts = [await self.helm("get", what, "kqueue") for what in ("manifest", "hooks")]
        return [obj for text in texts for obj in documents(text)]

    async def helm(self, *arguments: str, stdin: str = "") -> str:
        """Run it; what it prints.

        Raises:
            HelmError: its status is not 0.
        """
        process = await asyncio.create_subprocess_exec(
            binaries.folder() / "helm",
            *arguments,
            *("--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
        )
        try:
            async with asyncio.timeout(_SECONDS):
                out, err = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise HelmError(f"helm {' '.join(arguments)}: {err.decode() or out.decode()}")
        return out.decode()
