"""Finds the binaries of the control plane, or the reason that they are missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools import controlplane

REQUIRE = controlplane.REQUIRE
REMEDY = f"run `make controlplane`, or set {controlplane.OVERRIDE} to a folder with the binaries"


def required() -> bool:
    """Whether tests that need the binaries must fail, not skip, where there are none."""
    return os.environ.get(REQUIRE) == "1"


def folder() -> Path:
    """The folder of the binaries, whole or not."""
    return controlplane.where()


def why_missing() -> str | None:
    """None when all binaries are there; else one sentence that says which are not and how to have them."""
    lacking = [command.name for command in controlplane.missing(folder())]
    if not lacking:
        return None
    return f"{folder()} holds no {', '.join(lacking)}; {REMEDY}"


def kubectl() -> str | None:
    """A kubectl: ours, else the one on PATH; None if there is neither."""
    ours = folder() / "kubectl"
    return str(ours) if os.access(ours, os.X_OK) else shutil.which("kubectl")
