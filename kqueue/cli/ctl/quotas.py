"""Quota in flags: `FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT,FLAVOR:...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kqueue.errors import ConfigError

Quotas = Mapping[str, Mapping[str, str]]
"""Amounts as the user wrote them, by flavor and resource."""

NOMINAL, BORROWING, LENDING = "--nominal-quota", "--borrowing-limit", "--lending-limit"
_FIELDS = {NOMINAL: "nominalQuota", BORROWING: "borrowingLimit", LENDING: "lendingLimit"}
_FORM = "write FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT,FLAVOR:..., such as 'spot:cpu=8;memory=32Gi'"


def parse_quotas(values: Iterable[str], flag: str) -> Quotas:
    """Return amounts by flavor and resource, in the order of the flags; errors name `flag`.

    Raises:
        ConfigError: a value has another form, an amount is no quantity or negative, or a name occurs twice.
    """
    found: dict[str, dict[str, str]] = {}
    for part in (part for value in values for part in value.split(",")):
        flavor, colon, amounts = (piece.strip() for piece in part.partition(":"))
        if not (flavor and colon and amounts):
            raise ConfigError(f"{flag} {part!r}: {_FORM}")
        if flavor in found:
            raise ConfigError(f"{flag} names flavor {flavor} twice: give all its resources at once, separated by ;")
        found[flavor] = _amounts(flavor, amounts, flag)
    return found


def _amounts(flavor: str, text: str, flag: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(";"):
        resource, equals, amount = (piece.strip() for piece in part.partition("="))
        if not (resource and equals and amount):
            raise ConfigError(f"{flag} {flavor}:{text}: {part!r} is no RESOURCE=AMOUNT; {_FORM}")
        if resource in found:
            raise ConfigError(f"{flag} {flavor}:{text}: names {resource} twice")
        _check(amount, resource, f"{flag} {flavor}:{resource}={amount}")
        found[resource] = amount
    return found


def _check(amount: str, resource: str, where: str) -> None:
    from kqueue.core.quantity import parse_quantity

    try:
        number = parse_quantity(amount, resource)
    except ValueError as e:
        raise ConfigError(f"{where}: {e}") from e
    if number < 0:
        raise ConfigError(f"{where}: must not be negative")


def resource_groups(given: Mapping[str, Quotas]) -> list[dict[str, Any]]:
    """Return `spec.resourceGroups` from the quota flags; `given` has the flags as keys.

    Flavors with the same resources form a group.  A flavor that has only a limit gets a nominal quota of 0.

    Raises:
        ConfigError: flags list different resources for a flavor, or groups share some but not all resources.
    """
    covered: dict[str, list[str]] = {}
    for flag, quotas in given.items():
        for flavor, amounts in quotas.items():
            resources = covered.setdefault(flavor, list(amounts))
            if set(resources) != set(amounts):
                raise ConfigError(
                    f"{flag} lists {', '.join(amounts)} for flavor {flavor}, another flag {', '.join(resources)}: "
                    "all quota flags that name a flavor must list the same resources"
                )
    groups: dict[frozenset[str], list[str]] = {}
    for flavor, resources in covered.items():
        groups.setdefault(frozenset(resources), []).append(flavor)
    _refuse_overlap(groups)
    return [_group(flavors, covered[flavors[0]], given) for flavors in groups.values()]


def _refuse_overlap(groups: Mapping[frozenset[str], Sequence[str]]) -> None:
    owner: dict[str, str] = {}
    for resources, flavors in groups.items():
        for resource in sorted(resources):
            if resource in owner:
                raise ConfigError(
                    f"flavors {owner[resource]} and {flavors[0]} share {resource} but not all of their resources: "
                    "flavors must have either the same resources or no resource in common"
                )
            owner[resource] = flavors[0]


def _group(flavors: Sequence[str], resources: Sequence[str], given: Mapping[str, Quotas]) -> dict[str, Any]:
    def quota(flavor: str, resource: str) -> dict[str, str]:
        written = {_FIELDS[flag]: quotas[flavor][resource] for flag, quotas in given.items() if flavor in quotas}
        return {"name": resource, "nominalQuota": "0", **written}

    return {
        "coveredResources": list(resources),
        "flavors": [{"name": f, "resources": [quota(f, resource) for resource in resources]} for f in flavors],
    }
