"""Keeps a server's own certificates: shares them with other replicas, renews them, and announces their authority."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, ConflictError
from kqueue.runtime.certificate_secret import Shelf
from kqueue.runtime.certificates import Bundle
from kqueue.runtime.rotation import CertificateHolding, Rhythm, next_step

_ATTEMPTS = 10
"""Steps and lost races in one look; one replica needs three."""

_log = structlog.get_logger(__name__)

Announce = Callable[[bytes], Awaitable[object]]
"""Announces the trusted authorities (PEM) to all clients; raises ApiError when that fails."""


class CertificateKeeper:
    """Serves the certificate that the replicas share, and takes the next step of a renewal when it is due.

    `serve` puts a bundle into use: a folder that a `CertificateFolder` follows.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        names: Sequence[str],
        serve: Callable[[Bundle], None],
        clock: Clock,
        rhythm: Rhythm | None = None,
    ) -> None:
        """`names` are the DNS names and addresses that the certificate must be for."""
        self._shelf, self._names, self._serve, self._clock = shelf, tuple(names), serve, clock
        self._rhythm = rhythm or Rhythm()
        self.held = CertificateHolding()
        """The shared certificates at the last look."""

    async def load(self) -> None:
        """Serve the shared certificate, or make the first one.

        Raises:
            ApiError: the shared certificates cannot be read or written.
        """
        await self._look(None)

    async def look(self, announce: Announce) -> None:
        """Serve the shared certificate, announce its authorities, and take the steps that are due.

        Raises:
            ApiError: the API server failed, or refused; the server keeps its certificate.
        """
        await self._look(announce)

    async def _look(self, announce: Announce | None) -> None:
        for _ in range(_ATTEMPTS):
            held, version = await self._shelf.read()
            step = next_step(held, self._names, self._clock.now(), self._rhythm, told=False)
            if step is None:
                self._use(held)
                if announce is None:
                    return
                await announce(held.authorities)
                step = next_step(held, self._names, self._clock.now(), self._rhythm, told=True)
                if step is None:
                    return
            try:
                await self._shelf.write(step, version)
            except (AlreadyExistsError, ConflictError):
                continue  # another replica took a step: read it
            self._log_step(held, step)
        _log.warning("certificates are changed by another writer all the time", attempts=_ATTEMPTS)

    def _use(self, held: CertificateHolding) -> None:
        assert held.current is not None, "the first step makes one"
        if self.held.current is None or self.held.current != held.current:
            self._serve(held.current)
        self.held = held

    def _log_step(self, before: CertificateHolding, after: CertificateHolding) -> None:
        assert after.current is not None, "every step leaves something to serve"
        if after.upcoming is not None and before.upcoming is None:
            _log.info("certificate is being renewed", not_after=after.current.not_after.isoformat())
        elif after.current != before.current:
            _log.info("certificate is new", not_after=after.current.not_after.isoformat())
