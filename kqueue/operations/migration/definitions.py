"""Checks that kqueue's definitions can replace the installed definitions of Kueue's kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kqueue.api import names
from kqueue.operations.migration.findings import MigrationFinding, note, work

JSON = dict[str, Any]


def judge_definitions(definitions: Iterable[JSON]) -> Iterator[MigrationFinding]:
    """Return findings about the definitions of Kueue's group. The API server refuses kqueue's definition of a kind of
    which objects are stored in a version that this definition does not have.
    """
    ours = [crd for crd in definitions if crd["spec"].get("group") == names.GROUP]
    if not ours:
        yield note(
            "CustomResourceDefinition", "no kind of Kueue is installed", "there is nothing to migrate: install kqueue"
        )
    for crd in ours:
        yield from _judged(crd)


def _judged(crd: JSON) -> Iterator[MigrationFinding]:
    where = f"CustomResourceDefinition {crd['metadata']['name']}"
    stored = (crd.get("status") or {}).get("storedVersions") or ()
    old = [name for name in stored if name not in (names.VERSION, names.OLDER_VERSION)]
    if old:
        why = f"objects may be stored as {', '.join(old)}, and the API server then refuses kqueue's definition"
        remedy = f"upgrade Kueue to a release that stores {names.OLDER_VERSION} or {names.VERSION} only"
        yield work(f"{where} status.storedVersions", why, remedy)
    elif names.OLDER_VERSION in stored:
        why = f"objects may be stored as {names.OLDER_VERSION}: kqueue's webhooks convert them when they are read"
        yield note(f"{where} status.storedVersions", why, "nothing to do; every write stores them as kqueue does")
