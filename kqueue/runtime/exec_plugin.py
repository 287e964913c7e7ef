"""Runs a program that prints credentials for a cluster, by the protocol of client-go (`ExecCredential`).

Only a setting of the administrator names such a program.  It is run without a shell and without a terminal, with few
variables of this process, for a limited time; its output is limited, and what it says beside goes to the log alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import structlog

from kqueue.clock import Clock
from kqueue.errors import ConfigError
from kqueue.runtime.access import Identity, Pem
from kqueue.runtime.deadline import within

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""Versions of the protocol.  Source: client-go."""
SECONDS = 20.0
"""Time that a program may take: most ask a server for a token."""
MOST_OUTPUT = 64 * 1024
"""Bytes that a program may print: a token and two certificates have less than 10 KiB."""
_MOST_ERRORS = 2048
_VARIABLE = "KUBERNETES_EXEC_INFO"
_KEPT = (
    *("PATH", "HOME", "TMPDIR", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
)
"""Variables of this process that a program gets, so that it finds its files, its cluster and its servers."""


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials.

    Args:
        name: its name in messages.
        command: a path, or a name that PATH leads to.
        variables: it gets them beside the few of this process.
        hint: how to install it; empty: nothing is known.
    """

    name: str
    command: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = API_VERSIONS[0]
    hint: str = ""

    async def identity(self, cluster: JSON | None, clock: Clock) -> Identity:
        """Run the program and return the identity that it printed.

        `cluster` describes the cluster to the program; None: the program gets no description.

        Raises:
            ConfigError: the program cannot be run, fails, takes too long, or prints no credentials.
        """
        if self.api_version not in API_VERSIONS:
            raise ConfigError(f"{self.name}: apiVersion {self.api_version} is unknown; use {' or '.join(API_VERSIONS)}")
        spec: JSON = {"interactive": False} if cluster is None else {"interactive": False, "cluster": cluster}
        asked = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        try:
            printed = await within(clock, SECONDS, self._run(msgspec.json.encode(asked).decode()))
        except TimeoutError as e:
            raise ConfigError(f"{self.name}: {self.command} did not end within {SECONDS:g} s") from e
        return self._identity(printed)

    async def _run(self, asked: str) -> bytes:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**kept, **self.variables, _VARIABLE: asked},
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            hint = f"; {self.hint}" if self.hint else ""
            raise ConfigError(f"{self.name}: {self.command} cannot be run: {e}{hint}") from e
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            printed, errors = await asyncio.gather(
                _first(process.stdout, MOST_OUTPUT + 1), _first(process.stderr, _MOST_ERRORS)
            )
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the processes that the program started end, too
            await process.wait()
        if code != 0:
            _log.warning(
                "credentials plugin failed", plugin=self.name, code=code, error=errors.decode(errors="replace")
            )
            raise ConfigError(
                f"{self.name}: {self.command} ended with code {code}; the log of the controller says more"
            )
        if len(printed) > MOST_OUTPUT:
            raise ConfigError(f"{self.name}: {self.command} printed more than {MOST_OUTPUT} bytes")
        return printed

    def _identity(self, printed: bytes) -> Identity:
        try:
            found = msgspec.json.decode(printed, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:  # the text may hold a token, and is not shown
            raise ConfigError(f"{self.name}: {self.command} printed no ExecCredential") from e
        if (found.kind, found.api_version) != ("ExecCredential", self.api_version):
            raise ConfigError(f"{self.name}: {self.command} did not answer in {self.api_version}, as it was asked to")
        status = found.status or _Status()
        has_both = bool(status.client_certificate_data) == bool(status.client_key_data)
        if not has_both or not (status.token or status.client_key_data):
            raise ConfigError(f"{self.name}: {self.command} printed neither a token nor a certificate with its key")
        if not status.token.isprintable() or not status.token.isascii():
            raise ConfigError(f"{self.name}: {self.command} printed a token that no header can have")
        return Identity(
            authorization=f"Bearer {status.token}" if status.token else None,
            certificate=_pem(status.client_certificate_data),
            key=_pem(status.client_key_data),
            expires=_aware(status.expiration_timestamp),
        )


def _pem(text: str) -> Pem | None:
    return Pem(text.encode()) if text else None


def _aware(time: datetime | None) -> datetime | None:
    return time if time is not None and time.tzinfo is not None else None


async def _first(stream: asyncio.StreamReader, most: int) -> bytes:
    """Return the first bytes of a stream, and read it to its end, so that its writer need not wait."""
    kept = bytearray()
    while chunk := await stream.read(1 << 14):
        kept += chunk[: most - len(kept)]
    return bytes(kept)
