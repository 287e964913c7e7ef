"""The `tls` section: versions and ciphers of kqueue's servers."""

from __future__ import annotations

import ssl
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kqueue.config import names
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError

_OPENSSL_NAMES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
}
_TLS13_NAMES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Valid names, but TLS 1.3 suites cannot be chosen; they are always on."""

_CURVES = {23: "P-256", 24: "P-384", 25: "P-521", 29: "X25519", 4587: "P-256 + ML-KEM-768",
           4588: "X25519 + ML-KEM-768", 4589: "P-384 + ML-KEM-1024"}  # fmt: skip


class Tls(Section):
    """Versions and ciphers that webhook, metrics and visibility server accept."""

    min_version: Literal["VersionTLS12", "VersionTLS13"] = "VersionTLS12"
    """The oldest version that is accepted."""
    cipher_suites: tuple[str, ...] = ()
    """IANA names; empty means the library's choice."""
    curve_preferences: tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...] = ()
    """IANA numbers of named groups."""

    @model_validator(mode="after")
    def _ciphers_and_curves_are_known(self) -> Self:
        problems: list[FieldError] = []
        known = set(_OPENSSL_NAMES) | _TLS13_NAMES
        for index, suite in enumerate(self.cipher_suites):
            if suite not in known:
                path = f"cipherSuites[{index}]"
                problems.append(FieldError(path, f"unknown cipher suite{names.nearest(suite, known)}", suite))
        for index, curve in enumerate(self.curve_preferences):
            if curve not in _CURVES:
                known_text = ", ".join(f"{number} ({name})" for number, name in _CURVES.items())
                problems.append(FieldError(f"curvePreferences[{index}]", f"must be one of {known_text}", curve))
        if self.cipher_suites and self.min_version == "VersionTLS13":
            problems.append(
                FieldError("cipherSuites", "must be left out with minVersion VersionTLS13: its suites are fixed")
            )
        refuse_any(problems)
        return self

    def apply(self, context: ssl.SSLContext) -> None:
        """Set version and ciphers on a server's `context`.  Curves stay the library's choice."""
        thirteen = self.min_version == "VersionTLS13"
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if thirteen else ssl.TLSVersion.TLSv1_2
        chosen = [_OPENSSL_NAMES[suite] for suite in self.cipher_suites if suite in _OPENSSL_NAMES]
        if chosen:
            context.set_ciphers(":".join(chosen))
