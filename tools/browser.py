"""Find what the tests of the page need beside Python: a Chromium, the accessibility rules of axe-core, and TypeScript.

    tools/browser.py                  get what is missing: Chromium by apt-get (as root), the rest through npm
    tools/browser.py --if-possible    the same, but if that is impossible, print one line and exit with 0
    tools/browser.py --where          print the paths, found or not

A Chromium that is installed is used as it is.  Packages go to `$XDG_CACHE_HOME/kqueue/npm/<name>-<version>/` (default
`~/.cache`); their archives must have the digests below.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

REQUIRE = "KQUEUE_REQUIRE_BROWSER"
OVERRIDE = "KQUEUE_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")
APT_SECONDS = 600
NPM_SECONDS = 120


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
        return cache / "kqueue" / "npm" / f"{self.name}-{self.version}"

    def path(self) -> Path:
        """Return where its file is, or would be."""
        return self.folder() / "package" / self.file


AXE = NpmPackage(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    "axe.min.js",
)
"""The rules of accessibility."""
TYPESCRIPT = NpmPackage(
    "typescript",
    "5.9.3",
    "jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw==",
    "lib/tsc.js",
)
"""The checker of the types in the page's modules."""
NPM_PACKAGES = (AXE, TYPESCRIPT)


class MissingError(Exception):
    """Something cannot be had here; the text is one sentence with the cause and the remedy."""


def say(text: str) -> None:
    """Print one line of progress, unbuffered."""
    print(f"browser: {text}", flush=True)


def chromium() -> str | None:
    """Return the program, or None."""
    named = os.environ.get(OVERRIDE, "")
    if named:
        return named if os.access(named, os.X_OK) else None
    return next(filter(None, map(shutil.which, NAMES)), None)


def is_required() -> bool:
    """Whether tests that need a browser must fail, not be left out, where there is none."""
    return os.environ.get(REQUIRE) == "1"


def why_missing() -> str | None:
    """Return None when all is there; else one sentence that says what is missing and how to get it."""
    lacking = [] if chromium() else ["Chromium"]
    lacking += [package.name for package in NPM_PACKAGES if not package.path().exists()]
    return f"no {' and no '.join(lacking)}; run `make browser`, or set {OVERRIDE} to a Chromium" if lacking else None


def install_chromium() -> None:
    """Install Debian's package.

    Raises:
        MissingError: this is not root on a Debian, or the package cannot be installed.
    """
    if os.environ.get(OVERRIDE) or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingError(f"install a Chromium, or set {OVERRIDE} to its program")
    say(f"installing {' '.join(PACKAGES)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *PACKAGES]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=APT_SECONDS, check=False)
        if done.returncode:
            raise MissingError(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")


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


def get() -> None:
    """Get what is missing.

    Raises:
        MissingError: something cannot be had.
    """
    if chromium() is None:
        install_chromium()
    for package in NPM_PACKAGES:
        if not package.path().exists():
            say(f"fetching {package.name} {package.version}")
            fetch(package)
    if (missing := why_missing()) is not None:
        raise MissingError(missing)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--if-possible", action="store_true", help="exit with 0 where something cannot be had")
    parser.add_argument("--where", action="store_true", help="print the paths and end")
    chosen = parser.parse_args()
    if chosen.where:
        print("\n".join([chromium() or "no Chromium", *(str(package.path()) for package in NPM_PACKAGES)]))
        return 0
    try:
        get()
    except (MissingError, subprocess.TimeoutExpired) as e:
        say(str(e))
        return 0 if chosen.if_possible and not is_required() else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
