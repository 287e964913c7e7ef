"""Plans for worlds whose nodes are made on request, their invariants, and the actor that carries them out."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from typing import Any, ClassVar

from kqueue.api import names
from kqueue.api.wire import provisioning as api
from kqueue.errors import ApiError, NotFoundError
from kqueue.sandbox.api import NODES, PODS, Object
from kqueue.sandbox.topology_spec import RACK_LABEL
from tests.integration.autoscaler_double import NODE_GROUP
from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.history import is_delayed
from tests.sim.invariants import is_over
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.plan import COMMON, Actions, Draft, End, Plan
from tests.sim.provisioning import CHECKS, CONFIGS, QUEUES, REQUESTS, TEMPLATES, Autoscaler
from tests.sim.reading import Breaches, Invariant, assigned_pod_sets, holders, holds
from tests.sim.world import World, is_true, owner_of

_TOLD = (api.FAILED, api.BOOKING_EXPIRED, api.CAPACITY_REVOKED, api.PROVISIONED, api.ACCEPTED)
_OVER = (names.CONDITION_FINISHED, names.CONDITION_EVICTED)
_EDITS: tuple[Object, ...] = (
    {"provisioningClassName": "mine.example.com"},
    {"podSets": [{"count": 99, "podTemplateRef": {"name": "mine"}}]},
    {"parameters": {"size": "huge"}},
)
_CHANGES: tuple[Object, ...] = (
    {"parameters": {"size": "other"}},
    {"managedResources": ["example.com/nothing"]},
    {"retryStrategy": {"backoffLimitCount": 0}},
)


class ProvisioningDraft(Draft):
    """A plan for a world whose nodes are made on request."""

    def gang(self, *, endless: bool = False) -> None:
        """Submit a Job of one rack."""
        c = self.chance
        settings = {"queue": c.choice(QUEUES), "pods": c.randint(1, 4), "gpus": c.choice((4, 8))}
        settings |= {"priority": c.choice(("", "", "high", "low")), "topology": ("required", RACK_LABEL)}
        seconds = 1_000_000 if endless else c.choice((1, 5, 20))
        name = "endless" if endless else "good"
        self.submit(name, End.GONE if endless else End.COMPLETE, **settings, run_seconds=seconds, retries=100)

    def at_a_request(self, action: str, **arguments: Any) -> None:
        """Append an action on a request by hand."""
        self.add(action, number=self.chance.randrange(12), **arguments)

    def hold(self) -> None:
        self.add("hold", queue=self.chance.choice(QUEUES), policy=self.chance.choice(("Hold", "HoldAndDrain")))

    def quota(self) -> None:
        self.add("set_quota", queue=self.chance.choice(QUEUES), gpus=self.chance.choice((0, 16, 32, 48)))

    def config(self) -> None:
        """Append a change or the deletion of a config."""
        name = self.chance.choice(QUEUES)
        if self.chance.random() < 0.3:
            self.add("delete", plural=CONFIGS.plural, name=name)
        else:
            self.add("configure", plural=CONFIGS.plural, name=name, change=self.chance.choice(_CHANGES))


_ACTIONS: Actions = (
    (ProvisioningDraft.gang, 26),
    (lambda d: d.gang(endless=True), 3),
    (lambda d: d.at_a_request("delete_request"), 4),
    (lambda d: d.at_a_request("edit_request", change=d.chance.choice(_EDITS)), 4),
    (lambda d: d.at_a_request("tell_request", kind=d.chance.choice(_TOLD)), 5),
    (lambda d: d.at_a_request("delete_template"), 3),
    (lambda d: d.at_a_request("lose_node"), 2),
    (ProvisioningDraft.config, 3),
    (lambda d: d.add("restore"), 4),
    (lambda d: d.add("delete", plural=CHECKS.plural, name=d.chance.choice(QUEUES)), 1),
    (lambda d: d.add("switch_on"), 4),
    (ProvisioningDraft.hold, 3),
    (lambda d: d.add("resume"), 4),
    (ProvisioningDraft.quota, 2),
    (lambda d: d.add("rest"), 2),
    *COMMON,
)


def draw_provisioning(seed: int | str, *, steps: int = 50) -> Plan:
    """Return the plan of a seed.  It does nothing to nodes by their names, which are those of requests."""
    plan = ProvisioningDraft(f"{seed}/provisioning").draw(steps, _ACTIONS)
    return plan.without("cordon", "taint", "remove_node")


# --- invariants ------------------------------------------------------------------------------------------------------


def who_is_admitted_has_nodes(world: World) -> Breaches:
    """An admitted Workload has an answer for each check, and a domain for each pod: a gang starts whole."""
    for workload in holders(world):
        if not is_true(workload, names.CONDITION_ADMITTED) or is_true(workload, names.CONDITION_EVICTED):
            continue
        name = workload["metadata"]["name"]
        states = {each["name"]: each["state"] for each in workload["status"].get("admissionChecks") or ()}
        if not states or "Pending" in states.values():
            yield f"{name} is admitted with checks {states}"
        yield from (
            f"{name} is admitted, and pod set {spec['name']} has no domains"
            for spec, assigned in assigned_pod_sets(workload)
            if is_delayed(assigned) or assigned.get("topologyAssignment") is None
        )


def pods_run_on_the_nodes_of_their_request(world: World) -> Breaches:
    """In the queue whose config says so."""
    groups = {node["metadata"]["name"]: node["metadata"]["labels"].get(NODE_GROUP) for node in world.objects(NODES)}
    for pod in world.objects(PODS):
        node, wanted = pod["spec"].get("nodeName"), (pod["spec"].get("nodeSelector") or {}).get(NODE_GROUP)
        request = pod["metadata"].get("annotations", {}).get(names.CONSUME_PROVISIONING_REQUEST_ANNOTATION)
        if wanted is not None and wanted != request:
            yield f"pod {pod['metadata']['name']} selects nodes of {wanted}, and its request is {request}"
        if wanted is not None and node in groups and not is_over(pod) and groups[node] != wanted:
            yield f"pod {pod['metadata']['name']} runs on node {node} of another request"


def requests_have_reasons(world: World) -> Breaches:
    """At rest a request belongs to a Workload that is neither finished nor evicted, which has one for each check, with all
    pod templates.  It stays where the Workload has lost its quota without an eviction.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    templates = {each["metadata"]["name"] for each in world.objects(TEMPLATES)}
    workloads = {w["metadata"]["name"]: w for w in world.objects(WORKLOADS)}
    for request in world.api.every(REQUESTS):
        name, owner = request["metadata"]["name"], owner_of(request)
        workload = workloads.get(owner)
        if workload is None or any(is_true(workload, kind) for kind in _OVER):
            yield f"request {name} is left of {owner}, which is over or evicted"
            continue
        found[owner][name.removeprefix(f"{owner}-").rpartition("-")[0]] += 1
        states = {each["name"]: each["state"] for each in workload["status"]["admissionChecks"]}
        if holds(workload) and "Pending" in states.values():
            wanted = {pods["podTemplateRef"]["name"] for pods in request["spec"]["podSets"]}
            if not wanted <= templates:
                yield f"request {name} lacks pod templates {sorted(wanted - templates)}"
    for name, counts in found.items():
        yield from (f"{name} has {n} requests for check {check}" for check, n in counts.items() if n > 1)


def who_waits_for_nodes_has_asked(world: World) -> Breaches:
    """At rest a Workload with quota and a check without an answer has a request for it, while the config exists."""
    asked = {owner_of(request) for request in world.api.every(REQUESTS)}
    active = {c["metadata"]["name"] for c in world.objects(CHECKS) if is_true(c, "Active")}
    for workload in holders(world):
        name = workload["metadata"]["name"]
        pending = {e["name"] for e in workload["status"].get("admissionChecks") or () if e["state"] == "Pending"}
        if pending & active and name not in asked:
            yield f"{name} waits for the nodes of checks {sorted(pending)}, and nobody has asked for them"


class ProvisioningActor(Actor):
    """One plan on a world whose nodes are made on request."""

    always: ClassVar[tuple[Invariant, ...]] = (
        *invariants.ALWAYS,
        who_is_admitted_has_nodes,
        pods_run_on_the_nodes_of_their_request,
    )
    at_rest: ClassVar[tuple[Invariant, ...]] = (
        *invariants.AT_REST,
        requests_have_reasons,
        who_waits_for_nodes_has_asked,
    )
    named = "provisioning"

    def __init__(self, world: World, plan: Plan, autoscaler: Autoscaler) -> None:
        super().__init__(world, plan)
        self.autoscaler = autoscaler

    async def repair(self) -> None:
        self.autoscaler.calm = True
        await super().repair()

    async def switch_on(self) -> None:
        """A user activates all Workloads again."""
        self.world.disturb_all()
        await self._switch_on()

    def _request(self, number: int) -> Object | None:
        found = self.autoscaler.requests()
        return found[number % len(found)] if found else None

    async def delete_request(self, number: int) -> None:
        """A user deletes a request."""
        request = self._request(number)
        if request is not None:
            with contextlib.suppress(NotFoundError):
                await self.world.api.delete(REQUESTS, request["metadata"]["name"], namespace=NAMESPACE)

    async def edit_request(self, number: int, change: Object) -> None:
        """A user edits a request."""
        request = self._request(number)
        if request is not None:
            await self._patch(REQUESTS, request["metadata"]["name"], {"spec": change})

    async def tell_request(self, number: int, kind: str) -> None:
        """Another client writes a condition of a request; nodes do not follow."""
        request = self._request(number)
        if request is not None:
            with contextlib.suppress(ApiError):
                await self.autoscaler.tell(request, kind)

    async def delete_template(self, number: int) -> None:
        """A user deletes a pod template of a request."""
        found = self.world.objects(TEMPLATES)
        if found:
            name = found[number % len(found)]["metadata"]["name"]
            await self.world.api.delete(TEMPLATES, name, namespace=NAMESPACE)

    async def lose_node(self, number: int) -> None:
        """A node that was made on request is gone."""
        found = [n["metadata"]["name"] for n in self.world.objects(NODES) if NODE_GROUP in n["metadata"]["labels"]]
        if found:
            await self.remove_node(found[number % len(found)])
