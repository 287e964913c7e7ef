"""Rules for the syntax of names, label keys and label values.

Each function returns one sentence about the allowed syntax, or None when the text is valid. Source: Kubernetes'
documented object names and label syntax (RFC 1123 subdomains, qualified names).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from kqueue.errors import FieldError

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
ANNOTATIONS_MAX_BYTES = 262_144
"""The largest size of keys and values of one object's annotations together; the API server's limit."""

Rule = Callable[[str], str | None]


def subdomain(text: str) -> str | None:
    """Check an object name: at most 253 characters of a-z, 0-9, `-` and `.`."""
    if len(text) <= 253 and _SUBDOMAIN.fullmatch(text):
        return None
    return "must be a DNS subdomain: at most 253 characters of a-z, 0-9, '-' and '.', each part framed by a-z or 0-9"


def dns_label(text: str) -> str | None:
    """Check a DNS label: at most 63 characters of a-z, 0-9 and `-`."""
    if len(text) <= 63 and _DNS_LABEL.fullmatch(text):
        return None
    return "must be a DNS label: at most 63 characters of a-z, 0-9 and '-', framed by a-z or 0-9"


def label_key(text: str) -> str | None:
    """Check a label key: an optional DNS subdomain and `/`, then a name of at most 63 characters."""
    prefix, slash, name = text.rpartition("/")
    if slash and (subdomain(prefix) is not None):
        return "must be a label key: the part before '/' must be a DNS subdomain"
    if 0 < len(name) <= 63 and _QUALIFIED.fullmatch(name):
        return None
    return (
        "must be a label key: an optional DNS subdomain and '/', then at most 63 characters of A-Z, a-z, 0-9, "
        "'-', '_' and '.', framed by letters or digits"
    )


def label_value(text: str) -> str | None:
    """Check a label value: empty, or at most 63 characters framed by letters or digits."""
    if not text or (len(text) <= 63 and _QUALIFIED.fullmatch(text)):
        return None
    return (
        "must be a label value: empty, or at most 63 characters of A-Z, a-z, 0-9, '-', '_' and '.', "
        "framed by letters or digits"
    )


def annotation_key(text: str) -> str | None:
    """Check an annotation key: a label key without distinction of case."""
    return label_key(text.lower())


def entry_path(path: str, key: str) -> str:
    """Return the path of one entry of a map, as in `metadata.labels[example.com/a]`."""
    return f"{path}[{key}]"


def check(rule: Rule, text: str, path: str) -> Iterator[FieldError]:
    """Yield the mistake that `rule` finds in `text`, if any."""
    problem = rule(text)
    if problem is not None:
        yield FieldError(path, problem, text)


def check_labels(labels: Mapping[str, object], path: str) -> Iterator[FieldError]:
    """Yield mistakes in keys and values of a map of labels (or of a node selector)."""
    for key, value in labels.items():
        yield from check(label_key, key, entry_path(path, key))
        if not isinstance(value, str):
            yield FieldError(entry_path(path, key), "must be a string; put the value in quotes", value)
        else:
            yield from check(label_value, value, entry_path(path, key))


def check_annotations(annotations: Mapping[str, object], path: str) -> Iterator[FieldError]:
    """Yield mistakes in the keys of annotations and in their total size."""
    total = 0
    for key, value in annotations.items():
        yield from check(annotation_key, key, entry_path(path, key))
        total += len(key.encode(errors="replace")) + len(str(value).encode(errors="replace"))
    if total > ANNOTATIONS_MAX_BYTES:
        yield FieldError(path, f"annotations hold {total} bytes, at most {ANNOTATIONS_MAX_BYTES} are allowed")
