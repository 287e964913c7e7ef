"""The configured quota: ClusterQueues, Cohorts, flavors, topologies and checks, and the quota trees that they form."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
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
from kqueue.state.checks import delayed_flavors
from kqueue.state.ledger import NodeLedger
from kqueue.state.live_trees import LiveTrees
from kqueue.state.proposed import ProposedObjects, trees_with
from kqueue.state.queue_problems import Inactive, problems
from kqueue.state.quota_trees import ConfiguredQueue, Trees, UsageOf, build_steps

_log = structlog.get_logger(__name__)


class QuotaCache:
    """The quota configuration from watch events, and the usage charged to it."""

    def __init__(
        self,
        ledger: NodeLedger,
        usage: UsageOf,
        *,
        profile: Profile,
        ignores_undeclared: bool,
        fungible: bool,
        plugin_profiles: tuple[str, ...],
    ) -> None:
        """Take the ledger and the options.

        `usage` returns the sum of all charges to a ClusterQueue, also to one that does not exist; `profile` serves
        ClusterQueues that do not choose one; `plugin_profiles` are all profiles of the configuration; the others are as
        in `QueueSpec`.
        """
        self._ledger = ledger
        self._profile, self._ignores_undeclared, self._fungible = profile, ignores_undeclared, fungible
        self._plugin_profiles = plugin_profiles
        self.generation = 0
        """The number of changes that may change the outcome of a try."""
        self.queues: dict[str, ConfiguredQueue] = {}
        self._deleted_queues: set[str] = set()
        """Names of ClusterQueues that existed and are gone."""
        self._cohorts: dict[str, wire.Cohort] = {}
        self.flavors: dict[str, Flavor] = {}
        self.with_topology: frozenset[str] = frozenset()
        """Flavors that have a topology."""
        self._topologies: dict[str, tuple[str, ...]] = {}
        self._checks: dict[str, wire.AdmissionCheck] = {}
        self._trees = LiveTrees(self.queues, self._cohorts, usage)
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
            self._trees.on_queue(name)
            return
        self._deleted_queues.discard(name)
        if old is not None and model.same_queue(old.wire, obj):
            old.wire = obj
            return
        queue = self.queues[name] = self._configured(name, obj)
        self._trees.on_queue(name, same=old is not None and old.gives_out_the_same_as(queue))

    def _configured(self, name: str, obj: wire.ClusterQueue) -> ConfiguredQueue:
        """Return a ClusterQueue that is in no tree yet."""
        spec, quotas, problem = model.queue_spec(
            obj, self._profile, ignores_undeclared=self._ignores_undeclared, fungible=self._fungible
        )
        spec = replace(spec, delayed=delayed_flavors(obj.spec, self._checks))
        return ConfiguredQueue(obj, spec, quotas, problem)

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
        self._trees.on_cohort(name)

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

    @property
    def trees(self) -> Trees:
        """The quota trees.  Changes of the configuration are applied when a tree is read."""
        return self._trees.now()

    # --- usage ------------------------------------------------------------------------------------------------

    def charge(self, queue: str, usage: Usage, *, sign: int) -> None:
        """Charge quota of a ClusterQueue (`sign` 1), or release it (-1)."""
        node = self._trees.as_charged.queues.get(queue)
        if node is None:
            return  # the ClusterQueue is gone, or new; its node begins with the sum of its holdings
        change = quota.add_usage if sign > 0 else quota.remove_usage
        for column, amount in usage.items():
            change(node, column, amount)

    def count_freed(self, queue: str) -> None:
        """Count a release of quota in a ClusterQueue."""
        self.generation += 1
        self._trees.on_release(queue)

    def has_room(self, queue: str, usage: Usage) -> bool:
        """Whether a ClusterQueue may admit and has this much free quota."""
        node = self.trees.queues.get(queue)
        if node is None or self.inactive(queue) is not None:
            return False
        return not any(v > max(0, quota.available(node, column)) for column, v in usage.items())

    # --- proposals ---------------------------------------------------------------------------------------------

    def proposed(
        self, objects: ProposedObjects, usage: UsageOf
    ) -> Generator[None, None, tuple[QuotaCache, frozenset[str]]]:
        """Return, in steps, the configuration with these objects, and the ClusterQueues of trees that were built.

        The result follows no events and shares all other trees with this configuration.  `usage` is called once for
        each ClusterQueue in a built tree.
        """
        made = QuotaCache(
            NodeLedger(),
            usage,
            profile=self._profile,
            ignores_undeclared=self._ignores_undeclared,
            fungible=self._fungible,
            plugin_profiles=self._plugin_profiles,
        )
        made._checks, made._topologies = self._checks, dict(self._topologies)
        made.flavors, made.with_topology = dict(self.flavors), self.with_topology
        for name, flavor in objects.flavors.items():
            made.on_flavor(name, flavor)
        made.queues.update({**self.queues, **{n: made._configured(n, q) for n, q in objects.cluster_queues.items()}})
        made._cohorts.update({**self._cohorts, **objects.cohorts})
        now = self.trees
        roots = trees_with(now.queues, iter(objects.cluster_queues))
        roots += trees_with(now.cohorts, objects.cohort_names())
        if now.cyclic and roots:  # trees with cycles are in parts, which may belong together now
            roots = [*now.queues.values(), *now.cohorts.values()]
        queues, cohorts = dict.fromkeys(objects.cluster_queues), dict.fromkeys(objects.cohorts)
        for node in (node for root in roots for node in root.walk()):
            (cohorts if node.is_cohort else queues)[node.name] = None
        yield
        built = yield from build_steps(
            {name: made.queues[name] for name in queues},
            {name: made._cohorts[name] for name in cohorts if name in made._cohorts},
            usage,
        )
        made._trees.put(
            Trees(
                queues={**now.queues, **built.queues},
                cohorts={**now.cohorts, **built.cohorts},
                cyclic=(now.cyclic - cohorts.keys()) | built.cyclic,
            )
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
        if self.trees.is_in_cycle(name):
            yield Inactive(names.REASON_UNKNOWN, "its cohort tree has a cycle; correct a Cohort's spec.parentName")

    def room_generation(self, name: str) -> int:
        """Return a number that rises when a workload of the ClusterQueue ends or changes its usage, and when quota of
        its tree or the order of its flavors changes; not when a workload gets quota.
        """
        return self._trees.room(name)

    def freed_generation(self, name: str) -> int:
        """Return a number that rises when quota in the tree of a ClusterQueue is released or changed; reserving quota
        does not change it.
        """
        return self._trees.freed(name)

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

    def in_trees(self, queues: Iterable[str], cohorts: Iterable[str]) -> set[str]:
        """Return the ClusterQueues in the trees of these ClusterQueues and cohorts, themselves included; unknown ones
        have no tree.
        """
        trees = self.trees
        roots = trees_with(trees.queues, iter(queues)) + trees_with(trees.cohorts, iter(cohorts))
        unique = {id(root): root for root in roots}
        return {node.name for root in unique.values() for node in root.walk() if not node.is_cohort}

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
