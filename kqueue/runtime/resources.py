"""Addresses of kinds on the API server, and the few kinds that the runtime itself uses."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One kind as the API server addresses it.  `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    def __str__(self) -> str:
        """Return the name as in `kubectl`: `leases.coordination.k8s.io`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Return the value of an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of one object, or of the collection when `name` is None.

        `namespace` None on a namespaced kind addresses the collection of all namespaces.

        Raises:
            ValueError: a namespace for a cluster-scoped kind, or an object of a namespaced kind without one
                (a bug in the caller).
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self} is cluster-scoped and takes no namespace, got {namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self} is namespaced: give the namespace of {name!r}")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = ResourceType("", "v1", "events", "Event")
