"""The shapes of Kubernetes names, and the known name nearest to a misspelt one.

Every check returns None, or the rule that is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_GROUP_VERSION_KIND = re.compile(r"[^.\s]+\.[^.\s]+\.[^\s]+")


def dns_subdomain(text: str) -> str | None:
    """Return the broken rule of a DNS subdomain; None for at most 253 characters of lower case, digits, `-`, `.`."""
    if len(text) <= 253 and _SUBDOMAIN.fullmatch(text):
        return None
    return "must be a DNS subdomain: lower-case letters, digits, '-' and '.', at most 253 characters"


def dns_label(text: str) -> str | None:
    """Return the broken rule of a DNS label; None for at most 63 characters of lower case, digits, `-`."""
    if len(text) <= 63 and _DNS_LABEL.fullmatch(text):
        return None
    return "must be a DNS label: lower-case letters, digits and '-', at most 63 characters"


def dns_1035_label(text: str) -> str | None:
    """Return the broken rule; None for a DNS label that begins with a letter."""
    if len(text) <= 63 and _DNS_1035.fullmatch(text):
        return None
    return "must be a DNS label that begins with a letter: lower-case letters, digits and '-', at most 63 characters"


def label_key(text: str) -> str | None:
    """Return the broken rule of a label key; None for `name` or `prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    prefix_fine = not slash or dns_subdomain(prefix) is None
    if prefix_fine and len(name) <= 63 and _QUALIFIED.fullmatch(name):
        return None
    return "must be a label key: an optional DNS subdomain and '/', then at most 63 letters, digits, '-', '_', '.'"


def label_value(text: str) -> str | None:
    """Return the broken rule of a label value; None for the empty text, and for at most 63 characters that begin and
    end with a letter or digit.
    """
    if text == "" or (len(text) <= 63 and _QUALIFIED.fullmatch(text)):
        return None
    return "must be a label value: letters, digits, '-', '_', '.', at most 63 characters"


def group_version_kind(text: str) -> str | None:
    """Return the broken rule; None for a text of the form `Kind.version.group`."""
    if _GROUP_VERSION_KIND.fullmatch(text):
        return None
    return "must have the form Kind.version.group, as in Job.v1.batch"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest of `known`, empty when none is close."""
    close = closest(name, known)
    return f"; did you mean {close}?" if close is not None else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that differs least from `name`, in any case; None when none is close."""
    by_lower_case = {item.lower(): item for item in known}
    close = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.7)
    return by_lower_case[close[0]] if close else None
