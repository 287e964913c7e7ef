"""Credentials for the API server."""

from __future__ import annotations

import ssl
from typing import Protocol


class Credentials(Protocol):
    """Source of the Authorization header; read again when the server refuses the header."""

    async def header(self) -> str | None:
        """Return the header's value; None when the connection authenticates us (client certificate)."""
        ...

    async def reload(self) -> ssl.SSLContext | None:
        """Read token file, plugin or kubeconfig again.

        Returns the TLS context for new connections where certificates have changed; None: the former one stays.

        Raises:
            ConfigError: the source cannot be read any more.
        """
        ...


class NoCredentials:
    """No header: a client certificate is used, or the server needs no authentication."""

    async def header(self) -> str | None:
        """Return None: the client certificate, or nothing, identifies this process."""
        return None

    async def reload(self) -> ssl.SSLContext | None:
        """Return None: there is nothing to read again."""
        return None
