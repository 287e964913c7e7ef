"""Restricts `/metrics` to users that the API server allows to `get` that path, over TLS.

The certificate comes from the folder that cert-manager fills.  Without that folder the process makes its own
certificate, as Kueue does, and scrapers do not verify it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.errors import ApiError, TooManyRequestsError
from kqueue.observe import Guard
from kqueue.runtime.certificates import CERTIFICATE
from kqueue.runtime.served_certificate import served_certificate
from kqueue.visibility.rights import Action, Rights

GIVEN = Path("/etc/kueue/metrics/certs")
"""The folder in which a certificate of cert-manager is mounted."""


def guard(rights: Rights) -> Guard:
    """Return a guard that admits requests whose token may `get` the requested path."""

    async def refusal(request: web.BaseRequest) -> web.StreamResponse | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _unknown("send the bearer token of a ServiceAccount that may read metrics")
        try:
            user = await rights.user_of(token.strip())
            if user is None:
                return _unknown("the API server does not know this token")
            action = Action(verb="get", path=request.path)
            decision = await rights.may(user, action)
        except TooManyRequestsError:
            return web.Response(status=429, text="too many unknown tokens\n", headers={"Retry-After": "1"})
        except ApiError as e:
            return web.Response(status=503, text=f"the API server did not say who may read this: {e}\n")
        if decision.allowed:
            return None
        remedy = "bind ClusterRole kqueue-metrics-reader"
        return web.Response(status=403, text=f'User "{user.name}" cannot {action.words()}; {remedy}\n')

    return refusal


def _unknown(why: str) -> web.Response:
    return web.Response(status=401, text=f"{why}\n", headers={"WWW-Authenticate": "Bearer"})


@asynccontextmanager
async def certificate(
    configuration: Configuration | None, clock: Clock, *, folder: Path = GIVEN
) -> AsyncIterator[ssl.SSLContext]:
    """Yield the TLS context of the metrics server.  Files of a mounted folder are reloaded when they change.
    `configuration` None: a process without one, which has no settings of TLS.

    Raises:
        ConfigError: the files cannot be used.
    """
    given = folder if (folder / CERTIFICATE).exists() else None
    async with served_certificate(given, ["kqueue-metrics", "localhost"], clock=clock) as context:
        if configuration is not None and configuration.tls is not None:
            configuration.tls.apply(context)
        yield context
