"""The devices of the simulated cluster, and which of them a claim gets on a node: the part of kube-scheduler.

Requests are met one after the other by the first free devices, and nothing is tried anew: a later request may find
none although another choice would have left one.  Constraints between devices are not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import Object
from kqueue.sandbox.expression import ExpressionError, compiled

DeviceKey = tuple[str, str, str]
"""Driver, pool and name."""
_ROOTS = frozenset(("device",))
_TURNS_AWAY = frozenset(("NoSchedule", "NoExecute"))


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A device of a complete pool; `node` empty: it belongs to no single node."""

    key: DeviceKey
    node: str
    written: Object

    @property
    def is_shared(self) -> bool:
        """Whether several claims may have it."""
        return self.written.get("allowMultipleAllocations") is True


@dataclass(slots=True)
class TakenDevices:
    """The devices, the amounts of shared counters and the amounts of capacities that claims have."""

    devices: set[DeviceKey] = field(default_factory=set)
    counters: Counter[tuple[str, ...]] = field(default_factory=Counter)
    capacity: Counter[tuple[DeviceKey, str]] = field(default_factory=Counter)

    def copy(self) -> TakenDevices:
        """Return a copy that can be changed."""
        return TakenDevices(set(self.devices), self.counters.copy(), self.capacity.copy())

    def take(self, device: OfferedDevice, consumed: Mapping[str, int]) -> None:
        """Take a device, or a part of a shared one."""
        if device.key not in self.devices:
            self.devices.add(device.key)
            for key, number in _consumption(device):
                self.counters[key] += number
        for name, number in consumed.items():
            self.capacity[device.key, name] += number


class DeviceInventory:
    """The devices of complete pools and the classes, as they stand."""

    def __init__(self, slices: Iterable[Object], classes: Mapping[str, Object]) -> None:
        """Take ResourceSlices, and DeviceClasses by name."""
        self._classes = classes
        complete = list(_complete(slices))
        self.devices = [device for each in complete for device in _devices_of(each)]
        self._by_key = {device.key: device for device in self.devices}
        self._by_node: dict[str, list[OfferedDevice]] = {}
        for device in self.devices:
            self._by_node.setdefault(device.node, []).append(device)
        self._totals: dict[tuple[str, ...], int] = {
            (each["spec"]["driver"], each["spec"]["pool"]["name"], one["name"], name): amount(counter["value"], "")
            for each in complete
            for one in each["spec"].get("sharedCounters") or ()
            for name, counter in (one.get("counters") or {}).items()
        }

    def taken_by(self, claims: Iterable[Object]) -> TakenDevices:
        """Return what allocated claims have of these devices."""
        taken = TakenDevices()
        for claim in claims:
            for result in results_of(claim):
                device = self._by_key.get(key_of_result(result))
                if device is not None and not result.get("adminAccess"):
                    consumed = result.get("consumedCapacity") or {}
                    taken.take(device, {name: amount(value, "") for name, value in consumed.items()})
        return taken

    def node_of(self, claim: Object) -> str:
        """Return the node of a claim's devices; empty: they belong to none."""
        found = (self._by_key.get(key_of_result(result)) for result in results_of(claim))
        return next((device.node for device in found if device is not None and device.node), "")

    def nodes(self) -> list[str]:
        """Return the nodes that have devices."""
        return [node for node in self._by_node if node]

    def allocate(self, claims: Sequence[Object], node: str, taken: TakenDevices) -> list[list[Object]] | None:
        """Return the devices for each claim on a node as results of an allocation; None: it has not enough."""
        state, made = taken.copy(), list[list[Object]]()
        for claim in claims:
            results: list[Object] = []
            for request in (claim["spec"].get("devices") or {}).get("requests") or ():
                found = self._for_request(request, node, state)
                if found is None:
                    return None
                results += found
            made.append(results)
        return made

    def _for_request(self, request: Object, node: str, taken: TakenDevices) -> list[Object] | None:
        if "exactly" in request:
            return self._exactly(request["exactly"], request["name"], node, taken)
        for each in request.get("firstAvailable") or ():
            found = self._exactly(each, f"{request['name']}/{each['name']}", node, taken)
            if found is not None:
                return found
        return None

    def _exactly(self, asked: Object, name: str, node: str, taken: TakenDevices) -> list[Object] | None:
        fitting = [device for device in self._on(node) if self._matches(device, asked)]
        every = asked.get("allocationMode") == "All"
        wanted = len(fitting) if every else int(asked.get("count") or 1)
        state, results = taken.copy(), list[Object]()
        for device in fitting:
            while len(results) < wanted:
                consumed = self._consumed(device, asked, state)
                if consumed is None:
                    break
                results.append(_result(device, name, consumed, admin=bool(asked.get("adminAccess"))))
                if asked.get("adminAccess"):
                    break
                state.take(device, consumed)
                if every or not device.is_shared:
                    break
        if len(results) < wanted or not wanted:
            return None
        taken.devices, taken.counters, taken.capacity = state.devices, state.counters, state.capacity
        return results

    def _on(self, node: str) -> Iterator[OfferedDevice]:
        yield from self._by_node.get(node, ())
        yield from self._by_node.get("", ())

    def _matches(self, device: OfferedDevice, asked: Object) -> bool:
        taints = device.written.get("taints") or ()
        if any(taint.get("effect") in _TURNS_AWAY for taint in taints):
            return False
        found = self._classes.get(asked.get("deviceClassName") or "")
        if found is None:
            return False
        selectors = [*((found.get("spec") or {}).get("selectors") or ()), *(asked.get("selectors") or ())]
        return all(_holds(str((each.get("cel") or {}).get("expression")), device) for each in selectors)

    def _consumed(self, device: OfferedDevice, asked: Object, taken: TakenDevices) -> dict[str, int] | None:
        """Return the amounts of capacities that a request gets of a device; None: it cannot have the device."""
        if asked.get("adminAccess"):
            return {}
        requested = {n: amount(v, "") for n, v in ((asked.get("capacity") or {}).get("requests") or {}).items()}
        capacity = device.written.get("capacity") or {}
        if any(number > amount(capacity.get(name, {}).get("value", 0), "") for name, number in requested.items()):
            return None
        if device.key not in taken.devices:
            short = (taken.counters[key] + number > self._totals.get(key, 0) for key, number in _consumption(device))
            if any(short):
                return None
        elif not device.is_shared:
            return None
        consumed: dict[str, int] = {}
        for name, has in capacity.items() if device.is_shared else ():
            default = (has.get("requestPolicy") or {}).get("default", has["value"])
            consumed[name] = requested.get(name, amount(default, ""))
            if taken.capacity[device.key, name] + consumed[name] > amount(has["value"], ""):
                return None
        return consumed


def results_of(claim: Object) -> list[Object]:
    """Return the results of a claim's allocation; empty: it has none."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return found


def key_of_result(result: Object) -> DeviceKey:
    """Return the device of a result."""
    return result["driver"], result["pool"], result["device"]


def _result(device: OfferedDevice, request: str, consumed: Mapping[str, int], *, admin: bool) -> Object:
    driver, pool, name = device.key
    found: Object = {"request": request, "driver": driver, "pool": pool, "device": name}
    if consumed:
        found["consumedCapacity"] = {key: str(number) for key, number in consumed.items()}
    return {**found, "adminAccess": True} if admin else found


def _complete(slices: Iterable[Object]) -> Iterator[Object]:
    """Yield the slices of the newest generation of each pool that has all of them."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for each in slices:
        pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each)
    for found in pools.values():
        newest = max(int(each["spec"]["pool"].get("generation") or 0) for each in found)
        current = [each for each in found if int(each["spec"]["pool"].get("generation") or 0) == newest]
        if len(current) == int(current[0]["spec"]["pool"].get("resourceSliceCount") or 0):
            yield from current


def _devices_of(each: Object) -> Iterator[OfferedDevice]:
    spec = each["spec"]
    for device in spec.get("devices") or ():
        node = spec.get("nodeName") or device.get("nodeName") or ""
        yield OfferedDevice((spec["driver"], spec["pool"]["name"], device["name"]), node, device)


def _consumption(device: OfferedDevice) -> Iterator[tuple[tuple[str, ...], int]]:
    for one in device.written.get("consumesCounters") or ():
        for name, counter in (one.get("counters") or {}).items():
            yield (*device.key[:2], one["counterSet"], name), amount(counter["value"], "")


def _holds(expression: str, device: OfferedDevice) -> bool:
    """Whether a selector holds for the device; one that the sandbox does not understand holds for none."""
    try:
        return compiled(expression, roots=_ROOTS)({"device": _scope(device)})
    except ExpressionError:
        return False


def _scope(device: OfferedDevice) -> Object:
    driver = device.key[0]
    attributes: dict[str, Object] = {}
    for name, value in (device.written.get("attributes") or {}).items():
        domain, slash, plain = name.rpartition("/")
        attributes.setdefault(domain if slash else driver, {})[plain if slash else name] = next(iter(value.values()))
    shared = device.is_shared
    return {"driver": driver, "attributes": attributes, "allowMultipleAllocations": shared}
