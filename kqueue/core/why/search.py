"""The search for changes with which a workload would start.

A cheap check of quota and domains removes candidates; the planner decides the others, and only a change with which it
admits the workload is a result.  Each kind of change is a separate piece of work, the cheapest kinds first.  The work
is bounded: each kind has a limit of candidates, and the caller may stop the search between pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice, product

from kqueue.core.decision import Admit
from kqueue.core.placed_entries import quality_of
from kqueue.core.planned_state import PlannedState, with_spares
from kqueue.core.quota import FlavorResource, Quota, available, plus
from kqueue.core.spares import Spare
from kqueue.core.topology.counting import shortage
from kqueue.core.topology.node import PODS
from kqueue.core.topology.request import TopologyRequest
from kqueue.core.value import value
from kqueue.core.why.blockers import FlavorLook, Look, workers_of
from kqueue.core.why.card_types import other_card_types
from kqueue.core.why.changes import (
    Change,
    FewerPods,
    MoreQuota,
    NodesReturn,
    OtherQueue,
    OtherWish,
    QuotaIncrease,
    WhatIf,
    WorkloadsEnd,
    size,
)
from kqueue.core.why.ending_orders import EndingOrder, prefix, pruned
from kqueue.core.why.holders import column_holders
from kqueue.core.why.places import PLACES, requests_in, roomy_domains, spares_by_domain
from kqueue.core.why.trials import Trials
from kqueue.core.workload import Admitted, Head, PodSet, Snapshot, TopologyView

_SINGLES = 48
"""The number of single workloads, or nodes, that are tested for whether one alone suffices."""
_KEPT = 3
"""The number of results of one kind; readers would not read more."""
_LARGEST_SET = 256
"""The largest set of workloads or nodes that is searched for."""
_QUEUES = 8
_CHOICES = 8
"""The number of choices of flavors for which more quota is tried."""
_NOMINAL, _LIMIT = "nominalQuota", "borrowingLimit"


@value(kw_only=True)
class Alternative:
    """The workload as a head in another LocalQueue (a name) of its namespace."""

    local_queue: str
    head: Head


@value(kw_only=True)
class _Made:
    """A change as values: the head after it, and the differences of the state."""

    head: Head
    ended: tuple[Admitted, ...]
    returned: tuple[Spare, ...]
    quotas: Mapping[str, Mapping[FlavorResource, Quota]] | None


class ChangeSearch:
    """Searches changes that would let one workload start. `found` grows while `steps` runs."""

    def __init__(
        self,
        head: Head,
        world: PlannedState,
        trials: Trials,
        found: Look,
        alternatives: Sequence[Alternative] = (),
        rivals: Mapping[str, Sequence[Head]] | None = None,
    ) -> None:
        """Take the state of the search.

        `found` is the result of `look`; `alternatives` and `rivals` are in queues that `trials` knows. `rivals` are the
        workloads that are tried before the head, by ClusterQueue, in the order of their tries; a ClusterQueue that is
        missing has too many.
        """
        self._head, self._world, self._trials, self._look = head, world, trials, found
        self._alternatives, self._rivals = alternatives[:_QUEUES], rivals or {}
        self._found: list[WhatIf] = []
        self._made: list[_Made] = []
        """The values of each change found, in the same order."""
        self._waiting: list[tuple[str, Callable[[], Iterator[None]]]] = [
            ("nodes that are left out", self._nodes),
            ("another topology request", self._wishes),
            ("another card type", self._card_types),
            ("another queue", self._queues),
            ("fewer pods", self._fewer),
            ("more quota", self._more_quota),
            ("the end of others", self._ends),
            ("the workloads that come first", self._first_takers),
        ]

    @property
    def found(self) -> list[WhatIf]:
        """Return the changes found so far, the cheapest first."""
        return sorted(self._found, key=lambda what_if: what_if.cost)

    @property
    def unfinished(self) -> list[str]:
        """Return the kinds of changes whose search is not complete."""
        return [kind for kind, _ in self._waiting]

    def steps(self) -> Iterator[None]:
        """Search in steps of some milliseconds; no step for a workload that starts without a change."""
        if isinstance(self._look.decision, Admit):
            self._waiting.clear()
        while self._waiting:
            yield from self._waiting[0][1]()
            del self._waiting[0]
            yield

    def _verified(
        self,
        change: Change,
        head: Head | None = None,
        *,
        ended: Collection[Admitted] = (),
        returned: Collection[Spare] = (),
        quotas: Mapping[FlavorResource, Quota] | None = None,
    ) -> bool:
        """Whether the planner admits the workload after the change; if so, add the change to the results."""
        asked = head or self._head
        changed = None if quotas is None else {asked.queue: quotas}
        entry = self._trials.starts(asked, ended=ended, returned=returned, quotas=changed)
        if entry is not None:
            flavors = {p.name: tuple(sorted(set(p.flavors.values()))) for p in entry.assignment.pod_sets}
            quality = tuple(found.levels for found in quality_of(entry))
            self._found.append(WhatIf(change=change, queue=asked.queue, flavors=flavors, quality=quality))
            self._made.append(_Made(head=asked, ended=tuple(ended), returned=tuple(returned), quotas=changed))
        return entry is not None

    def _first_takers(self) -> Iterator[None]:
        """Find for each result whether workloads that are tried first would use the resources that it frees."""
        for number, made in enumerate(self._made):
            rivals = self._rivals.get(made.head.queue)
            if rivals is None:
                continue
            before = yield from self._trials.first_takers(
                made.head, rivals, ended=made.ended, returned=made.returned, quotas=made.quotas
            )
            self._found[number] = replace(self._found[number], before=before)
            yield

    # --- nodes come back ---------------------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[None]:
        spares = self._useful_spares()
        if not spares:
            return
        now = self._trials.scratch
        by_flavor: dict[str, list[Spare]] = {}
        for of_node in spares.values():
            for spare in of_node:
                by_flavor.setdefault(spare.flavor, []).append(spare)
        views = {
            flavor: with_spares(TopologyView(v.name, v.tree, v.capacity.fork()), by_flavor.get(flavor, []), free=False)
            for flavor, v in now.topologies.items()
        }
        wider = replace(now, topologies=views)
        yield
        order = sorted(spares)
        if not self._fits_with(wider, [s for node in order for s in spares[node]]):
            return
        yield
        singles = 0
        for node in order[:_SINGLES]:
            if self._fits_with(wider, spares[node]):
                singles += self._verified(_returning([node], spares), returned=spares[node])
            yield
            if singles >= _KEPT:
                break
        if not singles:
            yield from self._node_sets(wider, spares)

    def _useful_spares(self) -> dict[str, list[Spare]]:
        """Return the spares by node, for nodes of a flavor in which pods have no domain."""
        wanted = {one.flavor for one in self._look.flavors if one.misfit is not None}
        hosts: dict[str, list[Spare]] = {}
        for spare in self._world.spares:
            hosts.setdefault(spare.node, []).append(spare)
        return {node: of_node for node, of_node in hosts.items() if any(s.flavor in wanted for s in of_node)}

    def _fits_with(self, wider: Snapshot, spares: Collection[Spare]) -> bool:
        trials = [view.capacity.trial() for view in wider.topologies.values()]
        for trial in trials:
            trial.__enter__()
        try:
            for spare in spares:
                view = wider.topologies[spare.flavor]
                leaf = view.tree.leaf_of(spare.leaf.path[-1:] if view.tree.is_hostname else spare.leaf.path)
                if leaf is not None:
                    view.capacity.add(leaf, spare.free)
            return self._trials.might_fit(self._head, wider)
        finally:
            for trial in reversed(trials):
                trial.__exit__(None, None, None)

    def _node_sets(self, wider: Snapshot, spares: Mapping[str, list[Spare]]) -> Iterator[None]:
        """Test sets of nodes of one domain each, the smallest sufficient one; if none suffices, sets of all nodes."""
        best: list[str] | None = None

        def fits(nodes: Sequence[str]) -> bool:
            return self._fits_with(wider, [spare for node in nodes for spare in spares[node]])

        for group in spares_by_domain(self._head, wider, spares, self._look.flavors):
            chosen = yield from prefix(group[:_LARGEST_SET], fits)
            if chosen is None:
                continue
            smaller = yield from pruned(chosen, fits)
            if best is None or len(smaller) < len(best):
                best = smaller
        if best is not None:
            self._verified(_returning(best, spares), returned=[s for node in best for s in spares[node]])

    # --- other requests of the workload ------------------------------------------------------------------------------

    def _wishes(self) -> Iterator[None]:
        groups: dict[str, list[str]] = {}
        for index, pod_set in enumerate(self._head.pod_sets):
            level = pod_set.request.topology.required
            if level is not None:
                shared = f"/{level}" if pod_set.request.together else pod_set.request.group  # groups have no slash
                groups.setdefault(shared or str(index), []).append(pod_set.name)
        sets = [tuple(names) for names in groups.values()]
        if len(sets) > 1:
            sets.append(tuple(name for names in sets for name in names))
        for names in sets:
            before = len(self._found)
            for change in self._wishes_of(names):
                head = _with_request(self._head, change)
                if self._trials.might_fit(head) and self._verified(change, head) and change.required:
                    break  # a still wider level would give up more without a gain
                yield
            if len(self._found) > before and len(sets) > 1:
                return

    def _wishes_of(self, names: Sequence[str]) -> Iterator[OtherWish]:
        (level, *_) = [p.request.topology.required for p in self._head.pod_sets if p.name == names[0]]
        assert level is not None
        yield OtherWish(pod_sets=tuple(names), level=level, required=False, instead_of=level)
        wider = dict.fromkeys(
            above for levels in self._levels() if level in levels for above in reversed(levels[: levels.index(level)])
        )
        for above in wider:
            yield OtherWish(pod_sets=tuple(names), level=above, required=True, instead_of=level)

    def _levels(self) -> list[tuple[str, ...]]:
        topologies = self._trials.scratch.topologies
        flavors = {one.flavor for one in self._look.flavors if one.problem is None}
        return [view.tree.levels for name, view in topologies.items() if name in flavors]

    def _card_types(self) -> Iterator[None]:
        found: set[tuple[str, ...]] = set()
        for change, head in other_card_types(self._head, self._trials.scratch):
            if change.pod_sets in found:
                continue
            if self._trials.might_fit(head) and self._verified(change, head):
                found.add(change.pod_sets)
            yield

    # --- another queue -----------------------------------------------------------------------------------------------

    def _queues(self) -> Iterator[None]:
        for other in self._alternatives:
            if self._trials.might_fit(other.head):
                change = OtherQueue(local_queue=other.local_queue, queue=other.head.queue)
                self._verified(change, other.head)
            yield

    # --- fewer pods --------------------------------------------------------------------------------------------------

    def _fewer(self) -> Iterator[None]:
        """Find the largest count of a single pod set with which the workload fits; whole slices if it requests
        slices.
        """
        for pod_set in sorted(self._head.pod_sets, key=lambda p: -p.request.count):
            slices = pod_set.request.topology.slices
            unit = slices[0].size if slices else 1
            of = pod_set.request.count
            if unit <= 0 or of <= unit:
                continue
            low, high, best = 1, (of - 1) // unit, 0
            while low <= high:
                middle = (low + high) // 2
                if self._trials.might_fit(_with_count(self._head, pod_set.name, middle * unit)):
                    best, low = middle, middle + 1
                else:
                    high = middle - 1
                yield
            if best:
                change = FewerPods(pod_set=pod_set.name, count=best * unit, of=of)
                if self._verified(change, _with_count(self._head, pod_set.name, best * unit)):
                    return
                yield

    # --- the queue has more quota ------------------------------------------------------------------------------------

    def _more_quota(self) -> Iterator[None]:
        """Find more quota if only quota is short: a higher borrowing limit if that suffices, else more nominal
        quota.
        """
        for lacking in self._lacking():
            for limits in (True, False):
                found = [self._increase(column, by, limit=limits) for column, by in sorted(lacking.items())]
                if limits and not any(change.field == _LIMIT for change, _ in found):
                    continue
                change = MoreQuota(queue=self._head.queue, increases=tuple(change for change, _ in found))
                quotas = {change.column: quota for change, quota in found}
                enough = self._verified(change, quotas=quotas)
                yield
                if enough:
                    return

    def _lacking(self) -> Iterator[dict[FlavorResource, int]]:
        """Yield the missing quota per column, for some choices of flavors with domains; the smallest amount first."""
        node = self._trials.scratch.nodes.get(self._head.queue)
        if node is None or self._look.uncovered:
            return
        choices: dict[tuple[tuple[str, ...], frozenset[str]], list[FlavorLook]] = {}
        for one in self._look.flavors:
            if one.problem is None and one.misfit is None:
                resources = frozenset(column.column.resource for column in one.columns)
                choices.setdefault((one.pod_sets, resources), []).append(one)
        for some in choices.values():
            some.sort(key=_most_lacking)
        for chosen in islice(product(*choices.values()), _CHOICES):  # there may be millions of choices
            asked: dict[FlavorResource, int] = {}
            for look in chosen:
                for column in look.columns:
                    asked[column.column] = asked.get(column.column, 0) + column.asked
            short = {column: amount - available(node, column) for column, amount in asked.items()}
            if lacking := {column: amount for column, amount in short.items() if amount > 0}:
                yield lacking

    def _increase(self, column: FlavorResource, by: int, *, limit: bool) -> tuple[QuotaIncrease, Quota]:
        """Return an increase of one number, and the quota with it: of the borrowing limit if `limit` is true and a
        limit exists.
        """
        quota = self._trials.scratch.nodes[self._head.queue].quota(column)
        if limit and quota.borrowing_limit is not None:
            to = plus(quota.borrowing_limit, by)
            change = QuotaIncrease(column=column, field=_LIMIT, to=to, instead_of=quota.borrowing_limit)
            return change, replace(quota, borrowing_limit=to)
        to = plus(quota.nominal, by)
        change = QuotaIncrease(column=column, field=_NOMINAL, to=to, instead_of=quota.nominal)
        return change, replace(quota, nominal=to)

    # --- others end --------------------------------------------------------------------------------------------------

    def _ends(self) -> Iterator[None]:
        if not self._can_ever_fit():
            return
        leaving = [workload for workload in self._world.holders if workload.evicted][:_LARGEST_SET]
        if leaving and self._fits_without(leaving):
            smaller = yield from pruned(leaving, self._fits_without)
            self._verified(WorkloadsEnd(workloads=tuple(smaller)), ended=smaller)
            yield
        lines = yield from self._lines()
        singles = yield from self._single_ends(lines)
        if not singles:
            yield from self._sets_of_ends(lines)

    def _can_ever_fit(self) -> bool:
        """Whether any flavor could hold the workload in an empty cluster."""
        by_pod_sets: dict[tuple[str, ...], bool] = {}
        for one in self._look.flavors:
            could = one.problem is None and not one.never and all(c.asked <= c.most for c in one.columns)
            by_pod_sets[one.pod_sets] = by_pod_sets.get(one.pod_sets, False) or could
        return bool(by_pod_sets) and not self._look.uncovered and all(by_pod_sets.values())

    def _fits_without(self, ended: Sequence[Admitted]) -> bool:
        with self._trials.without(ended):
            return self._trials.might_fit(self._head)

    def _lines(self) -> Generator[None, None, list[EndingOrder]]:
        """Return the candidates to end: workloads in each domain that could have room, and workloads with the quota."""
        quota_line = EndingOrder([], [], 1)
        for column, lacking in self._short_columns():
            found = column_holders(self._world, self._head.queue, column)
            enough = sorted((h for h in found if h.amount >= lacking), key=lambda h: (h.amount, h.workload.key))
            rest = sorted((h for h in found if h.amount < lacking), key=lambda h: (-h.amount, h.workload.key))
            quota_line.workloads.extend(h.workload for h in (*enough, *rest))
            quota_line.alone.extend(h.workload for h in enough)
            yield
        lines: list[EndingOrder] = []
        for one in self._look.flavors:
            if one.misfit is not None and not one.never and one.problem is None:
                for standing in self._ending_orders(one):
                    lines.append(standing.with_more(quota_line))
                    yield
        older = self._head.replaces.key if self._head.replaces is not None else None
        return [line.without({self._head.key, older}) for line in (lines or [quota_line])]

    def _short_columns(self) -> list[tuple[FlavorResource, int]]:
        """Return the columns with too little free quota now but enough in total, and a lower bound of the missing
        amount.
        """
        short: dict[FlavorResource, int] = {}
        for one in self._look.flavors:
            for column in one.columns if one.problem is None else ():
                lacking = column.asked - column.free
                if lacking > 0 and column.asked <= column.most:
                    short[column.column] = min(short.get(column.column, lacking), lacking)
        return list(short.items())

    def _ending_orders(self, one: FlavorLook) -> Iterator[EndingOrder]:
        """Yield the workloads of each nearest domain that would have room, the workload with most usage there first.

        A workload frees at most its own usage, so one workload with less usage than is lacking is not enough.
        """
        snapshot = self._trials.scratch
        view, occupancy = snapshot.topologies[one.flavor], self._look.occupancy.get(one.flavor)
        requests = requests_in(self._head, one)
        workers = workers_of(requests)
        for leaves in roomy_domains(self._head, snapshot, view, one, most=PLACES) if occupancy is not None else ():
            assert occupancy is not None
            short = shortage(view.capacity, workers.shape, [(workers.shape, workers.count)], leaves)
            resource, lacking = (short.resource, short.asked - short.free) if short is not None else (PODS, 0)
            holders = sorted(occupancy.holders(leaves, resource), key=lambda h: (-h.amount, h.workload.key))
            sums = accumulate(holder.amount for holder in holders)
            least = next((n for n, freed in enumerate(sums, start=1) if freed >= lacking), len(holders))
            alone = [holder.workload for holder in reversed(holders) if holder.amount >= lacking]
            yield EndingOrder([holder.workload for holder in holders], alone, max(1, least))

    def _single_ends(self, lines: Sequence[EndingOrder]) -> Generator[None, None, int]:
        """Return the number of workloads that are enough alone. Smaller ones are tried first: their end costs least."""
        per_line = max(1, _SINGLES // max(1, len(lines)))
        some = dict.fromkeys(workload for line in lines for workload in line.alone[:per_line])
        enough = 0
        for workload in sorted(some, key=lambda w: (not w.evicted, w.priority, size(w), w.key)):
            if self._fits_without([workload]):
                enough += self._verified(WorkloadsEnd(workloads=(workload,)), ended=[workload])
                if enough >= _KEPT:
                    return enough
            yield
        return enough

    def _sets_of_ends(self, lines: Sequence[EndingOrder]) -> Iterator[None]:
        best: list[Admitted] | None = None
        for line in lines:
            if best is not None and line.least >= len(best):
                continue
            chosen = yield from prefix(line.workloads[:_LARGEST_SET], self._fits_without, least=line.least)
            if chosen is None:
                continue
            chosen = yield from pruned(chosen, self._fits_without)
            if best is None or len(chosen) < len(best):
                best = chosen
        if best is not None and len(best) > 1:
            best.sort(key=lambda w: (-size(w), w.key))
            self._verified(WorkloadsEnd(workloads=tuple(best)), ended=best)
            yield


def _most_lacking(one: FlavorLook) -> float:
    """Return the missing fraction of the request, of the scarcest resource."""
    return max(((c.asked - c.free) / c.asked for c in one.columns if c.asked), default=0.0)


# --- heads with other requests ----------------------------------------------------------------------------------------


def _with_request(head: Head, change: OtherWish) -> Head:
    def changed(pod_set: PodSet) -> PodSet:
        if pod_set.name not in change.pod_sets:
            return pod_set
        slices = pod_set.request.topology.slices
        wish = TopologyRequest(
            required=change.level if change.required else None,
            preferred=None if change.required else change.level,
            slices=slices,
        )
        return replace(pod_set, request=replace(pod_set.request, topology=wish))

    return replace(head, pod_sets=tuple(map(changed, head.pod_sets)))


def _with_count(head: Head, name: str, count: int) -> Head:
    pod_sets = (
        replace(p, request=replace(p.request, count=count), min_count=None) if p.name == name else p
        for p in head.pod_sets
    )
    return replace(head, pod_sets=tuple(pod_sets))


def _returning(nodes: Sequence[str], spares: Mapping[str, list[Spare]]) -> NodesReturn:
    return NodesReturn(nodes=tuple((node, spares[node][0].reason) for node in nodes))
