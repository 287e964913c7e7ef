"""Renews a server certificate step by step, so that clients trust the authority of every served certificate.

Every certificate has an authority of its own, whose key is not kept.  So a renewal has two steps: first the authority
of the next certificate is announced to all clients; then, after a pause, the certificate is served.  Earlier
authorities stay announced until they expire.  Replicas share their certificates, and each replica may take the next
step: a step is a value that is computed here and stored whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509

from kqueue.runtime.certificates import Bundle, make_bundle

_BEGIN = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Lifetime of certificates, time before their expiry when a new one is made, and waiting time of a new one."""

    valid: timedelta = timedelta(days=365)
    renew_before: timedelta = timedelta(days=90)
    pause: timedelta = timedelta(seconds=60)
    """Time from the announcement of an authority to the first use of its certificate: API servers learn it by watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateHolding:
    """The certificates that all replicas share.  `announced` is when `upcoming` was stored; None without one."""

    current: Bundle | None = None
    upcoming: Bundle | None = None
    announced: datetime | None = None
    retired: tuple[bytes, ...] = ()
    """Authorities of earlier certificates, PEM; a replica may still serve one of these certificates."""

    @property
    def authorities(self) -> bytes:
        """Return all authorities that clients must trust, PEM; that of the current certificate first."""
        bundles = [bundle.ca for bundle in (self.current, self.upcoming) if bundle is not None]
        return b"".join(dict.fromkeys([*bundles, *self.retired]))


def next_step(
    held: CertificateHolding, names: Sequence[str], now: datetime, rhythm: Rhythm, *, told: bool
) -> CertificateHolding | None:
    """Return the certificates after the next step; None: no step is due.

    `told`: `held.authorities` have just been announced to all clients.
    """
    retired = _living(held.retired, now)
    current = held.current
    if current is None or current.not_after <= now:
        return _begun_anew(held, retired, names, now, rhythm)
    if held.upcoming is not None and held.announced is not None:
        if told and now - held.announced >= rhythm.pause:
            return CertificateHolding(current=held.upcoming, retired=(*split_authorities(current.ca), *retired))
    elif is_due(current, names, now, rhythm):
        upcoming = make_bundle(names, now=now, valid=rhythm.valid)
        return replace(held, upcoming=upcoming, announced=now, retired=retired)
    return None if retired == held.retired else replace(held, retired=retired)


def is_due(bundle: Bundle, names: Sequence[str], now: datetime, rhythm: Rhythm) -> bool:
    """Whether a certificate expires soon, or is not for all of `names`."""
    return bundle.not_after - now <= rhythm.renew_before or not set(names) <= names_of(bundle)


def names_of(bundle: Bundle) -> set[str]:
    """Return the DNS names and IP addresses of a bundle's certificate."""
    leaf = x509.load_pem_x509_certificates(bundle.certificate)[0]
    try:
        alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in alternatives.get_values_for_type(x509.IPAddress)}
    return addresses | set(alternatives.get_values_for_type(x509.DNSName))


def _begun_anew(
    held: CertificateHolding, retired: tuple[bytes, ...], names: Sequence[str], now: datetime, rhythm: Rhythm
) -> CertificateHolding:
    """Return a new certificate at once, because no usable one is served."""
    upcoming = held.upcoming
    if upcoming is not None and upcoming.not_after > now:
        return CertificateHolding(current=upcoming, retired=retired)
    return CertificateHolding(current=make_bundle(names, now=now, valid=rhythm.valid), retired=retired)


def _living(authorities: Iterable[bytes], now: datetime) -> tuple[bytes, ...]:
    """Return the authorities that can be read and have not expired."""
    return tuple(pem for pem in authorities if (end := _end(pem)) is not None and end > now)


def _end(pem: bytes) -> datetime | None:
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return None


def split_authorities(bundle: bytes) -> tuple[bytes, ...]:
    """Split a PEM text into its certificates."""
    return tuple(_BEGIN + part for part in bundle.split(_BEGIN)[1:])
