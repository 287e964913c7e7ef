"""Finds kinds of other APIs: by a user's name for them, or by an owner reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kqueue.errors import ApiError, ConfigError, NotFoundError
from kqueue.runtime.resources import ResourceType

if TYPE_CHECKING:
    from kqueue.runtime.client import Client

_FIRST = ("batch", "apps", "jobset.x-k8s.io", "kueue.x-k8s.io")
"""Groups with most job kinds; they are read before the others, because the first match is used."""


@dataclass(frozen=True, slots=True)
class OwnerTarget:
    """The object in the value of `--for`."""

    called: str
    """Plural, singular, short name or kind, in lower case."""
    group: str | None
    """The API group; None if the user gave none."""
    name: str


def parse_target(text: str) -> OwnerTarget:
    """Parse `TYPE[.GROUP]/NAME`.

    Raises:
        ConfigError: the text has another form.
    """
    kind, slash, name = text.partition("/")
    called, dot, group = kind.lower().partition(".")
    if not (called and slash and name) or "/" in name or (dot and not group):
        raise ConfigError(f"--for {text!r}: write TYPE/NAME or TYPE.GROUP/NAME, such as job/train or job.batch/train")
    return OwnerTarget(called, group if dot else None, name)


class Discovery:
    """The kinds that the API server serves; each group is read once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._groups: list[tuple[str, str]] | None = None
        self._served: dict[tuple[str, str], list[Mapping[str, Any]]] = {}

    async def called(self, target: OwnerTarget) -> ResourceType:
        """Return the kind for a user's name; the core group and groups of jobs come first.

        Raises:
            ConfigError: no kind has this name.
        """
        for group, version in await self._versions():
            if target.group not in (None, group):
                continue
            for each in await self._resources(group, version):
                names = (each["name"], each.get("singularName"), each["kind"].lower(), *(each.get("shortNames") or ()))
                if target.called in names:
                    return _type(group, version, each)
        wanted = target.called if target.group is None else f"{target.called}.{target.group}"
        raise ConfigError(f"--for {wanted}/{target.name}: the API server knows no kind of that name")

    async def of(self, api_version: str, kind: str) -> ResourceType:
        """Return the kind that an owner reference names.

        Raises:
            NotFoundError: the API server does not serve it.
        """
        group, _, version = api_version.rpartition("/")
        for each in await self._resources(group, version, missing_ok=False):
            if each["kind"] == kind:
                return _type(group, version, each)
        raise NotFoundError(f"the API server knows no {kind} in {api_version}", status=404)

    async def _versions(self) -> list[tuple[str, str]]:
        """Return groups and their preferred versions, in the order of the search."""
        if self._groups is None:
            found = await self._client.get_path("/apis", resource=_DISCOVERY)
            preferred = {g["name"]: g["preferredVersion"]["version"] for g in found.get("groups") or ()}
            order = [*(group for group in _FIRST if group in preferred), *preferred]
            self._groups = [("", "v1"), *((group, preferred[group]) for group in dict.fromkeys(order))]
        return self._groups

    async def _resources(self, group: str, version: str, *, missing_ok: bool = True) -> list[Mapping[str, Any]]:
        """Return the kinds of one group without subresources; none for an aggregated group that does not answer."""
        if (group, version) not in self._served:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                found = await self._client.get_path(path, resource=_DISCOVERY)
            except ApiError:
                if not missing_ok:
                    raise
                found = {}
            self._served[group, version] = [r for r in found.get("resources") or () if "/" not in r["name"]]
        return self._served[group, version]


_DISCOVERY = ResourceType("", "v1", "apiresources", "APIResourceList", namespaced=False)


def _type(group: str, version: str, served: Mapping[str, Any]) -> ResourceType:
    return ResourceType(group, version, served["name"], served["kind"], namespaced=bool(served.get("namespaced")))
