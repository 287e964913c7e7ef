"""Topology summaries as rows: the tree of domains, gangs that fit, excluded nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.cli.dashboard.amounts import FOREIGN, HELD, amount, bar, chosen, short

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRow:
    """A resource of a domain.  Rows after a domain's first have no `domain`."""

    domain: str
    nodes: str
    idle: str
    left_out: str
    resource: str
    free: str
    held: str
    foreign: str
    total: str
    bar: str

    HEADERS = ("domain", "nodes", "idle", "left out", "resource", "free", "held", "foreign", "total")

    def cells(self) -> tuple[str, ...]:
        """Return the cells in the order of the headers."""
        return (
            *(self.domain, self.nodes, self.idle, self.left_out),
            *(self.resource, self.free, self.held, self.foreign, self.total),
        )


def title(summary: JSON, flavor: JSON) -> str:
    """Return a line that names the shown part."""
    counts = [f"{count} {_last_part(level)}{'' if count == 1 else 's'}" for level, count in flavor["domains"].items()]
    left_out = sum(flavor["leftOut"].values())
    more = f", {left_out} more left out" if left_out else ""
    shown = ", ".join(counts[:-1] or counts)
    return f"Topology {summary['metadata']['name']}, flavor {flavor['name']}: {flavor['nodes']} nodes{more} ({shown})"


def _last_part(level: str) -> str:
    """Return the last word of a level's label, for headings: `rack`."""
    return level.rpartition("/")[2].rpartition("-")[2] or level


def rows(flavor: JSON, resources: Sequence[str] = (), *, guides: bool = False) -> list[DomainRow]:
    """Return the rows of the tree; `guides`: with lines from parents to children, else indented."""
    tree = flavor["tree"]
    names = _guided(tree) if guides else ["  " * (len(d["path"]) - 1) + d["path"][-1] for d in tree]
    found: list[DomainRow] = []
    for name, domain in zip(names, tree, strict=True):
        shown = chosen(domain["resources"], resources)
        head = (name, str(domain["nodes"]), str(domain["idleNodes"]), str(domain["leftOutNodes"] or "-"))
        for number, resource in enumerate(shown or [""]):
            found.append(
                _row(head if number == 0 else ("", "", "", ""), resource, domain["resources"].get(resource, {}))
            )
    return found


def _row(head: tuple[str, str, str, str], resource: str, amounts: JSON) -> DomainRow:
    value = {word: amount(amounts.get(word, "0"), resource) for word in ("free", "held", "foreign", "total")}
    drawn = bar([(value["held"], HELD), (value["foreign"], FOREIGN)], value["total"]) if resource else ""
    domain, nodes, idle, left_out = head
    return DomainRow(
        domain=domain,
        nodes=nodes,
        idle=idle,
        left_out=left_out,
        resource=resource,
        free=short(value["free"], resource),
        held=short(value["held"], resource),
        foreign=short(value["foreign"], resource),
        total=short(value["total"], resource),
        bar=drawn,
    )


def _guided(tree: Sequence[JSON]) -> list[str]:
    """Return each domain's name behind the lines of the tree."""
    highest = min((len(domain["path"]) for domain in tree), default=1)
    goes_on: set[int] = set()
    """Levels with a further domain before the tree returns to a wider level."""
    names = []
    for domain in reversed(tree):
        depth = len(domain["path"])
        lead = ""
        for level in range(highest + 1, depth + 1):
            last = level == depth
            lead += ("├─ " if last else "│  ") if level in goes_on else ("└─ " if last else "   ")
        names.append(lead + domain["path"][-1])
        goes_on = {level for level in goes_on if level < depth} | {depth}
    return names[::-1]


def gangs(flavor: JSON) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows: how many gangs of 1, 2, 4 ... whole nodes fit.  Empty if there is one level."""
    found = flavor.get("gangs", [])
    sizes = sorted({int(size) for level in found for size in level["slots"]})
    if not sizes:
        return [], []
    headers = ["room inside one", *(f"{size} node{'s' if size > 1 else ''}" for size in sizes)]
    return headers, [
        [_last_part(level["level"]), *(str(level["slots"].get(str(s), 0)) for s in sizes)] for level in found
    ]


HOLDER_HEADERS = ("held by", "clusterqueue", "pods")


def held_by(flavor: JSON) -> list[tuple[str, str, str]]:
    """Return the workloads in the requested domain; the last row counts workloads that the user may not see."""
    found = flavor.get("holders", {"named": [], "others": {"workloads": 0, "pods": 0}})
    lines = [(one["workload"], one["clusterQueue"], str(one["pods"])) for one in found["named"]]
    others = found["others"]
    if others["workloads"]:
        lines.append((f"and {others['workloads']} other workloads", "", str(others["pods"])))
    return lines


LEFT_OUT_HEADERS = ("left out", "domain", "cause")


def left_out(flavor: JSON, most: int) -> Iterator[tuple[str, str, str]]:
    """Yield nodes that get no pods, with the cause; the last row counts the rest."""
    nodes = flavor["leftOutNodes"]
    for node in nodes[:most]:
        yield node["node"], "/".join(node["domain"]) or "-", node["message"]
    more = sum(flavor["leftOut"].values()) - min(most, len(nodes))
    if more:
        yield f"and {more} more", "", ", ".join(f"{count} {reason}" for reason, count in flavor["leftOut"].items())
