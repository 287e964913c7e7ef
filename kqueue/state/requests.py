"""Requests of workloads with the additions of namespace and runtime classes, and their cost in quota.

These requests are not written to the API: they follow from the Workload, the LimitRanges of its namespace and the
RuntimeClasses that its templates name.  Equal pod sets are parsed once for all workloads that have them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ResourceList
from kqueue.core.devices.counting import NO_DEVICES, CountedDevices, DeviceRules
from kqueue.core.limit_ranges import (
    NO_LIMITS,
    Bound,
    ContainerLimits,
    NamespaceLimits,
    merged,
    violations,
    with_defaults,
)
from kqueue.core.pod_requests import Amounts, PodResources
from kqueue.core.quantity import saturating_add
from kqueue.core.quota_requests import Counting
from kqueue.core.workload import Admission, Head, PodSet, Replaced
from kqueue.errors import InvalidObjectError
from kqueue.model import DEFAULT_ORDER, QueueOrder
from kqueue.model.pending import Pending, RequestSummary
from kqueue.state.devices import DeviceObjects, Version

_log = structlog.get_logger(__name__)

_MOST_FORMS = 10_000
"""The number of forms of pod sets that are kept.  A form takes a few KiB; workloads of one owner usually share
a form.
"""


_CLAIMS_REFUSED = (
    "spec.resourceClaims claims devices, which are not counted against quota; ask for an extended resource instead, or "
    "let the administrator map their DeviceClass in resources.deviceClassMappings (feature gate KueueDRAIntegration)"
)


@dataclass(slots=True)
class _Form:
    """The requests of equal pod sets in equal namespaces."""

    per_pod: dict[str, Amounts]
    """The requests of one pod for its node by pod set; empty for a pod set that cannot be parsed."""
    costs: dict[str, Amounts] = field(default_factory=dict)
    """The quota of one pod by pod set."""
    unreadable: str = ""
    refused: str = ""
    """The reason why pods with these requests are refused; empty: they are not refused."""
    devices: str = ""
    """A text for the quota of claimed devices, equal for equal quota; empty: no devices are claimed."""
    unjudged: tuple[str, ...] = ()
    """A sentence for each selector of devices that kube-scheduler alone applies."""
    pod_sets: dict[bool, tuple[PodSet, ...]] = field(default_factory=dict)
    """The pod sets in the form of planning, by whether pod sets without a topology request are placed, too."""


@dataclass(frozen=True, slots=True)
class _NamespaceRules:
    """The defaults and limits of a namespace, and a text that is equal for equal rules."""

    limits: NamespaceLimits
    text: str


_NOTHING = _NamespaceRules(NO_LIMITS, "")
_NO_OVERHEAD: tuple[dict[str, int], str] = ({}, "")


class Requests:
    """Computes the requests of workloads with the newest LimitRanges and RuntimeClasses."""

    def __init__(
        self,
        counting: Counting | None = None,
        *,
        partial_admission: bool = False,
        reclaims: bool = True,
        refuses_claims: bool = False,
        devices: DeviceRules | None = None,
    ) -> None:
        """Take the options. `counting` computes the cost of requests in quota; `partial_admission`: a pod set's
        `minCount` is used.

        `reclaims`: `status.reclaimablePods` is used (gate ReclaimablePods); without it the field is ignored.
        `devices`: how the devices that pods claim (DRA) are counted; None: they are not. Then `refuses_claims`: pods
        that claim devices are refused.
        """
        self._counting = counting or Counting()
        self._partial = partial_admission
        self._reclaims = reclaims
        self._refuses_claims = refuses_claims and devices is None
        self.devices = DeviceObjects(devices)
        """The objects by which claimed devices are counted."""
        self._limit_ranges: dict[str, dict[str, wire_core.LimitRange]] = {}
        self._namespaces: dict[str, _NamespaceRules] = {}
        self._overheads: dict[str, tuple[dict[str, int], str]] = {}
        self._overhead_changes = 0
        self._forms: OrderedDict[tuple[object, ...], _Form] = OrderedDict()

    # --- surroundings ------------------------------------------------------------------------------------------

    def on_limit_range(self, old: wire_core.LimitRange | None, new: wire_core.LimitRange | None) -> str | None:
        """Follow a LimitRange that came, changed or is gone; return the affected namespace, None: no rule has
        changed.
        """
        seen = new if new is not None else old
        assert seen is not None
        namespace, name = seen.metadata.namespace, seen.metadata.name
        ranges = self._limit_ranges.setdefault(namespace, {})
        if new is None:
            ranges.pop(name, None)
        else:
            ranges[name] = new
        if not ranges:
            del self._limit_ranges[namespace]
        before = self._rules_of(namespace)
        after = _namespace_rules([ranges[key] for key in sorted(ranges)])
        if after.text == before.text:
            return None
        if after.text:
            self._namespaces[namespace] = after
        else:
            self._namespaces.pop(namespace, None)
        return namespace

    def on_runtime_class(self, old: wire_core.RuntimeClass | None, new: wire_core.RuntimeClass | None) -> str | None:
        """Follow a RuntimeClass that came, changed or is gone; return its name, None: the overhead of its pods is the
        same.
        """
        seen = new if new is not None else old
        assert seen is not None
        name = seen.metadata.name
        overhead: dict[str, int] = {}
        if new is not None and new.overhead is not None:
            try:
                overhead = model.amounts(new.overhead.pod_fixed, "overhead.podFixed")
            except InvalidObjectError as e:
                _log.warning("the overhead of a RuntimeClass cannot be parsed and is ignored", name=name, error=str(e))
        text = _text(sorted(overhead.items())) if overhead else ""
        if text == self._overheads.get(name, _NO_OVERHEAD)[1]:
            return None
        if overhead:
            self._overheads[name] = overhead, text
        else:
            del self._overheads[name]
        self._overhead_changes += 1
        return name

    def _rules_of(self, namespace: str) -> _NamespaceRules:
        return self._namespaces.get(namespace, _NOTHING)

    def _overhead(self, spec: wire_core.PodSpec) -> tuple[dict[str, int], str]:
        """Return the overhead of a pod's runtime class; empty if the pod has its own, or the class is not known."""
        if spec.overhead or not spec.runtime_class_name:
            return _NO_OVERHEAD
        return self._overheads.get(spec.runtime_class_name, _NO_OVERHEAD)

    # --- workloads ---------------------------------------------------------------------------------------------

    def admission(self, obj: wire.Workload) -> Admission | None:
        """Return the admission in the status; see `model.admission`."""
        return model.admission(obj, reclaims=self._reclaims)

    def pending(self, obj: wire.Workload, order: QueueOrder = DEFAULT_ORDER) -> Pending:
        """Return a waiting workload's entry for the queues."""
        added = [self._rules_of(obj.metadata.namespace).text]
        added += [self._overhead(p.template.spec)[1] for p in obj.spec.pod_sets]
        if self.needs_devices(obj):
            added.append(self._form(obj, self._summary(obj)).devices)
        return model.pending(obj, order, added=added if any(added) else (), reclaims=self._reclaims)

    def head(
        self,
        obj: wire.Workload,
        item: Pending | None = None,
        *,
        queue: str,
        topology_only: bool,
        last_tried: Mapping[tuple[str, str], int],
        replaces: Replaced | None = None,
        order: QueueOrder = DEFAULT_ORDER,
    ) -> Head:
        """Return a pending workload as the planner's input; see `model.head`.

        `item` is its entry in the queues: while the entry is current, nothing is parsed again. Raises
        InvalidObjectError when its requests are not valid.
        """
        asked = item.asked if item is not None and item.uid == obj.metadata.uid else None
        if asked is None or asked.generation != obj.metadata.generation or asked.ended != self._ended(obj):
            asked = self._summary(obj)
        form = self._form(obj, asked)
        if form.unreadable:
            self._read_all(obj)
        pod_sets = form.pod_sets.get(topology_only)
        if pod_sets is None:
            pod_sets = form.pod_sets[topology_only] = self._pod_sets(obj, form, asked, implied=topology_only)
        return model.head(
            obj,
            queue=queue,
            topology_only=topology_only,
            last_tried=last_tried,
            replaces=replaces,
            order=order,
            key=item.key if item is not None else None,
            pod_sets=pod_sets,
            refused=form.refused,
        )

    def per_pod(self, obj: wire.Workload) -> dict[str, Amounts]:
        """Return the requests of one pod by pod set, for its node, with its devices; empty for a pod set that cannot be
        parsed.
        """
        return self._form(obj, self._summary(obj)).per_pod

    def costs(self, obj: wire.Workload) -> dict[str, Amounts]:
        """Return the quota of one pod by pod set; empty for a pod set that cannot be parsed."""
        return self._form(obj, self._summary(obj)).costs

    def total(self, obj: wire.Workload) -> dict[str, int]:
        """Return the quota requests of the whole workload by resource, without pods that have ended for good."""
        asked = self._summary(obj)
        form, ended = self._form(obj, asked), dict(asked.ended)
        total: dict[str, int] = {}
        for p in obj.spec.pod_sets:
            pods = max(0, p.count - ended.get(p.name, 0))
            for resource, amount in form.costs[p.name].items():
                total[resource] = saturating_add(total.get(resource, 0), pods * amount)
        return total

    def problem(self, obj: wire.Workload) -> str:
        """Return why the workload cannot be admitted with its present requests; empty: it can."""
        form = self._form(obj, self._summary(obj))
        return form.unreadable or form.refused

    def unjudged(self, obj: wire.Workload) -> tuple[str, ...]:
        """Return a sentence for each selector of devices that kube-scheduler alone applies."""
        return self._form(obj, self._summary(obj)).unjudged if self.needs_devices(obj) else ()

    def needs_devices(self, obj: wire.Workload) -> bool:
        """Whether pods of the workload ask for devices that are counted."""
        return any(self._device_versions(obj))

    def _summary(self, obj: wire.Workload) -> RequestSummary:
        return model.asked_for(obj, reclaims=self._reclaims)

    def _ended(self, obj: wire.Workload) -> tuple[tuple[str, int], ...]:
        return model.ended_pods(obj) if self._reclaims else ()

    # --- forms -------------------------------------------------------------------------------------------------

    def _form(self, obj: wire.Workload, asked: RequestSummary) -> _Form:
        rules = self._rules_of(obj.metadata.namespace)
        devices = self._device_versions(obj)
        of_devices = (obj.metadata.namespace, devices) if any(devices) else ()
        key = (asked.pods, asked.ended, rules.text, self._overhead_changes, of_devices)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.popitem(last=False)  # the oldest; it is computed again when needed
            form = self._forms[key] = self._read(obj, rules.limits)
        return form

    def _device_versions(self, obj: wire.Workload) -> tuple[Version | None, ...]:
        """Return by pod set the versions of the objects on which the cost of its devices depends."""
        if self.devices.rules is None:
            return ()
        return tuple(self.devices.version(obj.metadata.namespace, p.template.spec) for p in obj.spec.pod_sets)

    def _read(self, obj: wire.Workload, limits: NamespaceLimits) -> _Form:
        form = _Form({})
        problems: list[str] = []
        unreadable: list[str] = []
        devices: list[CountedDevices] = []
        for i, p in enumerate(obj.spec.pod_sets):
            try:
                pod = self._pod(p.template.spec, i, limits)
            except InvalidObjectError as e:
                form.per_pod[p.name] = form.costs[p.name] = {}
                unreadable.append(str(e))
                continue
            counted = self._count(form, p, obj.metadata.namespace, pod.total())
            devices.append(counted)
            problems += [f"Pod set {p.name}: {problem}" for problem in counted.refused]
            problems += [f"Pod set {p.name}: {problem}" for problem in violations(pod, limits)]
            if self._refuses_claims and _claims_devices(p.template.spec):
                problems.append(f"Pod set {p.name}: {_CLAIMS_REFUSED}")
        form.unreadable, form.refused = "; ".join(unreadable), "; ".join(problems)
        form.unjudged = tuple(text for each in devices for text in each.unjudged)
        if any(each != NO_DEVICES for each in devices):
            form.devices = _text([_plain(each) for each in devices])
        return form

    def _count(self, form: _Form, p: wire.PodSet, namespace: str, total: Mapping[str, int]) -> CountedDevices:
        """Put the requests of a pod set into the form; return the cost of its devices."""
        spec, counted = p.template.spec, NO_DEVICES
        costs = self._counting.counted(total)
        if self.devices.version(namespace, spec) is not None:
            counted = self.devices.counted(namespace, spec, total)
            costs = {resource: amount for resource, amount in costs.items() if resource not in counted.replaced}
            for resource, amount in counted.amounts.items():
                costs[resource] = saturating_add(costs.get(resource, 0), amount)
            total = self.devices.on_host(counted, total)
        form.per_pod[p.name], form.costs[p.name] = total, costs
        return counted

    def _pod(self, spec: wire_core.PodSpec, index: int, limits: NamespaceLimits) -> PodResources:
        pod = model.pod_resources(spec, model.template_path(index))
        overhead, _ = self._overhead(spec)
        return with_defaults(replace(pod, overhead=overhead) if overhead else pod, limits)

    def _read_all(self, obj: wire.Workload) -> None:
        """Raise InvalidObjectError for the first pod set that cannot be parsed."""
        for i, p in enumerate(obj.spec.pod_sets):
            model.pod_resources(p.template.spec, model.template_path(i))

    def _pod_sets(self, obj: wire.Workload, form: _Form, asked: RequestSummary, *, implied: bool) -> tuple[PodSet, ...]:
        ended, rules = dict(asked.ended), model.neighbours(obj)
        return tuple(
            model.pod_set(
                p,
                form.per_pod[p.name],
                costs=form.costs[p.name],
                ended=ended.get(p.name, 0),
                implied=implied,
                partial=self._partial,
                rules=rules.get(p.name, model.NO_RULES),
                node_class=model.class_request(p.template.metadata, obj.metadata),
                together=model.is_together(obj),
            )
            for p in obj.spec.pod_sets
        )


def _plain(counted: CountedDevices) -> tuple[object, ...]:
    """Return the cost of devices in a form that is equal for equal cost."""
    return (
        sorted(counted.amounts.items()),
        sorted(counted.by_class.items()),
        sorted((view.row, number) for view, number in counted.by_view.items()),
        sorted(counted.replaced),
        counted.refused,
    )


def _claims_devices(spec: wire_core.PodSpec) -> bool:
    """Whether the pod, or one of its containers, claims devices (dynamic resource allocation)."""
    return bool(spec.resource_claims) or any(c.resources.claims for c in (*spec.containers, *spec.init_containers))


def _namespace_rules(ranges: Iterable[wire_core.LimitRange]) -> _NamespaceRules:
    """Return the combined rules of LimitRanges. Parts that are not valid are ignored and logged."""
    by_type: dict[str, list[ContainerLimits]] = {"Container": [], "Pod": []}
    for one in ranges:
        for item in one.spec.limits or ():
            if item.type in by_type:
                by_type[item.type].append(_limits(item, one.metadata.name))
    if not any(by_type.values()):
        return _NOTHING
    limits = NamespaceLimits(container=merged(by_type["Container"]), pod=merged(by_type["Pod"]))
    return _NamespaceRules(limits, _text(limits))


def _limits(item: wire_core.LimitRangeItem, name: str) -> ContainerLimits:
    def read(written: ResourceList, field_: str) -> Amounts:
        found: dict[str, int] = {}
        for resource, text in written.items():
            try:
                found |= model.amounts({resource: text}, field_)
            except InvalidObjectError as e:
                _log.warning("a part of a LimitRange cannot be parsed and is ignored", name=name, error=str(e))
        return found

    return ContainerLimits(
        default=read(item.default, "default"),
        default_request=read(item.default_request, "defaultRequest"),
        most={resource: Bound(amount, name) for resource, amount in read(item.max, "max").items()},
        least={resource: Bound(amount, name) for resource, amount in read(item.min, "min").items()},
    )


def _text(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
