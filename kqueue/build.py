"""The running build: version, commit, interpreter, platform."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from kqueue import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Facts about this build.  Commit and date are empty unless the image names them."""

    version: str
    commit: str
    date: str
    python: str
    compiler: str
    platform: str

    def labels(self) -> tuple[str, ...]:
        """Return the values in the order of the labels of `kueue_build_info`; its Go version stays empty."""
        return (self.version, self.commit, self.date, "", self.compiler, self.platform)


def build() -> Build:
    """Return this process's build.  Images set KQUEUE_GIT_COMMIT and KQUEUE_BUILD_DATE."""
    return Build(
        version=f"v{__version__}",
        commit=os.environ.get("KQUEUE_GIT_COMMIT", ""),
        date=os.environ.get("KQUEUE_BUILD_DATE", ""),
        python=platform.python_version(),
        compiler=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system().lower()}/{platform.machine()}",
    )
