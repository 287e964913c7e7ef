"""Rounds of joint placement that the leader remembers, and the part of one workload in its last round.

    GET jointrounds
    GET jointrounds/{number}
    GET jointrounds/latest
    GET namespaces/{namespace}/workloads/{name}/joint

A list has the rounds without their workloads, the newest first.  One round has its workloads by rank; those of
namespaces in which the user may not read Workloads have no name.  `gap` is a text with three decimals: the part of the
bound that the plan does not schedule.  `moves` are points that moves of running workloads would gain at most, and lose,
by flavor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.core.joint.answer import PlanAnswer, PlannedEntry
from kqueue.core.joint.plan import gap_text
from kqueue.errors import NotFoundError
from kqueue.runtime.store import Store
from kqueue.state.joint_history import JointHistory, RoundOfWorkload, RoundRecord
from kqueue.state.statistics import UseSummary
from kqueue.visibility.catalog import OUR_API_VERSION
from kqueue.visibility.params import only
from kqueue.visibility.question import JSON, AuthorizedQuestion

KIND, LIST_KIND, WORKLOAD_KIND = "JointRound", "JointRoundList", "JointPlacement"
LATEST = "latest"
"""The name of the newest round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSource:
    """Joint placement in this process.

    Args:
        history: the rounds; None: the feature gate is off.
        solver: the version of the solver; None: there is none, so plans have no bound.
        is_paused: whether rounds rest after failures.
        leads: whether this process leads; others make no rounds.
        use: what is known of measured use; None: no policy looks at it.
    """

    history: JointHistory | None
    solver: str | None
    is_paused: Callable[[], bool]
    leads: Callable[[], bool]
    use: Callable[[], UseSummary | None] = lambda: None


class JointRoundViews:
    """Answers questions about rounds."""

    def __init__(self, source: JointSource, workloads: Store[wire.Workload]) -> None:
        self._source, self._workloads = source, workloads

    async def rounds(self, asked: AuthorizedQuestion) -> JSON:
        """Return one round, or the list of all that are remembered.

        Raises: NotFoundError: there is no such round. ConfigError: a parameter is unknown.
        """
        only(asked.params)
        history = self._source.history
        records = history.rounds() if history is not None else []
        if not asked.name:
            return self._list(records)
        for record in records:
            if asked.name in (LATEST, str(record.number)):
                return await _whole(record, asked)
        raise NotFoundError(f"no joint round {asked.name} is remembered{self._why_none(bool(records))}", status=404)

    def _why_none(self, has_others: bool) -> str:
        if self._source.history is None:
            return ": the feature gate JointPlacement is off"
        if not self._source.leads():
            return ": this replica does not decide; ask again to reach the one that does"
        return "" if has_others else ": there was none yet"

    def _list(self, records: list[RoundRecord]) -> JSON:
        source = self._source
        found: JSON = {
            "kind": LIST_KIND,
            "metadata": {},
            "enabled": source.history is not None,
            "leading": source.leads(),
            "paused": source.is_paused(),
            "items": [_summary(record) for record in records],
        }
        if source.solver is not None:
            found["solver"] = f"ortools {source.solver}"
        use = source.use()
        if use is not None:
            found["statistics"] = {"nodes": use.nodes, "kinds": use.kinds, "problems": list(use.problems)}
        planning = source.history.planning if source.history is not None else None
        if planning is not None:
            found["planning"] = {
                "number": planning.number,
                "workloads": len(planning.uids),
                "began": utc_text(planning.began, digits=3),
            }
        return found

    async def workload(self, asked: AuthorizedQuestion) -> JSON:
        """Return the part of a Workload in its last round.

        Raises: NotFoundError: there is no such Workload, or no round with it is remembered. ConfigError: a parameter
        is unknown.
        """
        only(asked.params)
        obj = self._workloads.get(f"{asked.namespace}/{asked.name}")
        if obj is None:
            raise NotFoundError(f'workloads.kueue.x-k8s.io "{asked.name}" not found', status=404)
        history = self._source.history
        part = workload_part(history, obj.metadata.uid) if history is not None else None
        if part is None:
            raise NotFoundError(f"no joint round with {asked.name} is remembered{self._why_none(True)}", status=404)
        metadata = {"name": asked.name, "namespace": asked.namespace, "uid": obj.metadata.uid}
        return {"kind": WORKLOAD_KIND, "metadata": metadata, **part}


def workload_part(history: JointHistory, uid: str) -> JSON | None:
    """Return the part of a workload in the round that is being planned and in its last one; None: it is in none."""
    waits, last = history.waits_for(uid), history.of(uid)
    if waits is None and last is None:
        return None
    found: JSON = {}
    if waits is not None and history.planning is not None:
        found["planning"] = {"number": history.planning.number, "workloads": len(history.planning.uids)}
    if last is not None:
        found["last"] = _last(last)
    return found


def _last(last: RoundOfWorkload) -> JSON:
    plan, entry = last.plan, last.entry
    found = {"number": plan.round, "workloads": last.workloads, **_place(entry), "plan": _quality(plan)}
    blocker = last.blocker()
    return {**found, "message": blocker.detail} if blocker is not None else found


def _summary(record: RoundRecord) -> JSON:
    found: JSON = {
        "kind": KIND,
        "apiVersion": OUR_API_VERSION,
        "metadata": {"name": str(record.number)},
        "number": record.number,
        "began": utc_text(record.began, digits=3),
        "ended": utc_text(record.ended, digits=3),
        "result": record.result,
        "workloads": record.workloads,
        "batch": record.batch,
        "milliseconds": {phase: round(seconds * 1000) for phase, seconds in record.seconds.items()},
    }
    if record.problem:
        found["problem"] = record.problem
    if record.gains:
        found["moves"] = [
            {"flavor": gain.flavor, "gain": gain.gain, "cost": gain.cost}
            for gain in sorted(record.gains.values(), key=lambda gain: gain.flavor)
        ]
    return {**found, **_quality(record.plan)} if record.plan is not None else found


def _quality(plan: PlanAnswer) -> JSON:
    found: JSON = {
        "chosen": plan.chosen.value,
        "status": plan.status.value,
        "units": plan.units,
        "greedyUnits": plan.greedy_units,
        "cost": plan.cost,
        "greedyCost": plan.greedy_cost,
    }
    if plan.bound is not None and plan.gap is not None:
        found |= {"bound": plan.bound, "gap": gap_text(plan.gap)}
    return {**found, "staticNodes": plan.static_nodes} if plan.static_nodes else found


async def _whole(record: RoundRecord, asked: AuthorizedQuestion) -> JSON:
    found = _summary(record)
    if record.plan is None:
        return found
    found["flavors"] = [
        {
            "flavor": one.flavor,
            "units": one.units,
            "greedyUnits": one.greedy_units,
            **({"bound": one.bound, "gap": gap_text(one.gap)} if one.bound is not None and one.gap is not None else {}),
        }
        for one in record.plan.flavors
    ]
    entries = sorted(record.plan.entries, key=lambda entry: (entry.rank, entry.key))
    namespaces = {entry.key.partition("/")[0] for entry in entries}
    readable = {namespace for namespace in sorted(namespaces) if await asked.reads(namespace)}
    found["entries"] = [_entry(entry, readable) for entry in entries]
    return found


def _entry(entry: PlannedEntry, readable: set[str]) -> JSON:
    namespace, _, name = entry.key.partition("/")
    if namespace not in readable:
        return {"hidden": True, **_place(entry)}
    return {"namespace": namespace, "name": name, "clusterQueue": entry.queue, **_place(entry)}


def _place(entry: PlannedEntry) -> JSON:
    found: JSON = {
        "rank": entry.rank,
        "planned": entry.is_admitted,
        "units": entry.units,
        "relaxedUnits": entry.relaxed,
    }
    if entry.is_deferred:
        found["deferred"] = True
    return {**found, "provenLeft": True} if entry.is_proven else found
