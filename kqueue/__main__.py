"""`python -m kqueue` and the `kqueue` command: hand the arguments over, and leave with the code that comes back."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit."""
    gc.disable()  # what is imported stays: collecting meanwhile costs 0.2 s and finds nothing; `loop.run` enables it
    # importing numpy starts threads of OpenBLAS: 80 ms of CPU on two cores, and our sums of integers never use them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from kqueue.cli.app import run

    sys.exit(run(sys.argv[1:], _program(sys.argv[0])))


def complete() -> None:
    """Print completions for `kubectl kqueue`: kubectl runs this program, `kubectl_complete-kqueue`, at the tab key.

    Prints one word per line that the last argument may become, and `:4`, with which kubectl offers no files.
    """
    import contextlib
    import io
    import shlex

    words = sys.argv[1:] or [""]
    os.environ |= {
        "_KQUEUE_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["kqueue", *words[:-1]]) + f" {words[-1]}",
        "COMP_CWORD": str(len(words)),
    }
    from kqueue.cli.app import run

    offered = io.StringIO()
    with contextlib.redirect_stdout(offered):
        run([])
    print(*offered.getvalue().split(), ":4", sep="\n")  # noqa: T201  # an answer, like those of commands


def _program(path: str) -> str:
    """Return the command as the user wrote it: `kubectl-kqueue` is called as `kubectl kqueue`."""
    name = path.rpartition("/")[2]
    return name.replace("kubectl-", "kubectl ", 1) if name.startswith("kubectl-") else "kqueue"


if __name__ == "__main__":
    main()
