"""Packages of the npm registry in fixed versions: fetched by npm, checked by digest, kept in the user's cache.

They go to `$XDG_CACHE_HOME/kqueue/npm/<name>-<version>/` (default `~/.cache`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

NPM_SECONDS = 120


class MissingError(Exception):
    """Something cannot be had here; the text is one sentence with the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A package in one version: its archive's SHA-512 in base64, and the file in it that its users need."""

    name: str
    version: str
    sha512: str
    file: str

    def folder(self) -> Path:
        """Return where it is unpacked, or would be."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "kqueue" / "npm" / f"{self.name.replace('/', '-')}-{self.version}"

    def path(self) -> Path:
        """Return where its file is, or would be."""
        return self.folder() / "package" / self.file


def fetch(package: NpmPackage) -> None:
    """Fetch a package through npm, and rename it into place.

    Raises:
        MissingError: there is no npm, the registry does not answer, or the archive has another digest.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise MissingError(f"install npm, which fetches {package.name}")
    wanted = f"{package.name}@{package.version}"
    package.folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=package.folder().parent) as scratch:
        command = [npm, "pack", wanted, "--silent"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            raise MissingError(f"npm pack {wanted} failed: {done.stderr.strip()[-300:]}")
        digest = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
        if digest != package.sha512:
            raise MissingError(f"the archive of {wanted} has the digest {digest}, not {package.sha512}")
        new = Path(scratch) / "new"
        with tarfile.open(archives[0]) as archive:
            archive.extractall(new, filter="data")
        if not package.path().exists():
            shutil.rmtree(package.folder(), ignore_errors=True)
            new.rename(package.folder())
