"""The configured quota: ClusterQueues, Cohorts, flavors, topologies and checks, and the quota trees that they form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.lost_work import RunLimits
from kqueue.core.quota import QuotaNode, Usage
from kqueue.core.topology import Profile
from kqueue.core.workload import Flavor, QueueSpec
from kqueue.state import quota_trees
from kqueue.state.audit import chunks
from kqueue.state.checks import delayed_flavors
from kqueue.state.held import HoldingShare
from kqueue.state.ledger import NodeLedger
from kqueue.state.proposed import ProposedObjects, trees_with
from kqueue.state.queue_problems import Inactive, problems
from kqueue.state.quota_trees import ConfiguredQueue

_log = structlog.get_logger(__name__)


class QuotaCache:
    """The quota configuration from watch events, and the usage charged to it."""

    def __init__(
        self,
        ledger: NodeLedger,
        shares: Callable[[], Iterator[HoldingShare]],
        *,
        profile: Profile,
        ignores_undeclared: bool,
        fungible: bool,
        plugin_profiles: tuple[str, ...],
    ) -> None:
        """Take the ledger and the options.

        `profile` serves ClusterQueues that do not choose one; `plugin_profiles` are all profiles of the configuration;
        the others are as in `QueueSpec`.
        """
        self._ledger, self._shares = ledger, shares
        self._profile, self._ignores_undeclared, self._fungible = profile, ignores_undeclared, fungible
        self._plugin_profiles = plugin_profiles
        self.generation = 0
        """The number of changes that may change the outcome of a try."""
        self._room_generations = Counter[str]()
        self._freed = Counter[str]()
        """The number of releases of quota since the trees were built, by root of a quota tree."""
        self._rebuilt = 0
        """The number of times that the quota trees were built."""
        self.queues: dict[str, ConfiguredQueue] = {}
        self._deleted_queues: set[str] = set()
        """Names of ClusterQueues that existed and are gone."""
        self._cohorts: dict[str, wire.Cohort] = {}
        self.flavors: dict[str, Flavor] = {}
        self.with_topology: frozenset[str] = frozenset()
        """Flavors that have a topology."""
        self._topologies: dict[str, tuple[str, ...]] = {}
        self._checks: dict[str, wire.AdmissionCheck] = {}
        self.trees = quota_trees.Trees()
        self._inactive: dict[str, Inactive | None] = {}
        self._topology_only: dict[str, bool] = {}
        self._run_limits: RunLimits | None = None
        """The limits on preemptions; None: the configuration changed since they were collected."""

    # --- events ------------------------------------------------------------------------------------------------

    def _reconfigured(self) -> None:
        self.generation += 1
        self._inactive.clear()
        self._topology_only.clear()
        self._run_limits = None

    def on_cluster_queue(self, name: str, obj: wire.ClusterQueue | None) -> None:
        """Follow a ClusterQueue that appeared, changed or (None) is gone. The usage of its workloads is kept."""
        old = self.queues.get(name)
        if old is not None and obj is not None and _is_as_before(old.wire, obj):
            old.wire = obj
            return
        self._reconfigured()
        if obj is None:
            if self.queues.pop(name, None) is not None:
                self._deleted_queues.add(name)
            self._rebuild(lambda: self.tree_of(name))
            return
        self._deleted_queues.discard(name)
        if old is not None and model.same_queue(old.wire, obj):
            old.wire = obj
            return
        queue = self.queues[name] = self._configured(name, obj)
        same = old is not None and old.gives_out_the_same_as(queue)
        self._rebuild(lambda: () if same else self.tree_of(name))

    def _configured(self, name: str, obj: wire.ClusterQueue) -> ConfiguredQueue:
        """Return a ClusterQueue that is in no tree yet."""
        spec, quotas, problem = model.queue_spec(
            obj, self._profile, ignores_undeclared=self._ignores_undeclared, fungible=self._fungible
        )
        spec = replace(spec, delayed=delayed_flavors(obj.spec, self._checks))
        return ConfiguredQueue(obj, spec, quotas, QuotaNode(name), problem)

    def on_cohort(self, name: str, obj: wire.Cohort | None) -> None:
        """Follow a Cohort object that appeared, changed or (None) is gone; a cohort without object has no quota of its
        own.

        Parts that are not valid are ignored.
        """
        self._reconfigured()
        if obj is None:
            self._cohorts.pop(name, None)
        else:
            self._cohorts[name] = obj
            problem = model.cohort_problem(obj)
            if problem:
                _log.warning("a part of a Cohort cannot be parsed and is ignored", name=name, error=problem)
        self._rebuild(lambda: self.queues_in_cohort(name))

    def on_topology(self, name: str, obj: wire.Topology | None) -> None:
        """Follow a Topology that appeared, changed or (None) is gone. The ledger recounts the usage of its flavors."""
        self._reconfigured()
        self._set_levels(name, None if obj is None else tuple(level.node_label for level in obj.spec.levels))

    def _set_levels(self, topology: str, levels: tuple[str, ...] | None) -> None:
        if levels is None:
            self._topologies.pop(topology, None)
        else:
            self._topologies[topology] = levels
        self._ledger.on_topology(topology, levels)

    def on_check(self, name: str, obj: wire.AdmissionCheck | None) -> None:
        """Follow an AdmissionCheck that appeared, changed or (None) is gone."""
        self._reconfigured()
        if obj is None:
            self._checks.pop(name, None)
        else:
            self._checks[name] = obj
        for queue in self.queues.values():
            delayed = delayed_flavors(queue.wire.spec, self._checks)
            if delayed != queue.spec.delayed:
                queue.spec = replace(queue.spec, delayed=delayed)

    def on_flavor(self, name: str, obj: wire.ResourceFlavor | None) -> bool:
        """Follow a ResourceFlavor that appeared, changed or (None) is gone; return whether its topology changed."""
        self._reconfigured()
        inline = obj.spec.topology if obj is not None and obj.spec.topology_name is None else None
        levels = tuple(level.node_label for level in inline.levels) if inline is not None else None
        self._set_levels(model.inline_topology(name), levels)
        before = self.with_topology
        if obj is None:
            self.flavors.pop(name, None)
            self.with_topology -= {name}
            self._ledger.on_flavor(name, None)
        else:
            flavor = self.flavors[name] = model.flavor(obj)
            self.with_topology = self.with_topology - {name} | ({name} if flavor.topology is not None else set())
            self._ledger.on_flavor(name, flavor if flavor.topology is not None else None)
        return self.with_topology != before

    def _rebuild(self, tree: Callable[[], Iterable[str]]) -> None:
        """Rebuild the quota trees from configuration and holdings; `tree` returns the queues of the changed tree."""
        before = list(tree())
        self.trees = quota_trees.build(self.queues, self._cohorts, self._shares())
        self._room_generations.update({*before, *tree()})
        self._rebuilt += 1
        self._freed.clear()

    # --- usage ------------------------------------------------------------------------------------------------

    def charge(self, queue: str, usage: Usage, *, sign: int) -> None:
        """Charge quota of a ClusterQueue (`sign` 1), or release it (-1)."""
        node = self.trees.queues.get(queue)
        if node is None:
            return  # the ClusterQueue is gone; if it comes back, the rebuild counts the holding
        change = quota.add_usage if sign > 0 else quota.remove_usage
        for column, amount in usage.items():
            change(node, column, amount)

    def count_freed(self, queue: str) -> None:
        """Count a release of quota in a ClusterQueue."""
        self.generation += 1
        self._room_generations[queue] += 1
        self._freed[self._root_of(queue)] += 1

    def has_room(self, queue: str, usage: Usage) -> bool:
        """Whether a ClusterQueue may admit and has this much free quota."""
        node = self.trees.queues.get(queue)
        if node is None or self.inactive(queue) is not None:
            return False
        return not any(v > max(0, quota.available(node, column)) for column, v in usage.items())

    # --- proposals ---------------------------------------------------------------------------------------------

    def proposed(
        self, objects: ProposedObjects, usage: Callable[[str], Usage]
    ) -> Generator[None, None, tuple[QuotaCache, frozenset[str]]]:
        """Return, in steps, the configuration with these objects, and the ClusterQueues of trees that were built.

        The result follows no events and shares all other trees with this configuration.  `usage` returns what a
        ClusterQueue uses, once for each in a built tree.
        """
        made = QuotaCache(
            NodeLedger(),
            lambda: iter(()),
            profile=self._profile,
            ignores_undeclared=self._ignores_undeclared,
            fungible=self._fungible,
            plugin_profiles=self._plugin_profiles,
        )
        made._checks, made._topologies = self._checks, dict(self._topologies)
        made.flavors, made.with_topology = dict(self.flavors), self.with_topology
        for name, flavor in objects.flavors.items():
            made.on_flavor(name, flavor)
        made.queues = {**self.queues, **{n: made._configured(n, q) for n, q in objects.cluster_queues.items()}}
        made._cohorts = {**self._cohorts, **objects.cohorts}
        yield
        roots = trees_with(self.trees.queues, iter(objects.cluster_queues))
        roots += trees_with(self.trees.cohorts, objects.cohort_names())
        if self.trees.in_cycle and roots:  # trees with cycles are in parts, which may belong together now
            roots = [*self.trees.queues.values(), *self.trees.cohorts.values()]
        queues, cohorts = dict.fromkeys(objects.cluster_queues), dict.fromkeys(objects.cohorts)
        for node in (node for root in roots for node in root.walk()):
            (cohorts if node.is_cohort else queues)[node.name] = None
        yield
        own: dict[str, ConfiguredQueue] = {}
        for some in chunks(queues):
            own |= {name: replace(made.queues[name]) for name in some}
            yield
        built = yield from quota_trees.build_steps(
            own,
            {name: made._cohorts[name] for name in cohorts if name in made._cohorts},
            (HoldingShare(name, "", admitted=True, usage=used) for name in queues if (used := usage(name))),
        )
        made.trees = quota_trees.Trees(
            queues={**self.trees.queues, **built.queues},
            cohorts={**self.trees.cohorts, **built.cohorts},
            in_cycle=(self.trees.in_cycle - queues.keys()) | built.in_cycle,
        )
        return made, frozenset(queues)

    # --- questions ---------------------------------------------------------------------------------------------

    def inactive(self, name: str) -> Inactive | None:
        """Return why the ClusterQueue may not admit; None: it may, or does not exist.

        The reason is that of the first problem, in the order of the compatible system; the message names all problems.
        """
        queue = self.queues.get(name)
        if queue is None:
            return None
        if name not in self._inactive:
            found = list(self._problems(name, queue))
            why = Inactive(found[0].reason, "; ".join(p.message for p in found)) if found else None
            self._inactive[name] = why
        return self._inactive[name]

    def _problems(self, name: str, queue: ConfiguredQueue) -> Iterator[Inactive]:
        yield from problems(
            queue.wire, queue.spec, flavors=self.flavors, topologies=self._topologies, checks=self._checks
        )
        if queue.problem:
            yield Inactive(names.REASON_UNKNOWN, queue.problem)
        chosen = queue.spec.plugin_profile
        if chosen not in self._plugin_profiles:
            known = ", ".join(self._plugin_profiles)
            sentence = f"annotation {names.PROFILE_ANNOTATION} is {chosen!r}; the configuration has {known}"
            yield Inactive(names.REASON_MISCONFIGURED, sentence)
        if name in self.trees.in_cycle:
            yield Inactive(names.REASON_UNKNOWN, "its cohort tree has a cycle; correct a Cohort's spec.parentName")

    def room_generation(self, name: str) -> int:
        """Return a number that rises when a workload of the ClusterQueue ends or changes its usage, and when quota of
        its tree or the order of its flavors changes; not when a workload gets quota.
        """
        return self._room_generations[name]

    def freed_generation(self, name: str) -> tuple[int, int]:
        """Return a value that differs after quota in the tree of a ClusterQueue was released or changed;
        reserving quota does not change it.
        """
        return self._rebuilt, self._freed[self._root_of(name)]

    def _root_of(self, queue: str) -> str:
        node = self.trees.queues.get(queue)
        return [*node.path_to_root()][-1].name if node is not None else queue

    def queue_names(self) -> list[str]:
        """Return all known ClusterQueues."""
        return list(self.queues)

    def queue_spec(self, name: str) -> QueueSpec | None:
        """Return a ClusterQueue in the form of planning; None: it is unknown."""
        queue = self.queues.get(name)
        return queue.spec if queue is not None else None

    def plugin_profile(self, name: str) -> str:
        """Return the profile that a ClusterQueue chooses; empty: the ClusterQueue is unknown."""
        spec = self.queue_spec(name)
        return spec.plugin_profile if spec is not None else ""

    def run_limits(self) -> RunLimits:
        """Return what ClusterQueues say about the preemption of their workloads."""
        if self._run_limits is None:
            self._run_limits = RunLimits.of(queue.spec for queue in self.queues.values())
        return self._run_limits

    def queue_object(self, name: str) -> wire.ClusterQueue | None:
        """Return the ClusterQueue as last seen; None: it is unknown."""
        queue = self.queues.get(name)
        return queue.wire if queue is not None else None

    def is_topology_only(self, name: str) -> bool:
        """Whether all flavors of the ClusterQueue have a topology, so that pods without a topology request are placed,
        too.
        """
        known = self._topology_only.get(name)
        if known is None:
            queue = self.queues.get(name)
            groups = queue.spec.groups if queue is not None else ()
            flavors = [self.flavors.get(f) for group in groups for f in group.flavors]
            known = queue is not None and all(f is not None and f.topology is not None for f in flavors)
            self._topology_only[name] = known
        return known

    def is_unknown(self, queue: str) -> bool:
        """Whether no ClusterQueue of that name was ever seen."""
        return queue not in self.queues and queue not in self._deleted_queues

    def tree_of(self, name: str) -> list[str]:
        """Return the ClusterQueues that share a root cohort with this one, itself included; empty if it is unknown."""
        node = self.trees.queues.get(name)
        return [n.name for n in node.root.walk() if not n.is_cohort] if node is not None else []

    def queues_in_cohort(self, cohort: str) -> list[str]:
        """Return the ClusterQueues of the tree that contains the cohort."""
        node = self.trees.cohorts.get(cohort)
        return [n.name for n in node.root.walk() if not n.is_cohort] if node is not None else []

    def queues_of_flavor(self, flavor: str) -> list[str]:
        """Return the ClusterQueues that list a flavor."""
        return [n for n, q in self.queues.items() if any(flavor in g.flavors for g in q.spec.groups)]

    def queues_beside(self, flavor: str) -> set[str]:
        """Return the ClusterQueues that list a flavor, or another flavor with the same hosts."""
        return {queue for name in self._ledger.flavors_beside(flavor) for queue in self.queues_of_flavor(name)}

    def resources_of(self, flavor: str) -> set[str]:
        """Return the resources for which any ClusterQueue has quota in a flavor."""
        nodes = self.trees.queues.values()
        return {column.resource for node in nodes for column in node.quotas if column.flavor == flavor}

    def is_check_used(self, check: str) -> bool:
        """Whether a ClusterQueue names the AdmissionCheck."""
        strategies = (q.wire.spec.admission_checks_strategy for q in self.queues.values())
        return any(rule.name == check for s in strategies if s is not None for rule in s.admission_checks)

    def topologies(self) -> Mapping[str, tuple[str, ...]]:
        """Return the levels of every Topology by name, with topologies that flavors define inline. Callers must not
        change it.
        """
        return self._topologies

    def flavor(self, name: str) -> Flavor | None:
        """Return a ResourceFlavor in the form in which flavors are chosen; None: it is unknown."""
        return self.flavors.get(name)

    def flavors_of_topology(self, topology: str) -> list[str]:
        """Return the flavors that name a Topology."""
        return [f.name for f in self.flavors.values() if f.topology == topology]

    def node_of(self, name: str) -> QuotaNode | None:
        """Return the ClusterQueue's live quota node. Callers must not change it."""
        return self.trees.queues.get(name)

    def cohort_object(self, name: str) -> wire.Cohort | None:
        """Return a Cohort; None: the cohort has no object."""
        return self._cohorts.get(name)

    def cohort_node(self, name: str) -> QuotaNode | None:
        """Return the live quota node of a cohort; None: the cohort has neither an object nor a member. Callers must not
        change it.
        """
        return self.trees.cohorts.get(name)

    def has_members(self, cohort: str) -> bool:
        """Whether a ClusterQueue or a Cohort names the cohort as its parent."""
        node = self.trees.cohorts.get(cohort)
        return node is not None and bool(node.children)

    def cohort_names(self) -> list[str]:
        """Return all cohorts, also cohorts without an object."""
        return list(self.trees.cohorts)

    def path_of(self, queue: str) -> str:
        """Return the path of a ClusterQueue as text for messages: /root cohort/.../ClusterQueue."""
        node = self.trees.queues.get(queue)
        above = [n.name for n in node.path_to_root()] if node is not None else [queue]
        return "/" + "/".join(reversed(above))


def _is_as_before(one: wire.ClusterQueue, other: wire.ClusterQueue) -> bool:
    """Whether only the status differs: no try ends otherwise."""
    return model.same_queue(one, other) and one.metadata.deletion_timestamp == other.metadata.deletion_timestamp
