"""Find what the tests of the page need beside Python: a Chromium, the accessibility rules of axe-core, and TypeScript.

    tools/browser.py                  get what is missing: Chromium by apt-get (as root), the rest through npm
    tools/browser.py --if-possible    the same, but if that is impossible, print one line and exit with 0
    tools/browser.py --where          print the paths, found or not

A Chromium that is installed is used as it is.  The packages of the page's own libraries are fetched, too: a test
compares the files that are checked in with them.  `tools/npm.py` says where packages are kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from tools.npm import MissingError, NpmPackage, fetch
from tools.vendor import LIBRARIES

REQUIRE = "KQUEUE_REQUIRE_BROWSER"
OVERRIDE = "KQUEUE_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")
APT_SECONDS = 600

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
NPM_PACKAGES = (AXE, TYPESCRIPT, *(library.package for library in LIBRARIES))


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
