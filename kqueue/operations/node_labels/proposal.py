"""A Topology that follows from the labels of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kqueue.api.names import API_VERSION, TOPOLOGY_KIND
from kqueue.errors import KqueueError
from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.operations.node_labels.findings import RENAMED
from kqueue.operations.node_labels.values import JSON, LabelledNode, normalised

_BREADTH = (
    *("region", "zone", "datacenter", "dc", "building", "hall", "room", "superpod", "core", "superspine", "spine"),
    *("superblock", "block", "row", "subblock", "aggregation", "rack", "tor", "leaf", "switch"),
    *("accelerator", "nvlink", "clique", "chassis"),
)
"""Words in label keys that name a location, widest first."""
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_MOST_LACKING = 10
"""A label that more than one in this number of nodes lacks is no level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposed Topology.

    `levels` are (key, number of domains), the widest first; `left_out` are other keys with the reason.
    """

    nodes: int
    levels: tuple[tuple[str, int], ...]
    lacking: tuple[tuple[str, int], ...]
    """Levels that some nodes lack, with the number of these nodes."""
    left_out: tuple[tuple[str, str], ...]

    def topology(self, name: str) -> JSON:
        """Return the Topology object to apply."""
        return {
            "apiVersion": API_VERSION,
            "kind": TOPOLOGY_KIND,
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": level} for level, _ in self.levels]},
        }

    def comments(self) -> list[str]:
        """Return the reasons for the proposal, as sentences."""
        width = max(len(level) for level, _ in self.levels)
        lines = [f"From the labels of {self.nodes} nodes:"]
        lines += [
            f"  {level:<{width}}  {domains} domains of {_about(self.nodes, domains)}" for level, domains in self.levels
        ]
        if self.lacking:
            lines.append("No pods are placed on nodes that lack one of these; kqueue topology labels names them:")
            lines += [f"  {level:<{width}}  {count} nodes lack it" for level, count in self.lacking]
        if self.left_out:
            lines.append("No level is made of:")
            lines += [f"  {key}: {why}" for key, why in self.left_out]
        return lines


def workers(nodes: Sequence[LabelledNode]) -> list[LabelledNode]:
    """Return the nodes without control plane nodes, which are seldom in the racks; all nodes if there are no others."""
    return [node for node in nodes if not any(label in node.labels for label in _CONTROL_PLANE)] or list(nodes)


def propose(nodes: Sequence[LabelledNode]) -> Proposal:
    """Propose levels from the labels of these nodes.

    Raises:
        KqueueError: there is no node, or no label describes their places.
    """
    if not nodes:
        raise KqueueError("no node matches; check --selector")
    left_out: list[tuple[str, str]] = []
    chain: list[str] = []
    for key in _candidates(nodes, left_out):
        _insert(chain, key, nodes)
    _drop_alike(chain, nodes, left_out)
    if all(HOSTNAME_LABEL in node.labels for node in nodes):
        chain.append(HOSTNAME_LABEL)
    if not chain:
        raise KqueueError("no label of these nodes names a location; label them with their block and rack first")
    lacking = [(key, sum(key not in node.labels for node in nodes)) for key in chain]
    return Proposal(
        nodes=len(nodes),
        levels=tuple((key, len(_domains(chain[: n + 1], nodes))) for n, key in enumerate(chain)),
        lacking=tuple((key, count) for key, count in lacking if count),
        left_out=tuple(sorted(left_out)),
    )


def _candidates(nodes: Sequence[LabelledNode], left_out: list[tuple[str, str]]) -> list[str]:
    """Return labels that may be a level, by their words from wide to narrow; append others to `left_out`."""
    keys = {key for node in nodes for key in node.labels if _rank(key) is not None}
    found: list[str] = []
    for key in sorted(keys, key=lambda key: (_rank(key), key)):
        values = [node.labels[key] for node in nodes if key in node.labels]
        lacking, different = len(nodes) - len(values), len(set(values))
        if key in RENAMED and RENAMED[key] in keys:
            left_out.append((key, f"it is the former name of {RENAMED[key]}"))
        elif lacking * _MOST_LACKING > len(nodes):
            left_out.append((key, f"{lacking} of {len(nodes)} nodes lack it"))
        elif different == 1 and len(nodes) > 1:
            left_out.append((key, f"all nodes have the value {values[0]!r}"))
        elif different == len(values) and len(nodes) > 1:
            left_out.append((key, "every node has a value of its own"))
        else:
            found.append(key)
    return found


def _rank(key: str) -> int | None:
    """Return how narrow a place the label's word means; None: it means no place."""
    if key == HOSTNAME_LABEL:
        return None
    words = normalised(key.rpartition("/")[2]).split()
    return max((_BREADTH.index(word) for word in words if word in _BREADTH), default=None)


def _insert(chain: list[str], key: str, nodes: Sequence[LabelledNode]) -> None:
    """Insert a level above the first level whose every domain lies in one of its domains; else at the lower end."""
    for place, level in enumerate(chain):
        if _is_inside(level, key, nodes) and not _is_inside(key, level, nodes):
            chain.insert(place, key)
            return
    chain.append(key)


def _is_inside(narrow: str, wide: str, nodes: Sequence[LabelledNode]) -> bool:
    """Whether every value of one label goes with a single value of the other."""
    known: dict[str, str] = {}
    for node in nodes:
        if narrow in node.labels and wide in node.labels:
            value = node.labels[wide]
            if known.setdefault(node.labels[narrow], value) != value:
                return False
    return True


def _drop_alike(chain: list[str], nodes: Sequence[LabelledNode], left_out: list[tuple[str, str]]) -> None:
    """Remove levels with the same domains as the level above; append them to `left_out`."""
    for key in list(chain):
        place = chain.index(key)
        if place and len(_domains(chain[: place + 1], nodes)) == len(_domains(chain[:place], nodes)):
            chain.remove(key)
            left_out.append((key, f"it makes the same domains as {chain[place - 1]}"))


def _domains(levels: Sequence[str], nodes: Sequence[LabelledNode]) -> set[tuple[str, ...]]:
    return {
        tuple(node.labels[level] for level in levels) for node in nodes if all(level in node.labels for level in levels)
    }


def _about(nodes: int, domains: int) -> str:
    each = round(nodes / domains) if domains else 0
    return "one node" if each == 1 else f"about {each} nodes" if nodes % domains else f"{each} nodes"
