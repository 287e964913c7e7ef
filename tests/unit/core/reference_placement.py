"""Placement written down a second time: plain Python, objects and dictionaries, slow, step by step as the rules read.

It shares no code with the engine, so that a mistake would have to be made twice to pass.  No balanced placement, no
replacement, no elastic jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

COUNT_MAX = 2**31 - 1


@dataclass
class RefLeaf:
    """A host: path, free amounts, and what it says to pods."""

    path: tuple[str, ...]
    free: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect


@dataclass
class RefRequest:
    """A pod set as the rules see it."""

    name: str
    count: int
    requests: dict[str, int]
    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    implied: bool = False
    slices: tuple[tuple[str, int], ...] = ()
    group: str | None = None
    selector: dict[str, str] = field(default_factory=dict)
    tolerated: frozenset[str] = frozenset()  # taint keys, any value and effect
    weights: dict[tuple[str, str], int] = field(default_factory=dict)  # preferred: label key and value -> weight


class RefFailure(Exception):
    """The code and the facts of a failure."""

    def __init__(self, code: str, **facts: object) -> None:
        super().__init__(code)
        self.code, self.facts = code, facts


@dataclass
class RefDomain:
    """A domain with the state of one find."""

    path: tuple[str, ...]
    level: int
    children: list[RefDomain] = field(default_factory=list)
    leaf: RefLeaf | None = None
    pods: int = 0
    slices: int = 0
    pods_led: int = 0
    slices_led: int = 0
    leaders: int = 0
    affinity: int = 0


class RefEngine:
    """One tree with its free amounts; places pod sets one group after another."""

    def __init__(
        self,
        levels: Sequence[str],
        leaves: Sequence[RefLeaf],
        *,
        least_unconstrained: bool = True,
        least_always: bool = False,
        affinity: bool = False,
    ) -> None:
        self.levels = list(levels)
        self.leaves = sorted(leaves, key=lambda leaf: leaf.path)
        self.least_unconstrained, self.least_always, self.with_affinity = least_unconstrained, least_always, affinity
        self.filtered = self.levels[-1] == "kubernetes.io/hostname"
        self.assumed: dict[tuple[str, ...], dict[str, int]] = {}

    # entry points

    def outcome(self, pod_sets: Sequence[RefRequest]) -> dict[str, list[tuple[tuple[str, ...], int]]] | RefFailure:
        """What `place` gives back or raises."""
        try:
            return self.place(pod_sets)
        except RefFailure as failure:
            return failure

    def place(self, pod_sets: Sequence[RefRequest]) -> dict[str, list[tuple[tuple[str, ...], int]]]:
        """Pod set name -> (path, count) in path order.  Raises RefFailure."""
        groups: dict[object, list[RefRequest]] = {}
        for i, pod_set in enumerate(pod_sets):
            if pod_set.count:
                groups.setdefault(pod_set.group if pod_set.group is not None else i, []).append(pod_set)
        result: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        for members in groups.values():
            workers = members[0]
            leader = members[1] if len(members) > 1 else None
            if leader is not None and leader.count > workers.count:
                workers, leader = leader, workers
            worker_domains, leader_domains = self.find(workers, leader)
            result[workers.name] = worker_domains
            self.assume(workers, worker_domains)
            if leader is not None:
                result[leader.name] = leader_domains
                self.assume(leader, leader_domains)
        return result

    def assume(self, pod_set: RefRequest, domains: list[tuple[tuple[str, ...], int]]) -> None:
        for path, count in domains:
            entry = self.assumed.setdefault(path, {})
            for resource, amount in pod_set.requests.items():
                entry[resource] = entry.get(resource, 0) + amount * count
            entry["pods"] = entry.get("pods", 0) + count

    # resolution

    def resolve(self, w: RefRequest) -> None:
        self.size = w.slices[0][1] if w.slices else 1
        if self.size <= 0:
            raise RefFailure("SliceSizeMissing")
        slice_only = bool(w.slices) and not w.required and not w.preferred
        self.required = w.required is not None
        self.unconstrained = w.unconstrained is True or w.implied or slice_only
        if w.required:
            key = w.required
        elif w.preferred:
            key = w.preferred
            if key == "auto" and "auto" not in self.levels:
                key = self.levels[-1]
        elif slice_only:
            key = self.levels[0]
        elif w.unconstrained is True or w.implied:
            key = self.levels[-1]
        else:
            raise RefFailure("LevelNotSpecified")
        if key not in self.levels:
            raise RefFailure("LevelNotFound", level=key)
        self.R = self.levels.index(key)
        slice_key = w.slices[0][0] if w.slices else self.levels[-1]
        if slice_key not in self.levels:
            raise RefFailure("SliceLevelNotFound", level=slice_key)
        self.S = self.levels.index(slice_key)
        if self.R > self.S:
            raise RefFailure("SliceLevelAbovePodSetLevel", level=key, other_level=slice_key)
        self.inner: dict[int, int] = {}
        above, above_size = self.S, self.size
        for key, size in w.slices[1:]:
            if key not in self.levels:
                raise RefFailure("InnerLevelNotFound", level=key)
            at = self.levels.index(key)
            if at <= above:
                raise RefFailure("InnerLevelNotLower", level=key, other_level=self.levels[above])
            if above_size % size:
                raise RefFailure("InnerSizeNotDivisor", size=size, other_size=above_size)
            for level in range(above + 1, at + 1):
                self.inner[level] = size
            above, above_size = at, size
        self.need = w.count // self.size
        self.count = w.count
        if self.need == 0:
            raise RefFailure("CountBelowSliceSize", count=w.count, size=self.size)
        self.least = self.least_always or (self.unconstrained and self.least_unconstrained)

    # counting

    def passes(self, pod_set: RefRequest, leaf: RefLeaf) -> str | None:
        if not self.filtered:
            return None
        for key, value, effect in leaf.taints:
            if effect in ("NoSchedule", "NoExecute") and key not in pod_set.tolerated:
                return f"taint {key}={value}:{effect}" if value else f"taint {key}:{effect}"
        for key, value in pod_set.selector.items():
            if leaf.labels.get(key) != value:
                return "selector"
        return None

    def remaining(self, leaf: RefLeaf) -> dict[str, int]:
        rem = dict(leaf.free)
        for resource, amount in self.assumed.get(leaf.path, {}).items():
            rem[resource] = rem.get(resource, 0) - amount
        return rem

    @staticmethod
    def fit(requests: dict[str, int], rem: dict[str, int]) -> tuple[int, str | None]:
        best, limiting = COUNT_MAX, None
        for resource in sorted(requests):
            if requests[resource] == 0:
                continue
            n = min(max(0, rem.get(resource, 0)) // requests[resource], COUNT_MAX)
            if limiting is None or n < best:
                best, limiting = n, resource
        return best, limiting

    def build(self, w: RefRequest, leader: RefRequest | None) -> None:
        self.by_level: list[list[RefDomain]] = [[] for _ in self.levels]
        known: dict[tuple[str, ...], RefDomain] = {}
        self.excluded: dict[str, int] = {}
        for leaf in self.leaves:
            for level in range(len(self.levels)):
                path = leaf.path[: level + 1]
                if path not in known:
                    known[path] = RefDomain(path, level)
                    self.by_level[level].append(known[path])
                    if level:
                        known[path[:-1]].children.append(known[path])
            domain = known[leaf.path]
            domain.leaf = leaf
            self.count_leaf(domain, leaf, w, leader)
        for level in range(len(self.levels) - 2, -1, -1):
            for domain in self.by_level[level]:
                self.roll_up(domain, leader is not None)

    def count_leaf(self, domain: RefDomain, leaf: RefLeaf, w: RefRequest, leader: RefRequest | None) -> None:
        cause = self.passes(w, leaf)
        if cause is not None:
            self.excluded[cause] = self.excluded.get(cause, 0) + 1
            return
        if self.filtered:
            domain.affinity = sum(weight for (k, v), weight in w.weights.items() if leaf.labels.get(k) == v)
        rem = self.remaining(leaf)
        wanted = {**w.requests, "pods": w.requests.get("pods", 0) + 1}
        domain.pods, limiting = self.fit(wanted, rem)
        if domain.pods == 0:
            cause = f"resource {limiting}"
            self.excluded[cause] = self.excluded.get(cause, 0) + 1
        if leader is not None:
            lead = {**leader.requests, "pods": leader.requests.get("pods", 0) + 1}
            if self.fit(lead, rem)[0] > 0 and self.passes(leader, leaf) is None:
                domain.leaders = 1
                for resource, amount in lead.items():
                    rem[resource] = rem.get(resource, 0) - amount
        domain.pods_led = self.fit(wanted, rem)[0]
        if len(self.levels) - 1 == self.S:
            domain.slices, domain.slices_led = domain.pods // self.size, domain.pods_led // self.size

    def roll_up(self, domain: RefDomain, has_leader: bool) -> None:
        z = self.inner.get(domain.level + 1)
        cp = [c.pods // z * z if z else c.pods for c in domain.children]
        cpl = [c.pods_led // z * z if z else c.pods_led for c in domain.children]
        domain.pods = sum(cp)
        slice_sum = sum(c.slices for c in domain.children)
        carriers = [i for i, c in enumerate(domain.children) if not has_leader or c.leaders > 0]
        slices_led_sum = 0
        if carriers:
            domain.pods_led = domain.pods - min(cp[i] - cpl[i] for i in carriers)
            slices_led_sum = slice_sum - min(
                domain.children[i].slices - domain.children[i].slices_led for i in carriers
            )
        domain.leaders = max(c.leaders for c in domain.children)
        domain.affinity = sum(c.affinity for c in domain.children)
        if domain.level == self.S:
            domain.slices, domain.slices_led = domain.pods // self.size, domain.pods_led // self.size
        else:
            domain.slices, domain.slices_led = slice_sum, slices_led_sum

    # orders

    def affinity_key(self, d: RefDomain) -> int:
        return -d.affinity if self.with_affinity else 0

    def sorted(self, domains: Sequence[RefDomain]) -> list[RefDomain]:
        sign = 1 if self.least else -1
        return sorted(domains, key=lambda d: (self.affinity_key(d), sign * d.slices, d.pods, d.path))

    def sorted_led(self, domains: Sequence[RefDomain]) -> list[RefDomain]:
        sign = 1 if self.least else -1
        return sorted(
            domains, key=lambda d: (-d.leaders, self.affinity_key(d), sign * d.slices_led, d.pods_led, d.path)
        )

    def best_fit_of(self, domains: list[RefDomain], need: int, leaders: int, unit: str) -> RefDomain:
        run = domains
        if self.with_affinity:
            run = []
            for d in domains:
                if d.affinity != domains[0].affinity:
                    break
                run.append(d)
        best: RefDomain | None = None
        for d in run:
            if d.leaders < leaders:
                continue
            n = self.amount(d, unit, led=leaders > 0)
            if n >= need and (best is None or n < self.amount(best, unit, led=leaders > 0)):
                best = d
        return best if best is not None else domains[0]

    @staticmethod
    def amount(d: RefDomain, unit: str, *, led: bool) -> int:
        if unit == "slices":
            return d.slices_led if led else d.slices
        return d.pods_led if led else d.pods

    def prioritize_leader(
        self, domains: list[RefDomain], count: int, leaders: int, size: int, unit: str
    ) -> list[RefDomain]:
        if leaders == 0 or len(domains) < 2:
            return domains
        wanted = count // size if unit == "slices" else count
        available = sum(self.amount(d, unit, led=False) for d in domains)
        for i, d in enumerate(domains):
            if d.leaders < leaders:
                continue
            penalty = self.amount(d, unit, led=False) - self.amount(d, unit, led=True)
            if available - penalty >= wanted:
                return [d, *domains[:i], *domains[i + 1 :]]
        return domains

    # phase 2a

    def no_fit(self, level: int, fit: int) -> RefFailure:
        return RefFailure(
            "NoFit", level=self.levels[level], fit=fit, total=self.need, unit="pod" if self.size == 1 else "slice"
        )

    def find_level(self, level: int, leaders: int) -> tuple[int, list[RefDomain]]:
        if not self.by_level[level]:
            raise RefFailure("NoDomainsAtLevel", level=self.levels[level])
        order = self.sorted_led(self.by_level[level])
        need = self.need
        top = order[0]
        if not self.least and top.slices_led >= need and top.leaders >= leaders:
            top = self.best_fit_of(order, need, leaders, "slices")
        if self.least:
            for d in order:
                if (leaders == 0 and d.slices >= need) or (leaders and d.leaders >= leaders and d.slices_led >= need):
                    return level, [d]
            if self.required:
                raise self.no_fit(level, max(d.slices for d in order))
        if top.slices_led >= need and top.leaders >= leaders:
            return level, [top]
        if self.required:
            if self.with_affinity:
                for i in range(1, len(order)):
                    if order[i].slices_led >= need and order[i].leaders >= leaders:
                        return level, [self.best_fit_of(order[i:], need, leaders, "slices")]
            raise self.no_fit(level, top.slices)
        if level > 0 and not self.unconstrained:
            return self.find_level(level - 1, leaders)
        return level, self.spread(level, order, leaders)

    def spread(self, level: int, order: list[RefDomain], leaders: int) -> list[RefDomain]:
        order = self.prioritize_leader(order, self.count, leaders, self.size, "slices")
        chosen: list[RefDomain] = []
        left, leaders_left, i = self.need, leaders, 0
        while leaders_left > 0 and i < len(order) and order[i].leaders > 0:
            d = order[i]
            if not self.least and d.slices_led >= left:
                d = self.best_fit_of(order[i:], left, leaders_left, "slices")
            chosen.append(d)
            leaders_left -= d.leaders
            left -= d.slices_led
            i += 1
        if leaders_left > 0:
            raise self.no_fit(level, leaders - leaders_left)
        rest = self.sorted(order[i:])
        j = 0
        while left > 0 and j < len(rest):
            d = rest[j]
            if not self.least and d.slices >= left:
                d = self.best_fit_of(rest[j:], left, 0, "slices")
            chosen.append(d)
            left -= d.slices
            j += 1
        if left > 0:
            raise self.no_fit(level, self.need - left)
        return chosen

    # phase 2b

    def minimise(self, domains: list[RefDomain], count: int, leaders: int, size: int, unit: str) -> list[RefDomain]:
        domains = self.prioritize_leader(domains, count, leaders, size, unit)
        left = count // size if unit == "slices" else count
        leaders_left = leaders
        f = size if unit == "slices" else 1
        out: list[RefDomain] = []
        for i, d in enumerate(domains):
            if leaders_left > 0:
                w = self.amount(d, unit, led=True)
                if not self.least and w >= left and d.leaders >= leaders_left:
                    d = self.best_fit_of(domains[i:], left, leaders_left, unit)
                    w = self.amount(d, unit, led=True)
                if w >= left and d.leaders >= leaders_left:
                    d.leaders, d.pods = leaders_left, left * f
                    if unit == "slices":
                        d.slices = left
                    return [*out, d]
                w = min(w, left)
                d.leaders = min(d.leaders, leaders_left)
                d.pods = w * f
                if unit == "slices":
                    d.slices = w
                leaders_left -= d.leaders
                left -= w
                out.append(d)
                continue
            c = self.amount(d, unit, led=False)
            if not self.least and c >= left:
                d = self.best_fit_of(domains[i:], left, 0, unit)
                c = self.amount(d, unit, led=False)
            d.leaders = 0
            if c >= left:
                d.pods = left * f
                if unit == "slices":
                    d.slices = left
                return [*out, d]
            d.pods = c * f
            left -= c
            out.append(d)
        raise RefFailure("InternalInconsistency")

    def find(
        self, w: RefRequest, leader: RefRequest | None
    ) -> tuple[list[tuple[tuple[str, ...], int]], list[tuple[tuple[str, ...], int]]]:
        self.resolve(w)
        self.build(w, leader)
        leaders = 1 if leader is not None else 0
        try:
            level, cur = self.find_level(self.R, leaders)
        except RefFailure as failure:
            failure.facts.setdefault("excluded", self.excluded)
            raise
        cur = self.minimise(cur, self.count, leaders, self.size, "slices")
        lowest = len(self.levels) - 1
        while level < min(lowest, self.S):
            pool = [child for d in cur for child in d.children]
            cur = self.minimise(self.sorted(pool), self.count, leaders, self.size, "slices")
            level += 1
        while level < lowest:
            z = self.inner.get(level + 1, 1)
            following: list[RefDomain] = []
            for parent in cur:
                children = self.sorted(parent.children)
                if z > 1:
                    for child in children:
                        child.slices, child.slices_led = child.pods // z, child.pods_led // z
                following += self.minimise(children, parent.pods, parent.leaders, z, "slices" if z > 1 else "pods")
            cur = following
            level += 1
        workers = sorted((d.path, d.pods) for d in cur if d.pods > 0)
        return workers, sorted((d.path, d.leaders) for d in cur if d.leaders > 0)
