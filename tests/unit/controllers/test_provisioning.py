"""The controller of provisioning checks: what it creates, deletes and writes, also after failures and edits by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import provisioning as api
from kqueue.controllers.provisioning import ProvisioningChecks, ProvisioningWatches
from kqueue.controllers.provisioning_writes import ProvisioningWrites
from kqueue.controllers.resources import (
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from kqueue.errors import ForbiddenError, InvalidError, UnreachableError
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, World, condition, make_flavor, make_workload, read, reserved

CONTROLLER = "kueue.x-k8s.io/provisioning-request"
CLASS = "check-capacity.autoscaling.x-k8s.io"
REQUEST, TEMPLATE = "ns/a-nodes-1", "ns/ppt-a-nodes-1-main"
PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "big"}


def check(controller: str = CONTROLLER, **spec: Any) -> wire.AdmissionCheck:
    body = {"controllerName": controller, "parameters": PARAMETERS, **spec}
    found: wire.AdmissionCheck = read(wire.AdmissionCheck, {"metadata": {"name": "nodes"}, "spec": body})
    return found


class FakeWatch:
    """A watch as the reconciler reads it."""

    def __init__(self, world: World, resource: Any, kind: type[Any]) -> None:
        self.resource, self.store = resource, Store[Any](resource.plural)
        self.synced, self.missing, self.unreadable = asyncio.Event(), False, dict[str, str]()
        self.synced.set()
        world.client.watch(resource, self.store, lambda obj: read(kind, obj))


class Provisioned(World):
    """A Workload of two pods with quota, whose check `nodes` is Pending, and config `big`."""

    def __init__(self, *, cleans_up: bool = True, **config: Any) -> None:
        super().__init__((RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "gpu"})))
        self.check: wire.AdmissionCheck | None = check()
        self.client.put(
            PROVISIONING_REQUEST_CONFIGS,
            {"metadata": {"name": "big"}, "spec": {"provisioningClassName": CLASS, **config}},
        )
        self.client.put(WORKLOADS, make_workload(pods=2))
        self.reserve()
        self.requests = FakeWatch(self, PROVISIONING_REQUESTS, api.ProvisioningRequest)
        self.configs = FakeWatch(self, PROVISIONING_REQUEST_CONFIGS, api.ProvisioningRequestConfig)
        self.templates = FakeWatch(self, POD_TEMPLATES, api.OwnedObject)
        self.requests.store.add_index("owner", lambda r: [o.uid for o in r.metadata.owner_references])
        self.cleans_up = cleans_up
        self.lead()

    def lead(self) -> None:
        """A controller begins, or begins anew without a memory."""
        watches: Any = (self.requests, self.configs, self.templates)
        self.watches = ProvisioningWatches(requests=watches[0], configs=watches[1], templates=watches[2])
        self.writes = ProvisioningWrites(self.client, self.templates.store, flavor=self.flavors.get, clock=self.clock)
        self.requests.store.subscribe(self._seen)
        self.reconciler = ProvisioningChecks(
            self.writer,
            self.watches,
            self.writes,
            check=lambda name: self.check if name == "nodes" else None,
            recorder=self.recorder,
            clock=self.clock,
            cleans_up=self.cleans_up,
        )

    def _seen(self, old: Any, new: Any) -> None:
        self.writes.observe(new if new is not None else old, gone=new is None)

    def reserve(self, *more: JSON, **entry: Any) -> None:
        """The Workload has quota, these conditions, and its check this state."""
        state = {"name": "nodes", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        admitted = () if any(c["type"] == "Admitted" for c in more) else (condition("Admitted", "False"),)
        status = reserved(*admitted, *more, pods=2, admissionChecks=[{**state, **entry}])
        self.client.change(WORKLOADS, "ns/a", {"status": status})

    async def step(self, *, sees: bool = True) -> float | None:
        """Reconcile; `sees`: the watches have caught up before."""
        if sees:
            self.sync()
        return (await self.reconciler.reconcile("ns/a")).requeue_after

    def tell(self, kind: str, message: str = "", *, name: str = REQUEST, **status: Any) -> None:
        """The autoscaler sets a condition."""
        self.client.change(
            PROVISIONING_REQUESTS, name, {"status": {"conditions": [condition(kind, message=message)], **status}}
        )

    @property
    def entry(self) -> JSON:
        found: JSON = (self.workload() or {})["status"]["admissionChecks"][0]
        return found

    @property
    def names(self) -> list[str]:
        return [*self.client.keys(PROVISIONING_REQUESTS), *self.client.keys(POD_TEMPLATES)]


async def test_a_request_is_made_with_its_templates_and_their_owners() -> None:
    """Templates belong to the workload until the request exists, and then to it (17.1.4); nothing is written twice."""
    world = Provisioned()

    await world.step()
    writes = [str(call) for call in world.client.writes()]
    await world.step(sees=False)  # the watch has not reported them yet
    await world.step()

    assert writes == [
        f"create podtemplates {TEMPLATE}",
        f"create provisioningrequests {REQUEST}",
        f"patch podtemplates {TEMPLATE}",
    ]
    assert len(world.client.writes()) == len(writes)
    first = world.client.writes()[0].body["metadata"]["ownerReferences"]
    made = world.client.object(PROVISIONING_REQUESTS, REQUEST)
    template = world.client.object(POD_TEMPLATES, TEMPLATE)
    assert made is not None
    assert template is not None
    assert [owner["kind"] for owner in first] == ["Workload"]
    assert [o["uid"] for o in template["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    assert template["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert world.recorder.reasons == ["ProvisioningRequestCreated"]
    assert world.entry["message"] == ""


async def test_the_answer_is_written_once_and_told() -> None:
    """17.1.9: an event names the check, the old and the new state."""
    world = Provisioned()
    await world.step()
    world.tell("Provisioned", "there")
    await world.step()
    writes = len(world.client.writes())
    await world.step()

    assert (world.entry["state"], world.entry["message"]) == ("Ready", "there")
    assert world.entry["podSetUpdates"][0]["name"] == "main"
    assert len(world.client.writes()) == writes
    assert world.recorder.reasons[-1] == "AdmissionCheckUpdated"
    assert "nodes went from Pending to Ready" in world.recorder.messages[-1]


async def test_a_failure_is_retried_under_a_new_name() -> None:
    """Failed -> Retry -> evicted: the request goes; with the next reservation comes attempt 2 (17.1.7, 17.1.8)."""
    world = Provisioned()
    await world.step()
    world.tell("Failed", "no capacity")
    await world.step()
    assert (world.entry["state"], world.entry["requeueAfterSeconds"]) == ("Retry", 60)
    world.reserve(condition("Evicted", reason="AdmissionCheck"), retryCount=1)
    await world.step()
    assert world.client.keys(PROVISIONING_REQUESTS) == []

    world.reserve(retryCount=1)
    await world.step()

    assert world.client.keys(PROVISIONING_REQUESTS) == ["ns/a-nodes-2"]


@pytest.mark.parametrize(
    ("ended", "cleans_up", "stays"),
    [
        pytest.param(condition("Finished"), True, False, id="17.1.1 finished"),
        pytest.param(condition("Finished"), False, False, id="17.1.1 finished, whatever the gate"),
        pytest.param(condition("Evicted"), True, False, id="17.1.1 evicted"),
        pytest.param(condition("Evicted"), False, True, id="17.1.1 evicted, gate off"),
        pytest.param(condition("QuotaReserved", "False"), True, True, id="17.1.1 it lost its reservation"),
    ],
)
async def test_requests_go_with_their_workload(ended: JSON, cleans_up: bool, stays: bool) -> None:
    world = Provisioned(cleans_up=cleans_up)
    await world.step()
    status = (world.workload() or {})["status"]
    kept = [c for c in status["conditions"] if c["type"] != ended["type"]]
    world.client.change(WORKLOADS, "ns/a", {"status": {"conditions": [*kept, ended]}})

    await world.step()
    writes = len(world.client.writes())
    await world.step(sees=False)

    assert (world.client.keys(PROVISIONING_REQUESTS) == [REQUEST]) is stays
    assert len(world.client.writes()) == writes


async def test_a_deleted_request_is_made_again_before_the_answer() -> None:
    """By hand, with its templates still there."""
    world = Provisioned()
    await world.step()
    await world.step()
    old = (world.client.object(PROVISIONING_REQUESTS, REQUEST) or {})["metadata"]["uid"]
    world.client.drop(PROVISIONING_REQUESTS, REQUEST)

    await world.step()

    made = world.client.object(PROVISIONING_REQUESTS, REQUEST)
    template = world.client.object(POD_TEMPLATES, TEMPLATE)
    assert made is not None
    assert template is not None
    assert made["metadata"]["uid"] != old
    assert template["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_an_admitted_workload_does_not_need_its_request() -> None:
    """17.1.7: deleting it does not disturb the workload."""
    world = Provisioned()
    await world.step()
    world.tell("Provisioned")
    await world.step()
    world.reserve(condition("Admitted"), state="Ready")
    world.client.drop(PROVISIONING_REQUESTS, REQUEST)
    writes = len(world.client.writes())

    await world.step()

    assert len(world.client.writes()) == writes
    assert world.entry["state"] == "Ready"


@pytest.mark.parametrize("meanwhile", [False, True], ids=["it waits", "it has got them meanwhile"])
async def test_a_workload_that_waits_for_domains_needs_its_request(meanwhile: bool) -> None:
    """Nobody would make nodes for it, or end its wait: it gives its quota back, and asks again.  One that has started is
    left alone, also where its watch lags.
    """
    world = Provisioned()
    await world.step()
    world.tell("Provisioned")
    world.reserve(state="Ready")
    status = (world.workload() or {})["status"]
    status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    world.client.change(WORKLOADS, "ns/a", {"status": status})
    world.client.drop(PROVISIONING_REQUESTS, REQUEST)
    world.sync()
    if meanwhile:
        conditions = [condition("QuotaReserved"), condition("Admitted")]
        world.client.change(WORKLOADS, "ns/a", {"status": {"conditions": conditions}})

    await world.step(sees=False)

    assert world.entry["state"] == ("Ready" if meanwhile else "Retry")
    assert world.client.keys(PROVISIONING_REQUESTS) == []


async def test_an_edited_request_is_replaced() -> None:
    """Another class is not what the config asks for (17.1.6): the same attempt is made again."""
    world = Provisioned()
    await world.step()
    world.client.change(PROVISIONING_REQUESTS, REQUEST, {"spec": {"provisioningClassName": "mine"}})

    await world.step()

    made = world.client.object(PROVISIONING_REQUESTS, REQUEST)
    assert made is not None
    assert made["spec"]["provisioningClassName"] == CLASS


async def test_a_request_that_is_being_deleted_is_no_answer() -> None:
    """A finalizer holds it, with the answer of an earlier reservation: it does not count, and its name is taken."""
    world = Provisioned()
    await world.step()
    world.tell("Provisioned")
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
    world.client.change(PROVISIONING_REQUESTS, REQUEST, {"metadata": meta})

    again = await world.step()

    assert world.entry["state"] == "Pending"
    assert "still being deleted" in world.entry["message"]
    assert again == 30.0


async def test_a_template_deleted_by_hand_is_made_again() -> None:
    world = Provisioned()
    await world.step()
    world.client.drop(POD_TEMPLATES, TEMPLATE)
    world.sync()
    for request in world.requests.store.values():
        world.writes.lost_template(request)

    await world.step()

    template = world.client.object(POD_TEMPLATES, TEMPLATE)
    assert template is not None
    assert template["metadata"]["ownerReferences"][0]["kind"] == "ProvisioningRequest"


@pytest.mark.parametrize("stops", ["create", "patch"])
async def test_a_killed_controller_is_continued(stops: str) -> None:
    """It ended between the templates, the request and their owner: the next one completes them, and nothing is left."""
    world = Provisioned()
    key = REQUEST if stops == "create" else TEMPLATE
    world.client.fail(UnreachableError("killed"), verb=stops, key=key, done=stops == "create")
    with pytest.raises(UnreachableError):
        await world.step()
    world.lead()

    await world.step()
    await world.step()

    made, template = world.client.object(PROVISIONING_REQUESTS, REQUEST), world.client.object(POD_TEMPLATES, TEMPLATE)
    assert made is not None
    assert template is not None
    assert [o["uid"] for o in template["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    assert world.names == [REQUEST, TEMPLATE]


@pytest.mark.parametrize(
    "error", [InvalidError("spec.parameters: too long", status=422), ForbiddenError("denied", status=403)]
)
async def test_a_refused_request_is_told_and_tried_again_later(error: Any) -> None:
    """17.1.9: an event, and the message of the check; not more than every 30 seconds."""
    world = Provisioned()
    world.client.fail(error, verb="create", key=REQUEST, times=2)

    assert await world.step() == 30.0
    assert str(error) in world.entry["message"]
    assert world.recorder.reasons == ["FailedCreate"]
    creations = len(world.client.writes())
    assert await world.step() == 30.0
    assert len(world.client.writes()) == creations
    await world.clock.advance(31)
    await world.step()
    await world.clock.advance(31)
    await world.step()

    assert world.client.keys(PROVISIONING_REQUESTS) == [REQUEST]


@pytest.mark.parametrize(
    ("resource", "key"),
    [pytest.param(PROVISIONING_REQUESTS, REQUEST, id="request"), pytest.param(POD_TEMPLATES, TEMPLATE, id="template")],
)
async def test_objects_of_others_are_left_alone(resource: Any, key: str) -> None:
    """Workload `a-b` with check `c` and Workload `a` with check `b-c` have requests of one name; and users have any."""
    world = Provisioned()
    name = key.partition("/")[2]
    world.client.put(resource, {"metadata": {"namespace": "ns", "name": name, "uid": "theirs"}, "mark": 1})

    assert await world.step() == 30.0

    there = world.client.object(resource, key)
    assert there is not None
    assert (there["metadata"]["uid"], there["mark"]) == ("theirs", 1)
    assert "belongs to somebody else" in world.entry["message"]


async def test_nothing_is_decided_without_the_definition() -> None:
    """The kind is not served: no write, another look later."""
    world = Provisioned()
    world.requests.missing = True

    assert await world.step() == 2.0

    assert world.client.writes() == []


async def test_a_check_of_another_controller_is_left_alone() -> None:
    world = Provisioned()
    world.check = check("example.com/budget")

    assert await world.step() is None
    assert world.client.writes() == []


async def test_a_vanished_config_takes_its_requests_along() -> None:
    """17.1.3, 17.1.6: and comes back with them."""
    world = Provisioned()
    await world.step()
    config = world.client.object(PROVISIONING_REQUEST_CONFIGS, "big")
    assert config is not None
    world.client.drop(PROVISIONING_REQUEST_CONFIGS, "big")
    await world.step()
    assert world.client.keys(PROVISIONING_REQUESTS) == []
    assert "not active" in world.entry["message"]

    world.client.put(PROVISIONING_REQUEST_CONFIGS, config)
    await world.step()

    assert world.client.keys(PROVISIONING_REQUESTS) == [REQUEST]


async def test_an_answer_of_an_earlier_reservation_is_not_written() -> None:
    """The workload was evicted while the answer was decided."""
    world = Provisioned()
    await world.step()
    world.tell("Provisioned")
    world.sync()
    world.client.change(
        WORKLOADS, "ns/a", {"status": {"conditions": [condition("QuotaReserved"), condition("Evicted")]}}
    )

    await world.step(sees=False)

    assert world.entry["state"] == "Pending"


# --- condition Active -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "config", "served", "want"),
    [
        pytest.param({}, {"provisioningClassName": CLASS}, True, (True, "Active", "ProvisioningRequests"), id="usable"),
        pytest.param({"parameters": None}, {}, True, (False, "BadParametersRef", "missing"), id="no parameters"),
        pytest.param(
            {"parameters": {**PARAMETERS, "kind": "ConfigMap"}},
            {},
            True,
            (False, "BadParametersRef", "ConfigMap"),
            id="parameters of another kind",
        ),
        pytest.param(
            {"parameters": {**PARAMETERS, "apiGroup": "example.com"}},
            {},
            True,
            (False, "BadParametersRef", "example.com"),
            id="parameters of another group",
        ),
        pytest.param(
            {"parameters": {**PARAMETERS, "name": "none"}},
            {},
            True,
            (False, "BadParametersRef", "none not found"),
            id="no such config",
        ),
        pytest.param({}, None, True, (False, "BadParametersRef", "no spec"), id="a config without a spec"),
        pytest.param({}, "unreadable", True, (False, "BadParametersRef", "cannot be read"), id="a broken config"),
        pytest.param(
            {}, {"provisioningClassName": CLASS}, False, (False, "KindNotServed", "definition"), id="no definition"
        ),
    ],
)
async def test_a_check_tells_whether_it_can_be_used(
    spec: JSON, config: Any, served: bool, want: tuple[bool, str, str]
) -> None:
    world = Provisioned()
    world.requests.missing = not served
    if config == "unreadable":
        world.configs.unreadable["big"] = "retryStrategy is a list"
    elif config != {}:
        world.client.put(PROVISIONING_REQUEST_CONFIGS, {"metadata": {"name": "big"}, "spec": config})
    world.sync()

    found = world.watches.activity(check(**spec))

    assert found is not None
    assert (found.active, found.reason) == want[:2]
    assert want[2] in found.message


async def test_another_controllers_check_is_not_judged() -> None:
    assert Provisioned().watches.activity(check("example.com/budget")) is None
