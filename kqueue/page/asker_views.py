"""The views of people whose rights end at a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kqueue.errors import ForbiddenError
from kqueue.page.views import ClusterViews, Line
from kqueue.runtime.client import Client

_ACCOUNT = "system:serviceaccount:"


class AskerViews(ClusterViews):
    """Views of one asker: without the right to list the Workloads of all namespaces, those of its own namespace."""

    def __init__(
        self, client: Client, lines: Callable[[dict[str, Any]], Iterable[Line]], *, namespace: str, **more: Any
    ) -> None:
        """`namespace`: the asker's own; empty: it has none.  `more` is as in `ClusterViews`."""
        super().__init__(client, lines, **more)
        self._namespace = namespace

    async def workloads(self, namespace: str | None = None) -> dict[str, Any]:
        """Return a row for each Workload that the asker may list.

        Raises:
            ForbiddenError: it may list neither those of all namespaces nor those of its own.
        """
        try:
            return await super().workloads(namespace)
        except ForbiddenError:
            if namespace or not self._namespace:
                raise
        return await super().workloads(self._namespace)


def namespace_of(user: str) -> str:
    """Return the namespace of a ServiceAccount by the name of its user; empty for other users."""
    return user.removeprefix(_ACCOUNT).partition(":")[0] if user.startswith(_ACCOUNT) else ""
