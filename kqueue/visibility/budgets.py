"""Budgets of a LocalQueue in answers."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.clock import utc_text
from kqueue.state.budgets import Account, hours_text
from kqueue.visibility.question import JSON


def shown(accounts: Iterable[Account]) -> JSON:
    """Return the field `budgets` with what is left; empty: there are no budgets."""
    found = [_budget(account) for account in accounts]
    return {"budgets": found} if found else {}


def _budget(account: Account) -> JSON:
    budget, left = account.budget, max(0, account.budget.amount - account.used)
    return {
        "of": account.who,
        "resource": budget.resource,
        "period": str(budget.period),
        "hours": hours_text(budget.amount, budget.resource),
        "leftHours": hours_text(left, budget.resource),
        "renewsAt": utc_text(account.renews_at),
        "message": account.with_left(left),
    }
