"""`python -m kqueue` and the `kqueue` command: hand the arguments over, and leave with the code that comes back."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit."""
    gc.disable()  # what is imported stays: collecting meanwhile costs 0.2 s and finds nothing; `loop.run` enables it
    from kqueue.cli.app import run

    sys.exit(run(sys.argv[1:], _program(sys.argv[0])))


def _program(path: str) -> str:
    """What was called: `kubectl-kqueue` is called as `kubectl kqueue`."""
    name = path.rpartition("/")[2]
    return name.replace("kubectl-", "kubectl ", 1) if name.startswith("kubectl-") else "kqueue"


if __name__ == "__main__":
    main()
