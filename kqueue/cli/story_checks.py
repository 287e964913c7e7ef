"""Promises that the demo checks on its cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kqueue.api import names
from kqueue.cli.story_view import Object, View, annotation, is_true, pod_state, pods_asked, templates_of
from kqueue.core.quantity import format_quantity, parse_quantity

Labels = Mapping[str, Mapping[str, str]]
"""Labels of each node."""


class Witness:
    """Remembers every look at the cluster, so that the checks cover pods and usage of earlier moments, too."""

    def __init__(self, levels: Sequence[str]) -> None:
        """`levels` are the node labels of the topology, widest first."""
        self._levels = list(levels)
        self._usages: list[Counter[tuple[str, str]]] = []
        """Usage per (ClusterQueue, resource): one entry for each look at which it had changed."""
        self._places: dict[str, dict[str, str]] = {}
        """Job to pod to node, for every pod ever seen on a node."""
        self._spread: dict[str, set[tuple[str, ...]]] = {}
        """Job to sets of nodes: the nodes of its pods at one moment, without terminating pods."""
        self._changed: set[str] = set()
        """Jobs that were seen suspended with templates that differ from the submitted ones."""

    def note(self, view: View, workloads: Iterable[Object], submitted: Mapping[str, Object]) -> None:
        """Record one look; `submitted` are the jobs as the API server accepted them."""
        self._note_usage(workloads)
        for name, pods in view.pods.items():
            bound = [pod for pod in pods if pod["spec"].get("nodeName")]
            self._places.setdefault(name, {}).update({p["metadata"]["name"]: p["spec"]["nodeName"] for p in bound})
            here = [pod for pod in bound if pod_state(pod) != "ended" and not pod["metadata"].get("deletionTimestamp")]
            self._spread.setdefault(name, set()).add(tuple(sorted(pod["spec"]["nodeName"] for pod in here)))
        for name, job in view.jobs.items():
            held = is_true(view.workloads.get(name, {}), names.CONDITION_QUOTA_RESERVED)
            stopped = job["spec"].get("suspend") and not held
            if stopped and name in submitted and templates_of(job) != templates_of(submitted[name]):
                self._changed.add(name)

    def _note_usage(self, workloads: Iterable[Object]) -> None:
        now: Counter[tuple[str, str]] = Counter()
        for workload in workloads:
            admission = workload.get("status", {}).get("admission")
            if not admission or is_true(workload, names.CONDITION_FINISHED):
                continue
            for pod_set in admission["podSetAssignments"]:
                for resource, amount in pod_set.get("resourceUsage", {}).items():
                    now[admission["clusterQueue"], resource] += parse_quantity(amount, resource)
        if not self._usages or self._usages[-1] != now:
            self._usages.append(now)

    def stray_pods(self, view: View, nodes: Labels, *, never: frozenset[str]) -> Iterator[str]:
        """Return gangs outside of one domain, and gangs with missing pods; gangs in `never` are not checked."""
        for name, job in view.jobs.items():
            if name in never:
                continue
            level = annotation(job, names.REQUIRED_TOPOLOGY_ANNOTATION)
            runs = 1 + evictions(view.workloads.get(name, {}))
            if level:
                yield from self._outside(name, level, nodes, at_once=runs > 1)
            asked = pods_asked(job) * runs
            seen = len(self._places.get(name, {}))
            if seen != asked:
                yield f"{name} has {asked} pods, {seen} were seen on nodes"

    def _outside(self, name: str, level: str, nodes: Labels, *, at_once: bool) -> Iterator[str]:
        """Yield the gang if its pods were in several domains of a level.

        `at_once` compares only pods of the same moment: an evicted gang may run in another domain each time.
        """
        upto = self._levels[: self._levels.index(level) + 1]
        looks = self._spread.get(name, set()) if at_once else {tuple(self._places.get(name, {}).values())}
        used = {frozenset(tuple(nodes[node][label] for label in upto) for node in look) for look in looks}
        wrong = [domains for domains in used if len(domains) > 1] or ([] if any(used) else [frozenset()])
        for domains in wrong:
            yield f"{name} must run in one domain of {level} and ran in {sorted(domains)}"

    def not_restored(self) -> Iterator[str]:
        """Return jobs whose stop did not restore their users' fields."""
        for name in sorted(self._changed):
            yield f"{name} was stopped and its templates are not what they were at submission"

    def exceeded(self, queues: Iterable[Object]) -> list[str]:
        """Return cohorts whose queues used, at one moment, more than the sum of their quota."""
        have: Counter[tuple[str, str]] = Counter()
        cohorts: dict[str, str] = {}
        for queue in queues:
            name = queue["metadata"]["name"]
            cohort = cohorts[name] = queue["spec"].get("cohortName") or name
            for group in queue["spec"]["resourceGroups"]:
                for flavor in group["flavors"]:
                    for r in flavor["resources"]:
                        have[cohort, r["name"]] += parse_quantity(r["nominalQuota"], r["name"])
        peak: Counter[tuple[str, str]] = Counter()
        for usage in self._usages:
            used: Counter[tuple[str, str]] = Counter()
            for (queue_name, resource), amount in usage.items():
                used[cohorts.get(queue_name, queue_name), resource] += amount
            peak |= used  # the larger of the two, entry by entry
        return [
            f"cohort {cohort} used {format_quantity(amount, r)} {r} of {format_quantity(have[cohort, r], r)}"
            for (cohort, r), amount in peak.items()
            if amount > have[cohort, r]
        ]


def evictions(workload: Object) -> int:
    """Return how often a Workload was evicted."""
    stats = workload.get("status", {}).get("schedulingStats", {}).get("evictions", [])
    return sum(int(entry.get("count", 0)) for entry in stats)
