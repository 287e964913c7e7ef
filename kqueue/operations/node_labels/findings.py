"""Problems with the level labels of a topology's nodes, and the commands that correct them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.operations.node_labels.values import LabelFinding, LabelledNode, Levels, label_command, normalised, some

RENAMED: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""Label keys that Kubernetes itself has renamed.  Other renamed keys are recognised by their last word."""
_FEW = 4
"""From this number on, domains of one node each are unlikely to be a coincidence."""

Path = tuple[str, ...]


def find(topology: Levels, nodes: Iterable[LabelledNode]) -> list[LabelFinding]:
    """Return all findings: problems before notes, then from the widest level down."""
    all_nodes = list(nodes)
    members = [node for node in all_nodes if topology.has(node)]
    if not members:
        return [_no_nodes(topology, all_nodes)]
    found: list[LabelFinding] = []
    for level in topology.levels:
        found += _missing(topology, level, members)
        found += _renamed(level, members)
    if topology.is_by_host:
        found += _shared_hosts(members)
    whole = [node for node in members if all(level in node.labels for level in topology.named)]
    for depth, level in enumerate(topology.named):
        found += _empty(level, whole)
        found += _near(topology, depth, whole)
        found += list(_swapped(topology, depth, whole)) or _two_parents(topology, depth, whole)
        found += _alone(topology, depth, whole)
        found += _all_one(topology, depth, whole)
    return sorted(found, key=lambda f: (f.is_note, topology.levels.index(f.level) if f.level else -1))


def _no_nodes(topology: Levels, nodes: Sequence[LabelledNode]) -> LabelFinding:
    if not topology.selectors:
        text = "no ResourceFlavor uses this Topology (spec.topologyName), so no pods are placed by it"
        return LabelFinding(code="unused", level="", text=text, is_note=True)
    wanted = " or ".join(some(f"{k}={v}" for k, v in one.items()) or "any node" for one in topology.selectors)
    text = f"none of {len(nodes)} nodes has the labels of its flavors ({wanted}): label nodes, or correct the flavors"
    return LabelFinding(code="noNodes", level="", text=text)


# --- labels that are not there -----------------------------------------------------------------------------------


def _missing(topology: Levels, level: str, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    lacking = [node for node in members if level not in node.labels]
    if not lacking:
        return
    others = _aliases(level, lacking)
    if len(lacking) == len(members) and not others:
        keys = {key for node in members for key in node.labels}
        similar = sorted(key for key in keys if key not in topology.levels and normalised(key) == normalised(level))
        hint = f"; did you mean {some(similar)}?" if similar else ""
        yield LabelFinding(
            code="unknownLevel",
            level=level,
            text=f"no node of this topology has the label {level}{hint}",
            nodes=tuple(node.name for node in lacking),
            mend=tuple(label_command([lacking[0].name], level, "VALUE")),
        )
        return
    known = _Guess(topology, level, members)
    values: dict[str, list[str]] = defaultdict(list)
    for node in lacking:
        alias = others.get(node.name)
        values[node.labels[alias] if alias else known(node)].append(node.name)
    from_alias = f"; {some(sorted(set(others.values())))} looks like its other name" if others else ""
    yield LabelFinding(
        code="missingLevel",
        level=level,
        text=f"{len(lacking)} of {len(members)} nodes lack the label {level}, so no pods are placed there{from_alias}",
        nodes=tuple(node.name for node in lacking),
        mend=tuple(line for value, names in sorted(values.items()) for line in label_command(names, level, value)),
    )


def _aliases(level: str, nodes: Sequence[LabelledNode]) -> dict[str, str]:
    """Return by node the label that seems to be another name of the level."""
    found: dict[str, str] = {}
    verdicts: dict[str, bool] = {}
    for node in nodes:
        for key in sorted(node.labels):
            alike = verdicts.get(key)
            if alike is None:
                alike = verdicts[key] = _is_alias(key, level)
            if alike and node.labels[key]:
                found[node.name] = key
                break
    return found


def _is_alias(key: str, level: str) -> bool:
    """Whether one key is an older or newer name of the other: the domain differs, or the spelling of the name."""
    if key == level or HOSTNAME_LABEL in (key, level):
        return False
    if RENAMED.get(key) == level or RENAMED.get(level) == key or normalised(key) == normalised(level):
        return True
    (domain, _, name), (other_domain, _, other) = key.rpartition("/"), level.rpartition("/")
    is_topology = any(word in text for text in (domain, name) for word in ("topology", "topograph"))
    return is_topology and domain != other_domain and normalised(name) == normalised(other)


class _Guess:
    """Guesses a missing value: the value of all nodes in the node's next lower domain."""

    def __init__(self, topology: Levels, level: str, members: Sequence[LabelledNode]) -> None:
        below = topology.named[topology.levels.index(level) + 1 :]
        self._below = below[0] if below else None
        self._values: dict[str, set[str]] = defaultdict(set)
        for node in members:
            lower = node.labels.get(self._below or "")
            if lower is not None and level in node.labels:
                self._values[lower].add(node.labels[level])

    def __call__(self, node: LabelledNode) -> str:
        """Return the guess, or `VALUE` if nothing implies one."""
        values = self._values.get(node.labels.get(self._below or "", ""), set())
        return next(iter(values)) if len(values) == 1 else "VALUE"


def _renamed(level: str, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    """Yield a finding if the topology uses the old name of a label that nodes have under the new name, too."""
    new = RENAMED.get(level)
    having = [node.name for node in members if new in node.labels] if new is not None else []
    if having:
        yield LabelFinding(
            code="renamedLevel",
            level=level,
            text=f"{level} is the former name of {new}, which {len(having)} of {len(members)} nodes have: new nodes "
            f"may come without the old one; make a Topology with {new}",
            is_note=True,
        )


def _empty(level: str, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    found = [node.name for node in members if not node.labels[level].strip()]
    if found:
        yield LabelFinding(
            code="emptyValue",
            level=level,
            text=f"{len(found)} nodes have the label {level} with an empty value, and count as one domain",
            nodes=tuple(found),
            mend=tuple(label_command(found, level, "VALUE", overwrite=True)),
        )


def _shared_hosts(members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    by_host: dict[str, list[str]] = defaultdict(list)
    for node in members:
        if HOSTNAME_LABEL in node.labels:
            by_host[node.labels[HOSTNAME_LABEL]].append(node.name)
    for host, names in sorted(by_host.items()):
        if len(names) > 1:
            first, *rest = sorted(names)
            wrong = [name for name in sorted(names) if name != host] if host in names else rest
            yield LabelFinding(
                code="duplicateHostname",
                level=HOSTNAME_LABEL,
                text=f"nodes {some(sorted(names))} have the same {HOSTNAME_LABEL}={host}; pods are placed on {first} "
                "alone.  A kubelet writes its label again when it starts: give it a --hostname-override of its own",
                nodes=tuple(wrong),
                mend=tuple(line for n in wrong for line in label_command([n], HOSTNAME_LABEL, n, overwrite=True)),
            )


# --- values that are odd -----------------------------------------------------------------------------------------


def _near(topology: Levels, depth: int, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    """Yield values under one parent that differ only in spelling."""
    level = topology.named[depth]
    groups: dict[tuple[Path, str], dict[str, list[str]]] = {}
    for node in members:
        value = node.labels[level]
        if value.strip():
            key = (_path(topology, depth, node)[:-1], normalised(value))
            groups.setdefault(key, {}).setdefault(value, []).append(node.name)
    for (_, _), values in sorted(groups.items()):
        if len(values) > 1:
            right = max(sorted(values), key=lambda value: len(values[value]))
            wrong = {value: names for value, names in sorted(values.items()) if value != right}
            yield LabelFinding(
                code="nearDuplicate",
                level=level,
                text=f"{level} has values that differ only in writing: {some(map(repr, sorted(values)))}; they count "
                f"as {len(values)} domains",
                nodes=tuple(name for names in wrong.values() for name in names),
                mend=tuple(
                    line for names in wrong.values() for line in label_command(names, level, right, overwrite=True)
                ),
            )


def _two_parents(topology: Levels, depth: int, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    """Yield values under more than one parent: a few are mistakes, many are a scheme of numbering."""
    if depth == 0:
        return
    level, above = topology.named[depth], topology.named[depth - 1]
    places: dict[str, dict[Path, list[str]]] = {}
    for node in members:
        path = _path(topology, depth, node)
        places.setdefault(path[-1], {}).setdefault(path[:-1], []).append(node.name)
    torn = {value: parents for value, parents in sorted(places.items()) if len(parents) > 1}
    if 2 * len(torn) > len(places):
        yield LabelFinding(
            code="numberedAnew",
            level=level,
            text=f"{len(torn)} of {len(places)} values of {level} occur in several {above}: kqueue tells them apart by "
            "the levels above, people reading one value cannot",
            is_note=True,
        )
        return
    for value, parents in torn.items():
        right = max(sorted(parents), key=lambda parent: len(parents[parent]))
        wrong = {parent: names for parent, names in sorted(parents.items()) if parent != right}
        mend = [
            line
            for parent, names in wrong.items()
            for number, key in enumerate(topology.named[:depth])
            if parent[number] != right[number]
            for line in label_command(names, key, right[number], overwrite=True)
        ]
        yield LabelFinding(
            code="twoParents",
            level=level,
            text=f"{level}={value} is used in {len(parents)} domains: {some('/'.join(p) for p in sorted(parents))}; "
            f"most of its nodes are in {'/'.join(right)}",
            nodes=tuple(name for names in wrong.values() for name in names),
            mend=tuple(mend),
        )


def _swapped(topology: Levels, depth: int, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    """Yield a level that is narrower than the next level below."""
    if depth == 0:
        return
    level, above = topology.named[depth], topology.named[depth - 1]
    parents: dict[str, set[str]] = defaultdict(set)
    children: dict[str, set[str]] = defaultdict(set)
    for node in members:
        parents[node.labels[level]].add(node.labels[above])
        children[node.labels[above]].add(node.labels[level])
    if len(children) > len(parents) > 1 and all(len(below) == 1 for below in children.values()):
        yield LabelFinding(
            code="swappedLevels",
            level=above,
            text=f"{above} has {len(children)} values and {level} below it only {len(parents)}, each with several of "
            "them: the levels seem to be in the wrong order; make a Topology with the wider one first",
        )


def _alone(topology: Levels, depth: int, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    level = topology.named[depth]
    sizes = Counter(_path(topology, depth, node) for node in members)
    if len(sizes) >= _FEW and max(sizes.values()) == 1 and (topology.is_by_host or depth < len(topology.named) - 1):
        yield LabelFinding(
            code="oneNodeEach",
            level=level,
            text=f"each of the {len(sizes)} domains of {level} has one node: a gang of two fits into none of them; the "
            "label seems to name nodes",
        )


def _all_one(topology: Levels, depth: int, members: Sequence[LabelledNode]) -> Iterator[LabelFinding]:
    level = topology.named[depth]
    values = {node.labels[level] for node in members}
    if len(values) == 1 and len(members) > 1 and len(topology.named) > 1:
        yield LabelFinding(
            code="oneDomain",
            level=level,
            text=f"all {len(members)} nodes have {level}={next(iter(values))}: the level has only one domain",
            is_note=True,
        )


def _path(topology: Levels, depth: int, node: LabelledNode) -> Path:
    return tuple(node.labels[level] for level in topology.named[: depth + 1])
