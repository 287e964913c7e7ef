"""The TLS context of a server whose certificate another program renews, or that makes its own one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from kqueue.clock import Clock
from kqueue.runtime.certificates import CertificateFolder, make_bundle, write_bundle

_OWN_LIVES = timedelta(days=3650)
"""Lifetime of a certificate that the process makes: clients cannot verify it, so it is not renewed."""


@asynccontextmanager
async def served_certificate(
    folder: Path | None, names: Sequence[str], *, clock: Clock
) -> AsyncIterator[ssl.SSLContext]:
    """Yield the context; files of a folder are loaded again when they change.  None: a new certificate for `names`.

    Raises:
        ConfigError: the files cannot be used.
    """
    async with contextlib.AsyncExitStack() as stack:
        used = folder
        if used is None:
            used = Path(stack.enter_context(TemporaryDirectory(prefix="kqueue-certificate-")))
            write_bundle(make_bundle(names, now=clock.now(), valid=_OWN_LIVES), used)
        tls = CertificateFolder(used, clock=clock)
        if folder is not None:
            watch = asyncio.create_task(tls.watch(), name="served certificate")
            stack.callback(watch.cancel)
        yield tls.context
