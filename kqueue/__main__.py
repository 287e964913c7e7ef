"""`python -m kqueue` and the `kqueue` command: hand the arguments over, and leave with the code that comes back."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit."""
    from kqueue.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
