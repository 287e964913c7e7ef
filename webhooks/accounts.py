"""Accounts whose requests make the objects of an owner.

Kubernetes' own controllers run under accounts of their own in kube-system, or all under that of the controller manager.
Other controllers run under accounts that the configuration names, or that live in another namespace than the object.
Source: the names that kube-controller-manager uses with and without `--use-service-account-credentials`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kqueue.kinds import OWNERS, GroupKind
from webhooks.review import RequestUser

_ACCOUNT = "system:serviceaccount:"
_MASTERS = "system:masters"
"""The group that may do everything: no rule of ours would hold it back."""
_SHARED = "system:kube-controller-manager"
"""All of Kubernetes' controllers, where they have no accounts of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The accounts that are believed."""

    controllers: Collection[str] = ()
    """User names that the configuration adds (`integrations.controllerAccounts`)."""
    own_namespace: str = ""
    """kqueue's own namespace: whoever has an account there is kqueue."""

    def makes(self, user: RequestUser, owner: GroupKind, namespace: str) -> bool:
        """Whether a user's requests in `namespace` may name an `owner` as the controller of an object.

        For owners that Kubernetes does not know, ServiceAccounts of other namespaces count: operators live there, and
        tenants have accounts in their own namespace only.
        """
        if _MASTERS in user.groups or user.name in self.controllers or user.name == _SHARED:
            return True
        row = OWNERS.get(owner)
        if row is not None and (row.account or not row.controlled):
            return user.name == f"{_ACCOUNT}kube-system:{row.account}"
        home = _home(user)
        return bool(home) and home != namespace

    def is_ours(self, user: RequestUser) -> bool:
        """Whether a user is kqueue itself."""
        return bool(self.own_namespace) and _home(user) == self.own_namespace


def _home(user: RequestUser) -> str:
    """Namespace of a ServiceAccount; empty for any other user."""
    return user.name.removeprefix(_ACCOUNT).partition(":")[0] if user.name.startswith(_ACCOUNT) else ""
