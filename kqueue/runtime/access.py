"""The result of reading a kubeconfig or a service account once: address, TLS, and the user of requests."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from kqueue.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key.  Two are equal when their contents are."""

    content: bytes = field(repr=False)
    file: Path | None = field(default=None, compare=False)
    """Where the content was read; None when it was in the kubeconfig itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user of requests; all None: anonymous."""

    authorization: str | None = field(default=None, repr=False)
    """Value of the header."""
    token_file: Path | None = None
    """Where the token of `authorization` was read, and is read again."""
    expires: datetime | None = None
    """When `authorization` ends; None: it is not known."""
    certificate: Pem | None = None
    key: Pem | None = None
    """None: the key is beside the certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API server."""

    server: str
    """Base URL."""
    identity: Identity
    ca: Pem | None = None
    """Certificates of authorities; None: the system's."""
    verify: bool = True
    """Whether the server's certificate is checked."""
    tls_server_name: str | None = None
    """Name to expect in the server's certificate; None for the URL's host."""
    proxy: str | None = None
    namespace: str = ""
    """Empty where none is named."""
    acts_as: tuple[tuple[str, str], ...] = ()
    """Headers that name the user to impersonate; empty: none."""

    @property
    def trust(self) -> tuple[object, ...]:
        """The inputs of a TLS context: equal where none of them has changed."""
        return self.ca, self.identity.certificate, self.identity.key, self.verify

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain HTTP.  With one CA 0.3 ms, with the system's CAs 21 ms.

        Raises:
            ConfigError: CA or client certificate cannot be used.
        """
        if urlsplit(self.server).scheme != "https":
            return None
        try:
            # Text around certificates may be of any language, and is ignored.
            tls = ssl.create_default_context(cadata=self.ca.content.decode("ascii", "ignore") if self.ca else None)
            # Python 3.13 made strict checking the default; CAs of many clusters fail it, and kubectl does not ask it.
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
            _show(tls, self.identity)
        except (OSError, ValueError) as e:  # SSLError is an OSError
            raise ConfigError(f"its CA or client certificate cannot be loaded: {e}") from e
        if not self.verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        return tls


def _show(tls: ssl.SSLContext, identity: Identity) -> None:
    """Let connections show a client certificate.  The library loads files only, so data is a file for that moment."""
    certificate, key = identity.certificate, identity.key
    if certificate is None:
        return
    with TemporaryDirectory(prefix="kqueue-") as folder:  # for its owner only

        def file(pem: Pem, name: str) -> Path:
            if pem.file is not None:
                return pem.file
            made = Path(folder, name)
            made.write_bytes(pem.content)
            return made

        tls.load_cert_chain(file(certificate, "tls.crt"), None if key is None else file(key, "tls.key"))


def read_token(file: Path) -> str:
    """Return the header's value for the token in a file.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as e:
        raise ConfigError(f"the token file {file} cannot be read: {getattr(e, 'strerror', None) or e}") from e
    if not token:
        raise ConfigError(f"the token file {file} is empty")
    return f"Bearer {token}"
