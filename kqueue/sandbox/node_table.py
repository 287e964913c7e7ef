"""All nodes as rows of numbers, so that one pod is compared with thousands of nodes at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kqueue.kube.names import UNSCHEDULABLE_TAINT
from kqueue.kube.taints import Taint, Toleration, untolerated_taint
from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import Object
from kqueue.sandbox.matching import named_node, node_shape, pod_requests, selects, taints_of, tolerations_of

_REMEMBERED_SHAPES = 512
_FEW = 32  # up to this number, nodes are checked one by one, without a cache
_CORDON = Taint(UNSCHEDULABLE_TAINT)


@dataclass(frozen=True, slots=True)
class PodFit:
    """The facts of a pod that the search needs; pods with equal `shape` and `requests` are interchangeable."""

    pod: Object
    shape: str
    requests: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, pod: Object) -> PodFit:
        """Read from the pod.  Raises ValueError when a quantity is malformed."""
        return cls(pod, node_shape(pod), tuple(sorted(pod_requests(pod).items())))


@dataclass(frozen=True, slots=True)
class NoFit:
    """The reason that no node fits a pod: the number of nodes for each cause."""

    nodes: int
    causes: tuple[tuple[str, int], ...]

    def message(self) -> str:
        """Return one sentence in the wording of the stock scheduler."""
        parts = ", ".join(f"{count} {cause}" for cause, count in self.causes)
        return f"0/{self.nodes} nodes are available{': ' + parts if parts else ''}."


@dataclass(slots=True)
class _Node:
    row: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    allocatable: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Eligible:
    rows: npt.NDArray[np.intp]
    causes: tuple[tuple[str, int], ...]


class NodeTable:
    """Nodes with their free resources.  Usage is kept per pod UID, also for nodes that are not known (yet)."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._names: list[str] = []  # by row; "" for a row that is free
        self._unused: list[int] = []
        self._resources: dict[str, int] = {"pods": 0, "cpu": 1, "memory": 2}
        self._free = np.zeros((3, 0), dtype=np.int64)
        self._score = np.zeros(0, dtype=np.int64)
        self._used: dict[str, dict[str, Mapping[str, int]]] = {}  # node -> pod UID -> requests
        self._by_label: dict[tuple[str, str], set[str]] = {}
        self._eligible: dict[str, _Eligible] = {}

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)

    def set_node(self, node: Object) -> bool:
        """Add or update a node; return False if no relevant field has changed.

        Raises:
            ValueError: an allocatable amount is malformed; the node stays as it was.
        """
        name, new = node["metadata"]["name"], _read(node)
        old = self._nodes.get(name)
        if old is not None:
            new.row = old.row
            if new == old:
                return False
            self._unlabel(name, old)
        else:
            new.row = self._take_row(name)
        self._nodes[name] = new
        for label in new.labels.items():
            self._by_label.setdefault(label, set()).add(name)
        self._eligible.clear()
        self._refresh(name)
        return True

    def remove_node(self, name: str) -> None:
        """Remove a node; the usage of its pods is kept, in case the node returns."""
        node = self._nodes.pop(name, None)
        if node is None:
            return
        self._unlabel(name, node)
        self._names[node.row] = ""
        self._free[:, node.row] = 0
        self._unused.append(node.row)
        self._eligible.clear()

    def charge(self, node: str, uid: str, requests: Iterable[tuple[str, int]]) -> None:
        """Charge a pod's requests to `node`; a second charge of the same pod has no effect."""
        pods = self._used.setdefault(node, {})
        if uid not in pods:
            pods[uid] = dict(requests)
            self._apply(node, pods[uid], -1)

    def release(self, node: str, uid: str) -> bool:
        """Release a pod's requests; return False if the pod had none there."""
        pods = self._used.get(node)
        if pods is None or uid not in pods:
            return False
        requests = pods.pop(uid)
        if not pods:
            del self._used[node]
        self._apply(node, requests, +1)
        return True

    def find(self, fit: PodFit, *, among: Collection[str] | None = None, otherwise: str = "") -> str | NoFit:
        """Return the eligible node with the most free resources (tie: the older row), or the reason for none.

        `among`: the nodes that may be chosen, None: all of them; `otherwise` is the cause that others may not.
        """
        eligible = self._eligible_for(fit)
        if among is not None:
            eligible = self._restricted(eligible, among, otherwise)
        rows = eligible.rows
        if rows.size:
            fits = np.ones(rows.size, dtype=np.bool_)
            for resource, asked in fit.requests:
                if asked > 0:
                    fits &= self._free_of(resource, rows) >= asked
            if fits.any():
                return self._names[int(rows[fits][np.argmax(self._score[rows[fits]])])]
        short = [(f"Insufficient {r}" if r != "pods" else "Too many pods", n) for r, n in self._short(fit, rows) if n]
        return NoFit(len(self._nodes), (*eligible.causes, *short))

    def _restricted(self, eligible: _Eligible, among: Collection[str], otherwise: str) -> _Eligible:
        kept = np.array([row for row in eligible.rows if self._names[int(row)] in among], dtype=np.intp)
        missed = eligible.rows.size - kept.size
        return _Eligible(kept, (*eligible.causes, *([(otherwise, missed)] if missed else [])))

    def _short(self, fit: PodFit, rows: npt.NDArray[np.intp]) -> Iterable[tuple[str, int]]:
        for resource, asked in fit.requests:
            if asked > 0:
                yield resource, int((self._free_of(resource, rows) < asked).sum())

    def _free_of(self, resource: str, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        index = self._resources.get(resource)
        return np.zeros(rows.size, dtype=np.int64) if index is None else self._free[index, rows]

    def _eligible_for(self, fit: PodFit) -> _Eligible:
        known = self._eligible.get(fit.shape)
        if known is not None:
            return known
        candidates = self._candidates(fit.pod)
        found = self._checked(fit.pod, candidates)
        if len(candidates) > _FEW:
            if len(self._eligible) >= _REMEMBERED_SHAPES:
                del self._eligible[next(iter(self._eligible))]
            self._eligible[fit.shape] = found
        return found

    def _candidates(self, pod: Object) -> Collection[str]:
        """Return a superset of the nodes that the pod selects, small if the pod selects few."""
        name = named_node(pod)
        if name is not None:
            return [name] if name in self._nodes else []
        selector = pod["spec"].get("nodeSelector") or {}
        groups = [self._by_label.get((key, value), set()) for key, value in selector.items()]
        return min(groups, key=len) if groups else self._nodes

    def _checked(self, pod: Object, candidates: Collection[str]) -> _Eligible:
        tolerations = tolerations_of(pod)
        rows: list[int] = []
        selected, causes = 0, dict[str, int]()
        for name in candidates:
            node = self._nodes[name]
            if not selects(pod, name, node.labels):
                continue
            selected += 1
            cause = _turned_away(node, tolerations)
            if cause is None:
                rows.append(node.row)
            else:
                causes[cause] = causes.get(cause, 0) + 1
        missed = len(self._nodes) - selected
        unmatched = {"node(s) didn't match Pod's node affinity/selector": missed} if missed else {}
        return _Eligible(np.array(sorted(rows), dtype=np.intp), (*unmatched.items(), *sorted(causes.items())))

    def _take_row(self, name: str) -> int:
        if self._unused:
            row = self._unused.pop()
            self._names[row] = name
            return row
        self._names.append(name)
        if len(self._names) > self._score.size:
            more = max(64, self._score.size)
            self._free = np.pad(self._free, ((0, 0), (0, more)))
            self._score = np.pad(self._score, (0, more))
        return len(self._names) - 1

    def _index_of(self, resource: str) -> int:
        if resource not in self._resources:
            self._resources[resource] = len(self._resources)
            self._free = np.pad(self._free, ((0, 1), (0, 0)))
        return self._resources[resource]

    def _refresh(self, name: str) -> None:
        node = self._nodes[name]
        self._free[:, node.row] = 0
        for resource, offered in node.allocatable.items():
            index = self._index_of(resource)  # may replace the matrix
            self._free[index, node.row] = offered
        for requests in self._used.get(name, {}).values():
            self._apply(name, requests, -1)
        self._rate(node)

    def _apply(self, name: str, requests: Mapping[str, int], sign: int) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        for resource, quantity in requests.items():
            index = self._index_of(resource)
            self._free[index, node.row] += sign * quantity
        self._rate(node)

    def _rate(self, node: _Node) -> None:
        """Rank a node by free cpu, memory and pods, in thousandths of allocatable; the emptiest node comes first."""
        self._score[node.row] = sum(
            int(self._free[index, node.row]) * 1000 // node.allocatable[resource]
            for resource, index in self._resources.items()
            if node.allocatable.get(resource, 0) > 0
        )

    def _unlabel(self, name: str, node: _Node) -> None:
        for label in node.labels.items():
            self._by_label[label].discard(name)
            if not self._by_label[label]:
                del self._by_label[label]


def _read(node: Object) -> _Node:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return _Node(
        row=-1,
        labels=dict(node["metadata"].get("labels") or {}),
        taints=taints_of(node),
        cordoned=bool(spec.get("unschedulable")),
        allocatable={name: amount(offered, name) for name, offered in (status.get("allocatable") or {}).items()},
    )


def _turned_away(node: _Node, tolerations: tuple[Toleration, ...]) -> str | None:
    if node.cordoned and untolerated_taint((_CORDON,), tolerations) is not None:
        return "node(s) were unschedulable"
    taint = untolerated_taint(node.taints, tolerations)
    if taint is None:
        return None
    return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
