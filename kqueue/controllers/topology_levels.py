"""The levels of all topologies, for group objects that name one."""

from __future__ import annotations

from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import Manager
from kqueue.runtime.reflector import Reflector


class TopologyLevels:
    """The levels of Topologies, and of topologies that flavors define inline; read again only after a change."""

    def __init__(
        self,
        topologies: Reflector[wire.Topology, wire.Topology],
        flavors: Reflector[wire.ResourceFlavor, wire.ResourceFlavor],
    ) -> None:
        self._topologies, self._flavors = topologies, flavors
        self._known: frozenset[str] | None = None
        topologies.subscribe(self._forget)
        flavors.subscribe(self._forget)

    def _forget(self, _old: object, _new: object) -> None:
        self._known = None

    def __call__(self) -> frozenset[str] | None:
        """Return all levels; None: a watch has not brought all objects yet."""
        if not (self._topologies.synced.is_set() and self._flavors.synced.is_set()):
            return None
        if self._known is None:
            inline = (flavor.spec.topology for flavor in self._flavors.store.values())
            shared = (topology.spec for topology in self._topologies.store.values())
            self._known = frozenset(
                level.node_label for spec in (*inline, *shared) if spec is not None for level in spec.levels
            )
        return self._known


def watch_levels(manager: Manager) -> TopologyLevels:
    """Return the levels that a process knows."""
    return TopologyLevels(manager.watches.topologies, manager.watches.flavors)
