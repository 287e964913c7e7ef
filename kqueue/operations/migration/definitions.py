"""Checks that kqueue's definitions can replace the installed definitions of Kueue's kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kqueue.api import names
from kqueue.operations.migration.findings import MigrationFinding, note, work

JSON = dict[str, Any]
_PAGE = "docs/how-to/migrate-from-kueue.md"


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
    versions = crd["spec"].get("versions") or ()
    stored = next((v["name"] for v in versions if v.get("storage")), "")
    old = [name for name in crd.get("status", {}).get("storedVersions") or () if name != names.VERSION]
    if stored != names.VERSION:
        why = f"new objects are stored as {stored or 'nothing'}, and kqueue reads {names.VERSION} only"
        yield work(f"{where} spec.versions", why, f"upgrade Kueue to a release that stores {names.VERSION}")
    if old:
        why = f"objects may be stored as {', '.join(old)}, and the API server then refuses kqueue's definition"
        yield work(f"{where} status.storedVersions", why, f"with Kueue running, run the script of step 2 of {_PAGE}")
    served = [v["name"] for v in versions if v.get("served") and v["name"] != names.VERSION]
    if served and stored == names.VERSION and not old:
        why = f"{', '.join(served)} is served now, but not by kqueue's definitions"
        yield note(f"{where} spec.versions", why, f"write apiVersion {names.GROUP}/{names.VERSION} in your manifests")
