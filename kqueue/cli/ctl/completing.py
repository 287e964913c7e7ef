"""Names in the cluster, for a shell that completes a command line."""

from __future__ import annotations

import re
from collections.abc import Callable

import typer

from kqueue.cli.ctl.kinds import CommandKind
from kqueue.cli.reaching import reach_of

_NAME = re.compile(r"[a-z0-9.-]+")
"""What the API server allows; shells evaluate what we print, so nothing else is believed."""
_MOST = "500"
"""Names that are offered at most: one request."""


def names_of(kind: CommandKind) -> Callable[[typer.Context, str], list[str]]:
    """Completes the names of a kind's objects, in the namespace that the line names; none where it is away."""

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
