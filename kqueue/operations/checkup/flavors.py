"""Checks that flavors have nodes, by their labels and by the levels of their Topologies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

JSON = dict[str, Any]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FlavorFindings:
    """The findings of the check of flavors."""

    empty: Mapping[str, str]
    """Flavors without a usable node, each with a line about the cause and a command or a remedy."""
    usable: int
    """Nodes that at least one flavor can use."""


def room(flavors: Sequence[JSON], topologies: Sequence[JSON], nodes: Sequence[Labels]) -> FlavorFindings:
    """Check the nodes of each flavor. `nodes`: the labels of schedulable nodes."""
    levels = {t["metadata"]["name"]: _levels(t) for t in topologies}
    empty: dict[str, str] = {}
    used = set[int]()
    for flavor in flavors:
        name, spec = flavor["metadata"]["name"], flavor.get("spec") or {}
        wanted = spec.get("nodeLabels") or {}
        matching = [number for number, labels in enumerate(nodes) if wanted.items() <= labels.items()]
        keys = levels.get(spec.get("topologyName", ""), ())
        placed = [number for number in matching if all(key in nodes[number] for key in keys)]
        used.update(placed)
        if not matching:
            empty[name] = f"{name}: kubectl get nodes -l {','.join(f'{key}={value}' for key, value in wanted.items())}"
        elif not placed:
            missing, topology = _missing(keys, [nodes[number] for number in matching]), spec["topologyName"]
            empty[name] = f"{name}: none of its {len(matching)} nodes has all levels of Topology {topology}: {missing}"
    return FlavorFindings(empty, len(used))


def _levels(topology: JSON) -> tuple[str, ...]:
    return tuple(level["nodeLabel"] for level in topology["spec"].get("levels") or ())


def _missing(keys: Iterable[str], nodes: Sequence[Labels]) -> str:
    """Return each level that nodes lack, the label with the most similar key, and a command that shows them."""
    known = sorted({key for labels in nodes for key in labels})
    lacking = [(key, sum(key not in labels for labels in nodes)) for key in keys]
    text = [f"{key} is missing on {count}{_guess(key, known)}" for key, count in lacking if count]
    shown = ",".join(key for key, count in lacking if count)
    return f"{'; '.join(text)}: kubectl get nodes -L {shown}"


def _guess(key: str, known: Sequence[str]) -> str:
    near = get_close_matches(key, known, n=1, cutoff=0.8)
    return f" (did you mean {near[0]}?)" if near else ""


def being_deleted(topologies: Iterable[JSON], flavors: Iterable[JSON]) -> Iterator[str]:
    """Return a line for each Topology whose deletion waits, with the cause and the command that ends it."""
    users: dict[str, list[str]] = {}
    for flavor in flavors:
        users.setdefault((flavor.get("spec") or {}).get("topologyName", ""), []).append(flavor["metadata"]["name"])
    for topology in topologies:
        metadata = topology["metadata"]
        if not metadata.get("deletionTimestamp"):
            continue
        name, held = metadata["name"], ", ".join(metadata.get("finalizers") or ())
        naming = users.get(name, [])
        remedy = (
            f"kubectl delete resourceflavor {' '.join(sorted(naming))}, or give it another spec.topologyName"
            if naming
            else "a running controller removes the finalizer: kqueue doctor shows whether one leads"
        )
        yield f"Topology {name} is being deleted since {metadata['deletionTimestamp']}, held by {held}: {remedy}"
