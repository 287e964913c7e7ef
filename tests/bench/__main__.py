"""`make bench`: every measurement, one after the other, each in a process of its own."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path


def rows() -> list[str]:
    """The measurements there are: the other modules of this folder."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))


def main() -> int:
    """Run the chosen ones; the exit code is 1 when one of them failed to run."""
    parser = argparse.ArgumentParser(prog="make bench", description="Figures with their conditions.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(rows())}; all without")
    chosen = parser.parse_args().rows or rows()
    unknown = sorted(set(chosen) - set(rows()))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(rows())}")
    print(f"{os.cpu_count()} CPUs, {platform.machine()}, CPython {platform.python_version()}, {platform.system()}")
    failed = []
    for row in chosen:
        print(f"\n== {row}", flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.bench.{row}"], check=False).returncode:
            failed.append(row)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
