"""Credentials for the API server."""

from __future__ import annotations

import ssl
from typing import Protocol


class Credentials(Protocol):
    """Gives the Authorization header; told to read its source again when the server refuses it."""

    async def header(self) -> str | None:
        """The header's value now; None when the connection itself says who we are (client certificate)."""
        ...

    async def reload(self) -> ssl.SSLContext | None:
        """Read token file, plugin or kubeconfig again.

        Returns what new connections are to be made with, where certificates have changed; None: as before.

        Raises:
            ConfigError: the source cannot be read any more.
        """
        ...


class NoCredentials:
    """Nothing to show: a client certificate, or a server without authentication."""

    async def header(self) -> str | None:
        """None."""
        return None

    async def reload(self) -> ssl.SSLContext | None:
        """Nothing to read again."""
        return None
