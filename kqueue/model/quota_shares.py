"""Quotas of a ClusterQueue that are shares of a capacity: two annotations, that of its user and that of kqueue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kqueue.api import quota_names
from kqueue.core.quantity import format_quantity, parse_quantity
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.quota_shares import MOST_SHARES, column_and_text, parse_shares

Amounts = Mapping[FlavorResource, int]


def quota_shares(annotations: Mapping[str, str]) -> tuple[dict[FlavorResource, int], str]:
    """Return the shares of a ClusterQueue in per mille, and the problem of the annotation (empty: none).

    A wrong annotation has no shares at all.
    """
    text = annotations.get(quota_names.QUOTA_SHARES_ANNOTATION)
    try:
        return {} if text is None else parse_shares(text), ""
    except ValueError as e:
        return {}, str(e)


def resolved_quota(annotations: Mapping[str, str]) -> dict[FlavorResource, int]:
    """Return the amounts that kqueue wrote; parts that cannot be read are left out."""
    return dict(_resolved(annotations.get(quota_names.RESOLVED_QUOTA_ANNOTATION, "")))


def _resolved(text: str) -> Iterator[tuple[FlavorResource, int]]:
    for part in text.split(",")[:MOST_SHARES]:
        column, amount = column_and_text(part)
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
