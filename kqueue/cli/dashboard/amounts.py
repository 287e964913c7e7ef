"""Amounts as text for people, and bars of usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kqueue.core.quantity import CPU, parse_quantity
from kqueue.core.topology import PODS

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_BYTES = ("memory", "ephemeral-storage", "hugepages-")
_WHOLE = 100_000
"""Counts below this are written in full."""
HELD, FOREIGN, FREE = "█", "▒", "·"


def amount(text: str, resource: str) -> int:
    """Return the number of a quantity in an answer; 0 if it cannot be parsed."""
    try:
        return parse_quantity(text, resource)
    except ValueError:
        return 0


def short(value: int, resource: str) -> str:
    """Return an amount in about six characters: `1.5Ti`, `96`, `0.5`.  Rounded, for display only."""
    if resource.startswith(_BYTES):
        return _scaled(value, 1024, _BINARY)
    if resource == CPU:
        return _scaled(value / 1000, 1000, _DECIMAL, whole=_WHOLE)
    return _scaled(value, 1000, _DECIMAL, whole=_WHOLE)


def _scaled(value: float, step: int, suffixes: Sequence[str], *, whole: int = 0) -> str:
    power = 0
    if abs(value) >= whole:
        while abs(value) >= step and power + 1 < len(suffixes):
            value /= step
            power += 1
    digits = f"{value:.1f}".removesuffix(".0")
    return f"{digits}{suffixes[power]}"


def bar(parts: Sequence[tuple[int, str]], total: int, width: int = 16) -> str:
    """Return a bar of `width` characters: each part by its share of the total, then free space.

    A part that is not zero has at least one character while there is room.
    """
    drawn = ""
    for value, sign in parts:
        length = round(width * value / total) if total > 0 and value > 0 else 0
        drawn += sign * max(length, 1 if value > 0 < total else 0)
    return drawn[:width].ljust(width, FREE)


def chosen(resources: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Return the resources to show: `wanted`; else devices, which gangs wait for most; else cpu and memory."""
    there = sorted(set(resources))
    if wanted:
        return [resource for resource in wanted if resource in there]
    devices = [resource for resource in there if "/" in resource]
    return (
        devices
        or [resource for resource in (CPU, "memory") if resource in there]
        or [resource for resource in there if resource != PODS]
    )
