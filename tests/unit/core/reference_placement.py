"""A second implementation of placement: plain Python with objects and dictionaries, slow, step by step as in the rules.

It shares no code with the engine, so that a mistake would have to be made twice to pass.  Of host replacement, it
covers the repair of one pod set that lost one host.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

COUNT_MAX = 2**31 - 1
Domains = list[tuple[tuple[str, ...], int]]
"""Path or written values, and pods."""


@dataclass
class RefNode:
    """A node: its values of the levels, what it has, and what pods take there that are not placed by topology."""

    name: str
    path: tuple[str, ...]
    allocatable: dict[str, int]
    foreign: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect


@dataclass
class RefLeaf:
    """A host or a wider lowest domain: path, free amounts, and what it says to pods."""

    path: tuple[str, ...]
    free: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    used: dict[str, int] = field(default_factory=dict)  # by workloads placed by topology


def leaves_of(levels: Sequence[str], nodes: Sequence[RefNode], *, merge: bool) -> list[RefLeaf]:
    """What nodes make up: hosts of one name are merged, or the smallest node name wins; wider domains add up."""
    on_hosts = levels[-1] == "kubernetes.io/hostname"
    leaves: dict[tuple[str, ...], RefLeaf] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        key = node.path[-1:] if on_hosts else node.path
        if key in leaves and on_hosts and not merge:
            continue
        leaf = leaves.setdefault(key, RefLeaf(node.path, {}, node.labels, node.taints))
        for resource, amount in node.allocatable.items():
            leaf.free[resource] = leaf.free.get(resource, 0) + amount
        for resource, amount in node.foreign.items():
            leaf.free[resource] = leaf.free.get(resource, 0) - amount
    return list(leaves.values())


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
    terms: tuple[dict[str, tuple[str, ...]], ...] | None = None  # required: one of these, label key -> values, holds
    tolerated: frozenset[str] = frozenset()  # taint keys, any value and effect
    weights: dict[tuple[str, str], int] = field(default_factory=dict)  # preferred: label key and value -> weight
    previous: Domains | None = None  # written values, of the workload slice that is replaced


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
        balanced: bool = False,
        tolerated: frozenset[str] = frozenset(),
        empty: bool = False,
        within: tuple[tuple[str, ...], ...] | None = None,
    ) -> None:
        self.levels = list(levels)
        self.leaves = sorted(leaves, key=lambda leaf: leaf.path)
        self.least_unconstrained, self.least_always, self.with_affinity = least_unconstrained, least_always, affinity
        self.with_balanced = balanced
        self.tolerated, self.empty, self.within = tolerated, empty, within
        self.filtered = self.levels[-1] == "kubernetes.io/hostname"
        self.assumed: dict[tuple[str, ...], dict[str, int]] = {}

    # entry points

    def outcome(self, pod_sets: Sequence[RefRequest]) -> dict[str, Domains] | RefFailure:
        """What `place` gives back or raises."""
        try:
            return self.place(pod_sets)
        except RefFailure as failure:
            return failure

    def place(self, pod_sets: Sequence[RefRequest]) -> dict[str, Domains]:
        """Pod set name -> (path, count) in path order.  Raises RefFailure."""
        groups: dict[object, list[RefRequest]] = {}
        for i, pod_set in enumerate(pod_sets):
            if pod_set.count:
                groups.setdefault(pod_set.group if pod_set.group is not None else i, []).append(pod_set)
        result: dict[str, Domains] = {}
        for members in groups.values():
            try:
                self.place_group(members, result)
            except RefFailure as failure:
                failure.facts["pod_set"], failure.facts["group"] = members[0].name, members[0].group
                failure.facts["placed"] = {p.name: result[p.name] for p in pod_sets if p.name in result}
                raise
        return result

    def place_group(self, members: Sequence[RefRequest], result: dict[str, Domains]) -> None:
        workers = members[0]
        leader = members[1] if len(members) > 1 else None
        if leader is not None:
            wishes = {(member.required, member.preferred) for member in members}
            if len(members) > 2 or 1 not in (workers.count, leader.count) or len(wishes) > 1:
                raise RefFailure("InvalidGroup")
            if leader.count > workers.count:
                workers, leader = leader, workers
        kept = self.elastic(workers, leader)
        if kept is not None:
            result.update(kept)
            return
        worker_domains, leader_domains = self.find(workers, leader)
        result[workers.name] = worker_domains
        self.assume(workers, worker_domains)
        if leader is not None:
            result[leader.name] = leader_domains
            self.assume(leader, leader_domains)

    def elastic(self, workers: RefRequest, leader: RefRequest | None) -> dict[str, Domains] | None:
        """Steps 1 to 4 of elastic jobs; None: place from scratch."""
        if workers.previous is None:
            return None
        previous = self.paths_of(workers.previous)
        leader_previous = None
        if leader is not None and leader.previous is not None:
            leader_previous = self.paths_of(leader.previous)
            if leader_previous is None:
                return None
        if previous is None:
            return None
        count = sum(n for _, n in previous)
        result: dict[str, Domains] = {}
        if workers.count > count:
            self.assume(workers, previous)
            if leader is not None and leader_previous is not None:
                self.assume(leader, leader_previous)
                result[leader.name] = leader_previous
            more = copy.copy(workers)
            more.count = workers.count - count
            new_leader = leader if leader_previous is None else None
            worker_domains, leader_domains = self.find(more, new_leader)
            self.assume(workers, worker_domains)
            if new_leader is not None:
                self.assume(new_leader, leader_domains)
                result[new_leader.name] = leader_domains
            total = dict(previous)
            for path, n in worker_domains:
                total[path] = total.get(path, 0) + n
            result[workers.name] = sorted(total.items())
            return result
        if leader is not None:
            if leader_previous is None:
                return None
            result[leader.name] = leader_previous
            self.assume(leader, leader_previous)
        kept: Domains = []
        left = workers.count
        for path, n in previous:
            if left > 0:
                kept.append((path, min(n, left)))
                left -= n
        result[workers.name] = kept
        self.assume(workers, kept)
        return result

    # replacement

    def repair(self, pod_set: RefRequest, held: Domains, failed: str) -> Domains:
        """All places of the pod set after those on the failed host were replaced.  Raises RefFailure."""
        missing = sum(n for values, n in held if values[-1] == failed)
        kept = self.paths_of([(values, n) for values, n in held if values[-1] != failed])
        if kept is None:
            raise RefFailure("StaleAssignment")
        whole = copy.copy(pod_set)
        whole.count = max(sum(n for _, n in held), *(size for _, size in pod_set.slices[:1]), 1)
        self.resolve(whole)
        broken = [layer for layer in pod_set.slices if missing % layer[1]]
        able = tuple(layer for layer in pod_set.slices if missing % layer[1] == 0)
        slices = pod_set.slices
        if broken:
            self.within = (self.incomplete(kept, missing, *broken[-1]),)
            slices = able[-1:]
        elif kept and pod_set.required is not None:
            self.within = (min(kept)[0][: self.levels.index(pod_set.required) + 1],)
        added = self.find_again(pod_set, missing, slices)
        if len(able) > 1 and not self.whole_groups(pod_set.slices, [*kept, *added]):
            added = self.find_again(pod_set, missing, able)
        if sum(n for _, n in added) != missing:
            raise RefFailure("NoReplacement")
        total = dict(kept)
        for path, n in added:
            total[path] = total.get(path, 0) + n
        return sorted(total.items())

    def incomplete(self, kept: Domains, missing: int, level: str, size: int) -> tuple[str, ...]:
        """The first domain whose rest becomes whole groups with the missing pods."""
        fits = [path for path, n in self.per_domain(kept, level).items() if (n + missing) % size == 0]
        if not fits:
            raise RefFailure("NoReplacement")
        return min(fits)

    def per_domain(self, places: Domains, level: str) -> dict[tuple[str, ...], int]:
        result: dict[tuple[str, ...], int] = {}
        for path, n in places:
            key = path[: self.levels.index(level) + 1]
            result[key] = result.get(key, 0) + n
        return result

    def whole_groups(self, slices: Sequence[tuple[str, int]], places: Domains) -> bool:
        return all(n % size == 0 for level, size in slices for n in self.per_domain(places, level).values())

    def find_again(self, pod_set: RefRequest, missing: int, slices: tuple[tuple[str, int], ...]) -> Domains:
        part = copy.copy(pod_set)
        part.count, part.slices = missing, slices
        if pod_set.slices and not slices and pod_set.required is None and pod_set.preferred is None:
            part.unconstrained = True
        return self.find(part, None)[0]

    # written values

    def paths_of(self, written: Domains) -> Domains | None:
        """Full paths; None when a domain is not there any more."""
        known = {self.written(leaf.path): leaf.path for leaf in self.leaves}
        if any(values not in known for values, _ in written):
            return None
        return [(known[values], n) for values, n in written]

    def written(self, path: tuple[str, ...]) -> tuple[str, ...]:
        return path[-1:] if self.filtered else path

    def assume(self, pod_set: RefRequest, domains: Domains) -> None:
        for path, count in domains:
            entry = self.assumed.setdefault(self.written(path), {})
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
        self.layers = w.slices
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
        self.balanced = self.with_balanced and not self.required and not self.unconstrained

    # counting

    def passes(self, pod_set: RefRequest, leaf: RefLeaf) -> str | None:
        if not self.filtered:
            return None
        for key, value, effect in leaf.taints:
            if effect in ("NoSchedule", "NoExecute") and key not in pod_set.tolerated | self.tolerated:
                return f"taint {key}={value}:{effect}" if value else f"taint {key}:{effect}"
        for key, value in pod_set.selector.items():
            if leaf.labels.get(key) != value:
                return "selector"
        if pod_set.terms is not None and not any(
            term and all(leaf.labels.get(key) in values for key, values in term.items()) for term in pod_set.terms
        ):
            return "affinity"
        return None

    def outside(self, leaf: RefLeaf) -> bool:
        return self.within is not None and all(leaf.path[: len(path)] != path for path in self.within)

    def remaining(self, leaf: RefLeaf) -> dict[str, int]:
        rem = dict(leaf.free)
        for taken in ({} if self.empty else leaf.used, self.assumed.get(self.written(leaf.path), {})):
            for resource, amount in taken.items():
                rem[resource] = rem.get(resource, 0) - amount
        return rem

    @staticmethod
    def with_pod(pod_set: RefRequest) -> dict[str, int]:
        return {**pod_set.requests, "pods": pod_set.requests.get("pods", 0) + 1}

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
        if self.outside(leaf):
            self.excluded["outside"] = self.excluded.get("outside", 0) + 1
            return
        if self.filtered:
            domain.affinity = sum(weight for (k, v), weight in w.weights.items() if leaf.labels.get(k) == v)
        rem = self.remaining(leaf)
        wanted = self.with_pod(w)
        domain.pods, limiting = self.fit(wanted, rem)
        if domain.pods == 0:
            cause = f"resource {limiting}"
            self.excluded[cause] = self.excluded.get(cause, 0) + 1
        if leader is not None:
            lead = self.with_pod(leader)
            if self.fit(lead, rem)[0] > 0 and self.passes(leader, leaf) is None:
                domain.leaders = 1
                for resource, amount in lead.items():
                    rem[resource] = rem.get(resource, 0) - amount
        domain.pods_led = self.fit(wanted, rem)[0]
        if len(self.levels) - 1 == self.S:
            domain.slices, domain.slices_led = domain.pods // self.size, domain.pods_led // self.size

    def roll_up(self, domain: RefDomain, has_leader: bool) -> None:
        self.sum_up(domain, has_leader, self.inner.get(domain.level + 1))

    def sum_up(self, domain: RefDomain, has_leader: bool, z: int | None) -> None:
        cp = [c.pods // z * z if z else c.pods for c in domain.children]
        cpl = [c.pods_led // z * z if z else c.pods_led for c in domain.children]
        domain.pods = sum(cp)
        slice_sum = sum(c.slices for c in domain.children)
        carriers = [i for i, c in enumerate(domain.children) if not has_leader or c.leaders > 0]
        domain.pods_led = slices_led_sum = 0
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

    def no_fit(self, level: int, fit: int, *, best: RefDomain | None = None, leader: bool) -> RefFailure:
        """Of one domain, which came closest, or without `best` of all that were to share the pods."""
        return RefFailure(
            "NoFit",
            level=self.levels[level],
            fit=fit,
            total=self.need,
            unit="pod" if self.size == 1 else "slice",
            layers=self.layer_fits(level) if len(self.layers) > 1 else [],
            spread=best is None,
            leader=leader,
            best_domain=None if best is None else best.path,
            shortage=self.shortage(best, leader=leader),
            leaves=len(self.leaves),
        )

    def shortage(self, best: RefDomain | None, *, leader: bool) -> tuple[str, int, int] | None:
        """The resource that most leaves lack, asked for all, free there."""
        limited = self.leader if leader and self.leader is not None else self.workers
        inside = [leaf for leaf in self.leaves if best is None or leaf.path[: len(best.path)] == best.path]
        passing = [leaf for leaf in inside if not self.outside(leaf) and self.passes(limited, leaf) is None]
        if not passing:
            return None
        limits = [self.fit(self.with_pod(limited), self.remaining(leaf))[1] or "" for leaf in passing]
        resource = max(sorted(set(limits)), key=limits.count)
        asked = self.with_pod(self.workers).get(resource, 0) * self.count
        if self.leader is not None:
            asked += self.with_pod(self.leader).get(resource, 0)
        return resource, asked, sum(max(0, self.remaining(leaf).get(resource, 0)) for leaf in passing)

    def layer_fits(self, level: int) -> list[tuple[str, int, int]]:
        best = max(self.by_level[level], key=lambda d: d.slices)  # the first of equals
        return [
            (key, sum(d.pods // size for d in self.below(best) if self.levels[d.level] == key), self.count // size)
            for key, size in self.layers
        ]

    def no_domain(self, level: int, best: RefDomain, leaders: int) -> RefFailure:
        return self.no_fit(level, best.slices, best=best, leader=best.slices >= self.need or best.leaders < leaders)

    def near(self, level: int, domains: list[RefDomain]) -> list[RefDomain]:
        """Those with a leaf that may be used."""
        if self.within is None:
            return domains
        inside = [leaf.path for leaf in self.leaves if not self.outside(leaf)]
        found = [d for d in domains if any(path[: len(d.path)] == d.path for path in inside)]
        if not found:
            raise RefFailure("NoFit", level=self.levels[level], fit=0, best_domain=None, shortage=None)
        return found

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
                best = max(self.near(level, self.by_level[level]), key=lambda d: d.slices)
                raise self.no_domain(level, best, leaders)
        if top.slices_led >= need and top.leaders >= leaders:
            return level, [top]
        if self.required:
            if self.with_affinity:
                for i in range(1, len(order)):
                    if order[i].slices_led >= need and order[i].leaders >= leaders:
                        return level, [self.best_fit_of(order[i:], need, leaders, "slices")]
            top = self.near(level, order)[0]
            if not leaders and not self.with_affinity:  # only the choice among equals differs
                top = max(self.near(level, self.by_level[level]), key=lambda d: d.slices)
            raise self.no_domain(level, top, leaders)
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
            raise self.no_fit(level, leaders - leaders_left, leader=True)
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
            raise self.no_fit(level, self.need - left, leader=False)
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

    def find(self, w: RefRequest, leader: RefRequest | None) -> tuple[Domains, Domains]:
        self.resolve(w)
        self.workers, self.leader = w, leader
        self.build(w, leader)
        leaders = 1 if leader is not None else 0
        lowest = len(self.levels) - 1
        if self.balanced:
            try:
                level, cur = self.balance(leaders)
                cur = self.minimise(cur, self.count, leaders, self.size, "slices")
                return self.result(self.loop_b(cur, level))
            except RefFailure:
                pass  # all of this was done on copies
        try:
            level, cur = self.find_level(self.R, leaders)
        except RefFailure as failure:
            failure.facts.setdefault("excluded", self.excluded)
            raise
        cur = self.minimise(cur, self.count, leaders, self.size, "slices")
        while level < min(lowest, self.S):
            pool = [child for d in cur for child in d.children]
            cur = self.minimise(self.sorted(pool), self.count, leaders, self.size, "slices")
            level += 1
        return self.result(self.loop_b(cur, level))

    def loop_b(self, cur: list[RefDomain], level: int) -> list[RefDomain]:
        while level < len(self.levels) - 1:
            z = self.size if level < self.S else self.inner.get(level + 1, 1)
            following: list[RefDomain] = []
            for parent in cur:
                children = self.sorted(parent.children)
                if z > 1:
                    for child in children:
                        child.slices, child.slices_led = child.pods // z, child.pods_led // z
                following += self.minimise(children, parent.pods, parent.leaders, z, "slices" if z > 1 else "pods")
            cur = following
            level += 1
        return cur

    @staticmethod
    def result(cur: list[RefDomain]) -> tuple[Domains, Domains]:
        workers = sorted((d.path, d.pods) for d in cur if d.pods > 0)
        return workers, sorted((d.path, d.leaders) for d in cur if d.leaders > 0)

    # balanced placement

    def greedy(self, domains: list[RefDomain], leaders: int) -> tuple[int, RefDomain | None, RefDomain | None] | None:
        """Domains used, the last with a leader, the last without; None: does not fit."""
        used, left, leaders_left = 0, self.need, leaders
        last_leader = last_plain = None
        rest = self.sorted(domains)
        if leaders > 0:
            order = self.sorted_led(domains)
            while leaders_left > 0 and order and order[0].leaders > 0:
                last_leader = order.pop(0)
                used += 1
                leaders_left -= last_leader.leaders
                left -= last_leader.slices_led
            rest = self.sorted(order)
        if leaders_left > 0:
            return None
        for d in rest:
            if left <= 0 or d.slices <= 0:
                break
            used += 1
            last_plain = d
            left -= d.slices
        return None if left > 0 else (used, last_leader, last_plain)

    def below(self, x: RefDomain) -> Iterator[RefDomain]:
        yield x
        for child in x.children:
            yield from self.below(child)

    def prune_one(self, x: RefDomain, t: int, leaders: int) -> None:
        if x.slices < t:
            for y in self.below(x):
                y.pods = y.slices = y.pods_led = y.slices_led = y.leaders = 0
        elif leaders > 0 and x.leaders > 0 and x.slices_led < t:
            for y in self.below(x):
                y.pods_led = y.slices_led = y.leaders = 0

    def roll_up_again(self, x: RefDomain, leaders: int) -> None:
        for child in x.children:
            self.roll_up_again(child, leaders)
        if x.children:
            self.sum_up(x, leaders > 0, None)

    def prune(self, cs: list[RefDomain], t: int, leaders: int) -> None:
        for d in cs:
            for child in d.children:
                self.prune_one(child, t, leaders)
        for d in cs:
            self.roll_up_again(d, leaders)
            self.prune_one(d, t, leaders)

    def balance(self, leaders: int) -> tuple[int, list[RefDomain]]:
        """The level to go on from, its domains and what each of them gets."""
        sets = [self.by_level[0]] if self.R == 0 else [parent.children for parent in self.by_level[self.R - 1]]
        best = best_used = 0
        best_set: list[RefDomain] = []
        for candidates in sets:
            cs = copy.deepcopy(candidates)
            low = [child for d in cs for child in d.children] if self.R < self.S else cs
            first = self.greedy(low, leaders)
            if first is None:
                continue
            used, last_leader, last_plain = first
            t = self.need // used
            if last_leader is not None:
                t = min(t, last_leader.slices_led)
            if last_plain is not None:
                t = min(t, last_plain.slices)
            t_lead = min(t, last_plain.slices_led) if leaders and last_plain is not None else t
            if t < best:
                continue
            self.prune(cs, t, leaders)
            second = self.greedy(cs, leaders)
            if second is None and t_lead < t:
                if t_lead <= 0 or t_lead < best:
                    continue
                cs, t = copy.deepcopy(candidates), t_lead
                self.prune(cs, t, leaders)
                second = self.greedy(cs, leaders)
            if second is None:
                continue
            if t > best or (t == best and second[0] < best_used):
                best, best_used, best_set = t, second[0], cs
        if best == 0:
            raise RefFailure("NotBalanced")
        level, domains = self.R, best_set
        if self.R < self.S:
            order = sorted(best_set, key=lambda d: (-d.leaders, -d.slices_led, -self.entropy(d.children), d.path))
            domains = [child for d in self.optimal_set(order, leaders) for child in d.children]
            level += 1
        picked = self.optimal_set(sorted(domains, key=lambda d: d.path), leaders)
        extra, leaders_left = self.need - len(picked) * best, leaders
        if extra < 0:
            raise RefFailure("NotBalanced")
        picked = self.sorted_led(picked)
        for d in picked:
            e = d_leaders = 0
            if leaders_left > 0:
                e, d_leaders = min(d.slices_led - best, extra), 1
                leaders_left -= 1
            elif extra > 0:
                e = min(d.slices - best, extra)
            d.leaders = d_leaders
            d.slices = d.slices_led = best + e
            d.pods = d.slices * self.size
            d.pods_led = d.pods - d_leaders
            extra -= e
        if extra > 0 or leaders_left > 0:
            raise RefFailure("NotBalanced")
        return level, picked

    @staticmethod
    def entropy(domains: list[RefDomain]) -> float:
        total = sum(d.pods for d in domains)
        result = 0.0
        for n in sorted(d.pods for d in domains if d.pods > 0):
            result += -(n / total) * math.log2(n / total)
        return result

    def optimal_set(self, order: list[RefDomain], leaders: int) -> list[RefDomain]:
        fill = self.greedy(order, leaders)
        if fill is None:
            raise RefFailure("NotBalanced")
        n = fill[0]
        table: list[dict[tuple[int, int], list[RefDomain]]] = [{} for _ in range(n + 1)]
        table[0][leaders, self.need * self.size] = []
        for d in order:
            for i in range(n, 0, -1):
                for leaders_left, left in sorted(table[i - 1]):
                    if leaders_left <= 0 and left <= 0:
                        continue
                    chosen = table[i - 1][leaders_left, left]
                    if leaders_left > 0 and d.leaders > 0:
                        table[i].setdefault((leaders_left - d.leaders, left - d.pods_led), [*chosen, d])
                    if d.slices > 0:
                        table[i].setdefault((leaders_left, left - d.pods), [*chosen, d])
        answers = {left: chosen for (leaders_left, left), chosen in table[n].items() if leaders_left == 0 and left <= 0}
        if not answers:
            raise RefFailure("NotBalanced")
        return answers[max(answers)]


def place_flavors(
    engines: Mapping[str, RefEngine], wanted: Mapping[str, Sequence[RefRequest]]
) -> dict[str, dict[str, Domains] | RefFailure]:
    """Every flavor's answer, by name; hosts are shared, so what one took there the next one sees."""
    on_hosts: dict[tuple[str, ...], dict[str, int]] = {}
    results = {}
    for flavor in sorted(wanted):
        if engines[flavor].filtered:
            engines[flavor].assumed = on_hosts
        results[flavor] = engines[flavor].outcome(wanted[flavor])
    return results
