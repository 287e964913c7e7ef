"""Names of objects in the cluster, for a shell that completes a command line."""

from __future__ import annotations

import re
from collections.abc import Callable

import typer

from kqueue.cli.ctl.kinds import CommandKind
from kqueue.cli.reaching import reach_of

_NAME = re.compile(r"[a-z0-9.-]+")
"""Names that the API server allows.  Shells evaluate the printed text, so all other names are dropped."""
_MOST = "500"
"""Limit of the offered names, so that one request is enough."""


def names_of(kind: CommandKind) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer for names of a kind's objects in the line's namespace; no names without a cluster."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        import json

        from kqueue.errors import KqueueError
        from kqueue.runtime.loop import run

        async def names() -> list[str]:
            async with reach_of(context.params).session(quick=True) as session:
                namespace = session.namespace if kind.resource.namespaced else None
                page = await session.client.list_page(kind.resource, namespace, params={"limit": _MOST})
                return [each["metadata"]["name"] for each in json.loads(page).get("items") or ()]

        try:
            found = run(names())
        except KqueueError:  # an error message would break the completion of the shell
            return []
        return [name for name in found if name.startswith(incomplete) and _NAME.fullmatch(name)]

    return complete
