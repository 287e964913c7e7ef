"""Decide which accounts may create the objects of an owner.

Each of Kubernetes' own controllers has an account in kube-system, or all use that of the controller manager.  Other
controllers have accounts that the configuration names, or ServiceAccounts in another namespace than the object.
Source: the names that kube-controller-manager uses with and without `--use-service-account-credentials`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kqueue.kinds import OWNERS, GroupKind
from webhooks.review import RequestUser

_ACCOUNT = "system:serviceaccount:"
_MASTERS = "system:masters"
"""The group with all rights, which no webhook rule restricts."""
_SHARED = "system:kube-controller-manager"
"""The account of all of Kubernetes' controllers, where they have no separate accounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The trusted accounts."""

    controllers: Collection[str] = ()
    """User names that the configuration adds (`integrations.controllerAccounts`)."""
    own_namespace: str = ""
    """kqueue's own namespace: all its ServiceAccounts count as kqueue."""

    def makes(self, user: RequestUser, owner: GroupKind, namespace: str) -> bool:
        """Whether a user's requests in `namespace` may name an `owner` as the controller of an object.

        For owners that Kubernetes does not know, ServiceAccounts of other namespaces count: operators live there, and
        tenants have accounts in their own namespace only.
        """
        if self._is_trusted(user) or user.name == _SHARED:
            return True
        row = OWNERS.get(owner)
        if row is not None and (row.account or not row.controlled):
            return user.name == f"{_ACCOUNT}kube-system:{row.account}"
        return self.operates(user, namespace)

    def operates(self, user: RequestUser, namespace: str) -> bool:
        """Whether a user is a ServiceAccount of another namespace than `namespace`, or trusted, as operators are."""
        home = _home(user)
        return self._is_trusted(user) or (bool(home) and home != namespace)

    def marks(self, user: RequestUser) -> bool:
        """Whether a user may write the marks by which kqueue remembers its decisions about a pod."""
        return self._is_trusted(user) or self.is_ours(user)

    def _is_trusted(self, user: RequestUser) -> bool:
        return _MASTERS in user.groups or user.name in self.controllers

    def is_ours(self, user: RequestUser) -> bool:
        """Whether a user is kqueue itself."""
        return bool(self.own_namespace) and _home(user) == self.own_namespace


def _home(user: RequestUser) -> str:
    """Return the namespace of a ServiceAccount; empty for other users."""
    return user.name.removeprefix(_ACCOUNT).partition(":")[0] if user.name.startswith(_ACCOUNT) else ""
