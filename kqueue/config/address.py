"""The listen address of a server, as the configuration file writes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is empty for all interfaces; `port` 0 lets the system choose a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Parse `:8081`, `127.0.0.1:8081` or `[::1]:8081`; return None for `0` and for nothing: the server is off.

    Raises:
        ValueError: anything else.
    """
    if text in {"", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError('must have an IPv6 host in brackets, as in "[::1]:8081"')
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError('must be "host:port" or ":port" with a port from 0 to 65535, or "0" to switch it off')
    return Address(host, int(port))
