"""The quota of claimed devices: the requests of claim templates as amounts of quota resources.

A request that cannot be counted is refused with the field and a remedy, so that no device passes by the quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.devices.matches import Found
from kqueue.core.devices.selectors import problem_of
from kqueue.core.devices.values import (
    AmountSource,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceMapping,
    DeviceRequest,
    Selector,
)
from kqueue.core.devices.views import DeviceView
from kqueue.core.quantity import saturating_add

EXACT_COUNT, ALL = "ExactCount", "All"
"""Allocation modes."""
UNREADABLE_REMEDY = "see docs/how-to/claim-devices.md"
"""The remedy for selectors that kqueue cannot evaluate."""
_MOST_WORK = 2_000_000
"""The largest product of the characters of selectors and the devices on which they are evaluated: tenants write
selectors, and their evaluation must not hold up the scheduling of others.
"""
_FEWEST = 32
"""Selectors for fewer devices count as if there were so many: they must be read, too."""


@dataclass(frozen=True, slots=True)
class NamedClaim:
    """A claim in a pod spec.

    `template` is the name of its ResourceClaimTemplate, `claim` that of an existing ResourceClaim; at most one of them
    is not empty.
    """

    name: str
    template: str = ""
    claim: str = ""


class DevicesRefused(Exception):
    """A claim that cannot be counted."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        """Take the path of the field in the pod spec or in the template, the problem and the remedy, for one sentence.

        Keep them short: messages of conditions are cut at 200 characters.
        """
        super().__init__(f"{path}: {problem}; {remedy}")


@dataclass(frozen=True, slots=True)
class CountedDevices:
    """The quota of the devices of one pod.

    Args:
        amounts: by quota resource.
        by_class: the number of devices by class, for the hosts; without devices of which a part is asked for.
        by_view: the number of devices by request, for the hosts; only of requests with selectors or capacities.
        replaced: extended resources that are counted in `amounts` and not by their own names.
        refused: why the pods cannot be admitted, one sentence for each problem; empty: they can.
        unjudged: what is left to kube-scheduler, one sentence for each field.
    """

    amounts: Mapping[str, int] = field(default_factory=dict)
    by_class: Mapping[str, int] = field(default_factory=dict)
    by_view: Mapping[DeviceView, int] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()
    refused: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()


NO_DEVICES = CountedDevices()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRules:
    """The rules by which devices are counted.

    Args:
        mappings: in the order of the configuration.
        extended: extended resources that classes of devices satisfy are counted as their devices are (gate
            KueueDRAIntegrationExtendedResource).
    """

    mappings: tuple[DeviceMapping, ...] = ()
    extended: bool = False

    def of_class(self, name: str) -> tuple[DeviceMapping, ...]:
        """Return the mappings of a class. Several mappings have one only if each of them counts another counter."""
        return tuple(mapping for mapping in self.mappings if name in mapping.classes)

    def classes(self) -> frozenset[str]:
        """Return the mapped classes."""
        return frozenset(name for mapping in self.mappings for name in mapping.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWorld:
    """The objects that claims refer to.

    Args:
        template: returns the requests of a ResourceClaimTemplate of the Workload's namespace; None: there is none.
        device_class: returns a DeviceClass; None: there is none.
        matching: returns the devices of a class in complete pools for which selectors hold.
        affords: whether the selectors of a request may be evaluated now; without a limit it returns True.
        class_of: returns the class whose devices satisfy an extended resource; None: no class does.
    """

    template: Callable[[str], Sequence[DeviceRequest] | None]
    device_class: Callable[[str], DeviceClass | None]
    matching: Callable[[str, tuple[Selector, ...]], Found]
    class_of: Callable[[str], DeviceClass | None]
    affords: Callable[[DeviceRequest], bool] = lambda _request: True


def count_devices(
    rules: DeviceRules, world: DeviceWorld, claims: Iterable[NamedClaim], requests: Mapping[str, int]
) -> CountedDevices:
    """Return the quota of the devices of a pod. `requests` are its total requests."""
    counter = _Counter(rules, world)
    for i, claim in enumerate(claims):
        counter.add_claim(claim, f"resourceClaims[{i}]")
    if rules.extended:
        for resource, amount in requests.items():
            counter.add_extended(resource, amount)
    return CountedDevices(
        amounts=counter.amounts,
        by_class=counter.by_class,
        by_view=counter.by_view,
        replaced=frozenset(counter.replaced),
        refused=tuple(counter.refused),
        unjudged=tuple(counter.unjudged),
    )


class _Counter:
    """The sums for one pod, and the problems found so far."""

    def __init__(self, rules: DeviceRules, world: DeviceWorld) -> None:
        self._rules, self._world = rules, world
        self.amounts: dict[str, int] = {}
        self.by_class: dict[str, int] = {}
        self.by_view: dict[DeviceView, int] = {}
        self.replaced: set[str] = set()
        self.refused: list[str] = []
        self.unjudged: list[str] = []

    def add_claim(self, claim: NamedClaim, path: str) -> None:
        """Count the devices of one claim, or note why it is refused."""
        try:
            self._claim(claim, path)
        except DevicesRefused as e:
            self.refused.append(str(e))

    def _claim(self, claim: NamedClaim, path: str) -> None:
        if claim.claim:
            problem = f"ResourceClaim {claim.claim} exists already, and other pods may share it"
            raise DevicesRefused(f"{path}.resourceClaimName", problem, "name a ResourceClaimTemplate instead")
        if not claim.template:
            return  # Kubernetes ignores such a claim, too
        requests = self._world.template(claim.template)
        if requests is None:
            problem = f"ResourceClaimTemplate {claim.template} does not exist"
            raise DevicesRefused(f"{path}.resourceClaimTemplateName", problem, "create it; the job starts then")
        taken: set[DeviceKey] = set()
        for i, request in enumerate(requests):
            self._request(request, f"ResourceClaimTemplate {claim.template}, devices.requests[{i}]", taken)

    def _request(self, request: DeviceRequest, path: str, taken: set[DeviceKey]) -> None:
        if request.alternatives:
            problem = "the quota of alternatives is not known"
            raise DevicesRefused(f"{path}.firstAvailable", problem, "write exactly with one DeviceClass")
        if not request.exact:
            raise DevicesRefused(path, "it asks for no devices", "write exactly with a DeviceClass")
        path = f"{path}.exactly"
        if request.admin:
            return  # such access takes no device from others
        if request.mode == ALL:
            problem = "the number is not known before the pods run"
            raise DevicesRefused(f"{path}.allocationMode", problem, f"write {EXACT_COUNT} and count")
        if request.mode != EXACT_COUNT:
            problem = f"allocation mode {request.mode} is not known"
            raise DevicesRefused(f"{path}.allocationMode", problem, f"write {EXACT_COUNT} and count")
        mappings = self._rules.of_class(request.device_class)
        if not mappings:
            raise DevicesRefused(
                f"{path}.deviceClassName",
                f"{request.device_class} has no quota",
                "map it in resources.deviceClassMappings",
            )
        self._mapped(request, mappings, path, taken)

    def _mapped(
        self, request: DeviceRequest, mappings: Sequence[DeviceMapping], path: str, taken: set[DeviceKey]
    ) -> None:
        sources = [(mapping.resource, source) for mapping in mappings for source in mapping.sources]
        if sources or request.selectors:
            self._check_class(request.device_class, path)
        if request.selectors:
            self._check_selectors(request, path, exactly=bool(sources))
            self._enough(request, path, taken)
        for resource, source in sources:
            self._add(resource, self._by_source(source, request, path) * request.count)
        if not sources:
            for mapping in mappings:
                self._add(mapping.resource, request.count)
        self._on_hosts(request)

    def _on_hosts(self, request: DeviceRequest) -> None:
        """Note the devices that a host must have.

        Devices that match selectors are devices of the class, too.  A part of a device's capacity is not: a whole one
        may serve many claims.
        """
        name = request.device_class
        if not request.capacity:
            self.by_class[name] = saturating_add(self.by_class.get(name, 0), request.count)
        view = view_of(request)
        if view.selectors or view.capacity:
            self.by_view[view] = saturating_add(self.by_view.get(view, 0), request.count)

    def _check_selectors(self, request: DeviceRequest, path: str, *, exactly: bool) -> None:
        """Refuse selectors that cost too much, or that must be evaluated (`exactly`) and cannot be; note the others
        that cannot be.
        """
        number = len(self._world.matching(request.device_class, ()).devices)
        if too_long(request.selectors, number):
            problem = f"the selectors are too long to be evaluated on {number} devices"
            raise DevicesRefused(f"{path}.selectors", problem, "shorten them, or use a class with fewer devices")
        if not self._world.affords(request):
            problem = "the selectors of this namespace have used the time of this second"
            raise DevicesRefused(f"{path}.selectors", problem, "they are tried again soon")
        for i, each in enumerate(request.selectors):
            if problem := problem_of(each):
                refused = DevicesRefused(f"{path}.selectors[{i}].cel.expression", problem, UNREADABLE_REMEDY)
                if exactly or each.problem:
                    raise refused
                self.unjudged.append(f"{refused}; kube-scheduler alone applies it")

    def _check_class(self, name: str, path: str) -> None:
        found = self._world.device_class(name)
        where = f"{path}.deviceClassName"
        if found is None:
            raise DevicesRefused(where, f"DeviceClass {name} does not exist", "let the administrator create it")
        for i, each in enumerate(found.selectors):
            if problem := problem_of(each):
                path = f"{where}: DeviceClass {name} spec.selectors[{i}].cel.expression"
                raise DevicesRefused(path, problem, UNREADABLE_REMEDY)

    def _enough(self, request: DeviceRequest, path: str, taken: set[DeviceKey]) -> None:
        """Refuse a request whose selectors match fewer devices than it asks for; note the devices that it takes."""
        found = self._world.matching(request.device_class, request.selectors)
        free = [device for device in found.devices if device.key not in taken]
        if len(free) < request.count and found.problem:
            raise DevicesRefused(f"{path}.selectors", f"on one device, {found.problem}", "test for it with has(...)")
        if len(free) < request.count:
            problem = f"{len(free)} devices of the cluster match, {request.count} are asked for"
            raise DevicesRefused(f"{path}.selectors", problem, "correct them, or wait")
        taken.update(device.key for device in free[: request.count])

    def _by_source(self, source: AmountSource, request: DeviceRequest, path: str) -> int:
        """Return the amount of a source for one device: the largest that a device of the request has."""
        what = f"{'counter' if source.is_counter else 'capacity'} {source.name} of driver {source.driver}"
        chosen = {device.key for device in self._world.matching(request.device_class, (source.selector,)).devices}
        matching = self._world.matching(request.device_class, request.selectors).devices
        found = [device for device in matching if device.driver == source.driver and device.key in chosen]
        if len(found) < request.count:
            problem = f"{len(found)} devices match the selector of {what}, and it asks for {request.count}"
            raise DevicesRefused(f"{path}.count", problem, "ask for fewer devices, or wait for such devices")
        if source.is_counter:
            taken = [device.counters[source.name] for device in found if source.name in device.counters]
        else:
            taken = _capacities(source.name, request, found, path)
        if not taken:
            problem = f"none of the {len(found)} devices that it may get has {what}"
            raise DevicesRefused(path, problem, "correct its selectors, or wait for such devices")
        return max(0, *taken)

    def add_extended(self, resource: str, amount: int) -> None:
        """Count an extended resource that a class of devices satisfies; every other resource stays as it is."""
        found = self._world.class_of(resource) if amount else None
        if found is None:
            return
        mappings = self._rules.of_class(found.name)
        if any(mapping.sources for mapping in mappings):
            refused = DevicesRefused(
                f"containers[].resources.requests[{resource}]",
                f"DeviceClass {found.name}, whose devices satisfy it, counts by a source",
                "claim the devices by a ResourceClaimTemplate",
            )
            self.refused.append(str(refused))
            return
        for mapping in mappings:
            self._add(mapping.resource, amount)
        if mappings:
            self.replaced.add(resource)
            self.by_class[found.name] = saturating_add(self.by_class.get(found.name, 0), amount)

    def _add(self, resource: str, amount: int) -> None:
        self.amounts[resource] = saturating_add(self.amounts.get(resource, 0), amount)


def too_long(selectors: Sequence[Selector], devices: int) -> bool:
    """Whether the selectors take too long to be evaluated on so many devices."""
    return sum(len(each.text) for each in selectors) * max(devices, _FEWEST) > _MOST_WORK


def view_of(request: DeviceRequest) -> DeviceView:
    """Return the devices of a host that the request may get."""
    return DeviceView(request.device_class, request.selectors, tuple(sorted(request.capacity.items())))


def _capacities(name: str, request: DeviceRequest, devices: Iterable[Device], path: str) -> list[int]:
    """Return the amounts of a capacity that the request would get, from each device that has it and can give it."""
    found: list[int] = []
    has_it = False
    for device in devices:
        if name not in device.capacity:
            continue
        has_it = True
        amount = device.amount_for(name, request.capacity.get(name))
        if amount is not None:
            found.append(amount)
    if has_it and not found:
        where = f"{path}.capacity.requests[{name}]"
        raise DevicesRefused(where, "no device that it may get gives that much", "ask for less")
    return found
