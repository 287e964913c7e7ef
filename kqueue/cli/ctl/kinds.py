"""Names and short names of our kinds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from kqueue.api import names

if TYPE_CHECKING:
    from kqueue.runtime.resources import ResourceType


@dataclass(frozen=True, slots=True)
class CommandKind:
    """A kind of kqueue; `aliases` are its other names."""

    name: str
    plural: str
    aliases: tuple[str, ...] = ()
    singular: str = ""
    """The singular name, if `name` is a plural."""

    @property
    def resource(self) -> ResourceType:
        """The kind as the API server serves it."""
        from kqueue.controllers import resources
        from kqueue.runtime.resources import ResourceType

        every = (each for each in vars(resources).values() if isinstance(each, ResourceType))
        return next(each for each in every if each.plural == self.plural)

    @property
    def full(self) -> str:
        """The name that is unambiguous for kubectl."""
        return f"{self.plural}.{names.GROUP}"

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the kind."""
        return (self.name, self.plural, *self.aliases, f"{self.name}.{names.GROUP}", self.full)


WORKLOAD = CommandKind("workload", "workloads", ("kwl", "kueueworkload", "kueueworkloads", "wl"))
CLUSTER_QUEUE = CommandKind("clusterqueue", "clusterqueues", ("cq",))
LOCAL_QUEUE = CommandKind("localqueue", "localqueues", ("lq", "queue", "queues"))
RESOURCE_FLAVOR = CommandKind("resourceflavor", "resourceflavors", ("rf", "flavor", "flavors"))
PODS = CommandKind("pods", "pods", ("po", "pod"), "pod")
GANGS = CommandKind("gangs", "gangs", ("gang",), "gang")

OURS = (
    WORKLOAD,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    CommandKind("cohort", "cohorts", ("co",)),
    CommandKind("topology", "topologies", ("topo",)),
    CommandKind("admissioncheck", "admissionchecks", ("ac",)),
    CommandKind("workloadpriorityclass", "workloadpriorityclasses", ("wpc",)),
)
"""Kinds of the verbs that call kubectl."""


def kind_called(name: str, kinds: Iterable[CommandKind] = OURS) -> CommandKind | None:
    """Return the kind of that name, in any case of letters; None when no kind has it."""
    return next((kind for kind in kinds if name.lower() in kind.names), None)


def is_near(name: str, kinds: Iterable[CommandKind] = OURS) -> bool:
    """Whether an unknown name is likely a mistyped name of a kind."""
    return bool(get_close_matches(name.lower(), [alias for kind in kinds for alias in kind.names], n=1, cutoff=0.8))


def unknown_kind(name: str, kinds: Iterable[CommandKind] = OURS) -> str:
    """Return the error sentence for an unknown name of a kind."""
    known = {alias: kind.name for kind in kinds for alias in kind.names}
    near = get_close_matches(name.lower(), known, n=1)
    guess = f"; did you mean {known[near[0]]}?" if near else "."
    return f"there is no kind {name!r} here{guess} Known are {', '.join(_listed(kind) for kind in kinds)}"


def _listed(kind: CommandKind) -> str:
    return f"{kind.name} ({kind.aliases[0]})" if kind.aliases else kind.name
