"""Names of Workloads that are made for other objects: other tools compute the same names, so they must not change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

LONG_NAME, SHORT_NAME = 253, 63
"""The largest number of characters of a Workload's name, without and with gate ShortWorkloadNames."""
_HASH = 5


def owned_name(prefix: str, owner: Iterable[str], *, limit: int = LONG_NAME) -> str:
    """Return `<prefix>-<hash>`, at most `limit` bytes; `owner` are the texts that are hashed: equal owners always get
    the same name.
    """
    digest = hashlib.sha1("\n".join(owner).encode(), usedforsecurity=False).hexdigest()
    short = prefix.encode()[: limit - _HASH - 1].decode(errors="ignore")
    return f"{short}-{digest[:_HASH]}"
