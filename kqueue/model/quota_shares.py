"""Quotas of a ClusterQueue that are shares of a capacity: two annotations, that of its user and that of kqueue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kqueue.api import quota_names
from kqueue.core.quantity import format_quantity, parse_quantity
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.quota_shares import WHOLE

Amounts = Mapping[FlavorResource, int]

MOST_SHARES = 256
_EXAMPLE = "write FLAVOR/RESOURCE=SHARE such as h100/nvidia.com/gpu=500 (per mille) or h100/cpu=50%"


def quota_shares(annotations: Mapping[str, str]) -> tuple[dict[FlavorResource, int], str]:
    """Return the shares of a ClusterQueue in per mille, and the problem of the annotation (empty: none).

    A wrong annotation has no shares at all.
    """
    text = annotations.get(quota_names.QUOTA_SHARES_ANNOTATION)
    if text is None:
        return {}, ""
    found: dict[FlavorResource, int] = {}
    for part in text.split(","):
        column, share = _pair(part)
        per_mille = _per_mille(share)
        if column is None or per_mille is None:
            return {}, f"{part.strip()[:80]!r} is no share from 0 to {WHOLE} per mille; {_EXAMPLE}"
        if column in found:
            return {}, f"{column.flavor}/{column.resource} has two shares; keep one of them"
        found[column] = per_mille
        if len(found) > MOST_SHARES:
            return {}, f"has more than {MOST_SHARES} shares; use several ClusterQueues"
    return found, ""


def _pair(text: str) -> tuple[FlavorResource | None, str]:
    name, equals, amount = text.strip().partition("=")
    flavor, slash, resource = name.strip().partition("/")
    return (FlavorResource(flavor, resource) if equals and slash and flavor and resource else None), amount.strip()


def _per_mille(text: str) -> int | None:
    digits, factor = (text[:-1], WHOLE // 100) if text.endswith("%") else (text, 1)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        return None
    share = int(digits) * factor
    return share if share <= WHOLE else None


def resolved_quota(annotations: Mapping[str, str]) -> dict[FlavorResource, int]:
    """Return the amounts that kqueue wrote; parts that cannot be read are left out."""
    return dict(_resolved(annotations.get(quota_names.RESOLVED_QUOTA_ANNOTATION, "")))


def _resolved(text: str) -> Iterator[tuple[FlavorResource, int]]:
    for part in text.split(",")[:MOST_SHARES]:
        column, amount = _pair(part)
        try:
            parsed = parse_quantity(amount, column.resource) if column is not None else -1
        except ValueError:
            continue
        if column is not None and parsed >= 0:
            yield column, parsed


def resolved_text(amounts: Amounts) -> str:
    """Return the text of the annotation, which `resolved_quota` reads back."""
    return ", ".join(f"{c.flavor}/{c.resource}={format_quantity(a, c.resource)}" for c, a in sorted(amounts.items()))


def with_shares(
    quotas: Mapping[FlavorResource, Quota], annotations: Mapping[str, str]
) -> tuple[Mapping[FlavorResource, Quota], str]:
    """Return the quotas with resolved nominal amounts, and the problem of the shares (empty: none).

    A share that is not resolved yet leaves the quota of the spec.  The limit of lending is the nominal quota at most.
    """
    shares, problem = quota_shares(annotations)
    unlisted = sorted(shares.keys() - quotas.keys())
    if unlisted:
        names = ", ".join(f"{column.flavor}/{column.resource}" for column in unlisted[:5])
        problem = f"{names} is not in spec.resourceGroups; add it there, or remove its share"
    if problem or not shares:
        return quotas, problem
    resolved = resolved_quota(annotations)
    follow = {column: _following(quotas[column], resolved[column]) for column in shares if column in resolved}
    return {**quotas, **follow}, ""


def _following(quota: Quota, nominal: int) -> Quota:
    lending = quota.lending_limit
    return replace(quota, nominal=nominal, lending_limit=None if lending is None else min(lending, nominal))
