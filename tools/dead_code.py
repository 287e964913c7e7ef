"""List unused names of the product: `python tools/dead_code.py` ends with 1 if there are any.

Tests count as users, but unused names in tests are ignored, because pytest finds tests by name.  API models are left
out, because fields that no code reads are stored and shown all the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[1]
USERS = ("kqueue", "webhooks", "tools", "tests")
JUDGED = ("kqueue", "webhooks", "tools")
NOT_JUDGED = ("kqueue/api/", "kqueue/core/plugins.py")
"""API models, and the interfaces that plugins of other packages implement."""
CALLED_BY_DECORATORS = ["@app.command*", "@*.command*", "@*.callback*", "@field_validator*", "@model_validator*"]
KINDS = ("class", "function", "import", "method", "property")
"""Fields and members of enumerations are left out: configuration files and libraries use them."""
USED_BY_LIBRARIES = [
    "__getattr__",
    "list_commands",
    "model_post_init",
    "handle_error",
    "is_trace_id_random",
]
"""Names that Python, click, pydantic, aiohttp and OpenTelemetry look for."""


def main() -> int:
    """Return 1 if a name is unused, else 0."""
    found = Vulture(ignore_names=USED_BY_LIBRARIES, ignore_decorators=CALLED_BY_DECORATORS)
    found.scavenge([str(ROOT / folder) for folder in USERS])
    unused = [
        f"{where}:{item.first_lineno}: unused {item.typ} {item.name}"
        for item in found.get_unused_code(min_confidence=60)
        if item.typ in KINDS
        for where in [Path(item.filename).resolve().relative_to(ROOT).as_posix()]
        if where.startswith(JUDGED) and not where.startswith(NOT_JUDGED)
    ]
    print(*unused, sep="\n", end="\n" if unused else "")
    return 1 if unused else 0


if __name__ == "__main__":
    sys.exit(main())
