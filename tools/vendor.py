"""Bring the libraries of the page, from the npm registry, to `kqueue/page/static/vendor`, where they are checked in.

    tools/vendor.py            fetch the versions below, and replace the folder
    tools/vendor.py --check    fetch them, and exit with 1 where the folder differs

Files keep the bytes of their package, whose archive must have the digest below.  Each library has a folder with its
licence.  `docs/decisions/0107-libraries-of-the-page-are-checked-in.md`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.npm import MissingError, NpmPackage, fetch

VENDOR = Path(__file__).resolve().parent.parent / "kqueue" / "page" / "static" / "vendor"


@dataclass(frozen=True, slots=True)
class VendoredLibrary:
    """A package, the name of its folder, and the files of the folder with their places in the package."""

    folder: str
    package: NpmPackage
    files: Mapping[str, str]


def _modules(*names: str) -> dict[str, str]:
    """Return modules of the virtual table with their types."""
    return {f"{name}{end}": f"dist/esm/{name}{end}" for name in names for end in (".js", ".d.ts")}


LIBRARIES = (
    VendoredLibrary(
        "uplot",
        NpmPackage(
            "uplot",
            "1.6.32",
            "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
            "dist/uPlot.esm.js",
        ),
        {
            "uPlot.esm.js": "dist/uPlot.esm.js",
            "uPlot.esm.d.ts": "dist/uPlot.d.ts",  # the name by which the types of a module are found
            "uPlot.min.css": "dist/uPlot.min.css",
            "LICENSE": "LICENSE",
        },
    ),
    VendoredLibrary(
        "virtual-core",
        NpmPackage(
            "@tanstack/virtual-core",
            "3.19.11",
            "/5iHb0RHBvj8Di59FDs4ESNm45jls33aZAi4zccVXZjc/6ZvwQP6nzEYeT6weXjTf9E6/vrp2JhYWRyO+ZP13A==",
            "dist/esm/index.js",
        ),
        {**_modules("index", "ios-gesture", "lazy-measurements", "scroll-classifier", "utils"), "LICENSE": "LICENSE"},
    ),
)


def wanted() -> dict[str, bytes]:
    """Return the content of each file of the folder, by its path in it, from packages that are in the cache."""
    return {
        f"{library.folder}/{name}": (library.package.folder() / "package" / place).read_bytes()
        for library in LIBRARIES
        for name, place in library.files.items()
    }


def found() -> dict[str, bytes]:
    """Return the content of each file that is checked in."""
    return {str(file.relative_to(VENDOR)): file.read_bytes() for file in VENDOR.rglob("*") if file.is_file()}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 where the folder differs")
    chosen = parser.parse_args()
    try:
        for library in LIBRARIES:
            if not library.package.path().exists():
                fetch(library.package)
    except MissingError as e:
        print(f"vendor: {e}")
        return 1
    files = wanted()
    if chosen.check:
        differs = sorted({name for name, content in {*files.items()} ^ {*found().items()}})
        print("\n".join(f"vendor: {name} differs from its package; run tools/vendor.py" for name in differs))
        return 1 if differs else 0
    shutil.rmtree(VENDOR, ignore_errors=True)
    for name, content in files.items():
        (VENDOR / name).parent.mkdir(parents=True, exist_ok=True)
        (VENDOR / name).write_bytes(content)
    print(f"vendor: {len(files)} files in {VENDOR}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
