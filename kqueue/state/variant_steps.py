"""The next writes of concurrent admission: from a parent, its variants and its ClusterQueue's flavors.  Pure.

    parent (of a job, in no queue)              variants (one per flavor, queued; they hold the quota)
      admitted  ◄──── copy of the admission ──── the most preferred admitted variant
      Evicted   ◄──── first ──────────────────── Evicted, and still with its reservation
      released  ────► then it is released ─────► waits again
      pods, end ────► PodsReady, Finished ─────► the same

Every step is decided on the newest state of all, and each of them again when it is written, so a process that is killed
between two writes continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from kqueue import model
from kqueue.api import names, quota_names, variant_names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import moment_after
from kqueue.core.value import value
from kqueue.kube.owned_names import LONG_NAME
from kqueue.model.conditions import NO_TIME
from kqueue.model.variants import VariantPolicy, by_flavor, flavors_of, variant_fault
from kqueue.state import requeueing, waiting
from kqueue.state.preemption_gates import opened_at

GATE_PAUSE = timedelta(minutes=5)
"""The time after the opening of a preemption gate in which no other gate of the same parent is opened."""
_BLOCKS = frozenset(
    {
        names.REASON_SUSPENDED,
        names.REASON_MISCONFIGURED,
        names.REASON_DEACTIVATED,
        quota_names.REASON_BUDGET_EXHAUSTED,
    }
)
"""Reasons of Workloads that are not tried."""
_OURS = frozenset({variant_names.REASON_VARIANT_EVICTED, variant_names.REASON_CONCURRENT_ADMISSION})
"""Reasons for which kqueue evicts a parent because of its variants; after them its variants are tried at once."""


class StepKind(StrEnum):
    """The kinds of writes."""

    EVICT_PARENT = "EvictParent"
    EVICT_VARIANT = "EvictVariant"
    RELEASE = "Release"
    """Remove the reservation of an evicted variant."""
    DEACTIVATE = "Deactivate"
    ACTIVATE = "Activate"
    ADMIT_PARENT = "AdmitParent"
    COPY_PODS = "CopyPods"
    """Copy PodsReady, ended pods and failed hosts of the parent to the admitted variant: its hosts are replaced."""
    FINISH = "Finish"
    AMEND = "Amend"
    """Copy the priority of the parent to a variant."""
    OPEN_GATE = "OpenGate"
    DELETE = "Delete"
    CREATE = "Create"


@value(kw_only=True)
class VariantStep:
    """One write.

    Args:
        kind: the write.
        flavor: the variant's flavor; empty for a Workload that is no variant.
        key: namespace/name of the variant; empty: it does not exist yet.
        reason: of the condition that is written.
        message: the sentence of that condition, or the cause of the write.
        active: whether a created variant may be tried at once.
    """

    kind: StepKind
    flavor: str = ""
    key: str = ""
    reason: str = ""
    message: str = ""
    active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFamily:
    """A parent with its variants, as the watches have them.

    Args:
        parent: the Workload of the job.
        variants: by flavor, in the order of `policy`; flavors without a variant are missing.
        others: Workloads that the parent controls and that are none of these variants, with the reason.
        policy: the rules of the ClusterQueue.
    """

    parent: wire.Workload
    variants: Mapping[str, wire.Workload]
    policy: VariantPolicy
    others: tuple[tuple[wire.Workload, str], ...] = ()


def family_of(
    parent: wire.Workload, owned: Iterable[wire.Workload], policy: VariantPolicy, *, limit: int = LONG_NAME
) -> VariantFamily:
    """Return a parent with the Workloads that it controls; one that has finished before its parent is none of its
    variants: it can hold no quota any more.
    """
    ended = model.condition_true(parent, names.CONDITION_FINISHED)
    variants, strangers = by_flavor(owned, parent, policy, limit=limit)
    others = [
        (obj, variant_fault(obj, parent, limit=limit) or "its flavor is no longer one of the ClusterQueue")
        for obj in strangers
    ]
    for flavor, variant in list(variants.items()):
        why = "" if ended else _is_useless(parent, variant)
        if why:
            others.append((variant, why))
            variants = {f: v for f, v in variants.items() if f != flavor}
    return VariantFamily(parent=parent, variants=variants, policy=policy, others=tuple(others))


def _is_useless(parent: wire.Workload, variant: wire.Workload) -> str:
    """Return why a variant must be made anew; empty: it need not be."""
    if model.condition_true(variant, names.CONDITION_FINISHED):
        return "it has finished before its parent"
    if not parent.spec.active and _was_given_up(variant) and not is_reserved(variant):
        return "it was given up, and its parent is inactive"
    return ""


def steps(family: VariantFamily, now: datetime) -> Iterator[VariantStep]:
    """Yield the next writes, in an order in which the ones that stop something come first."""
    if family.parent.metadata.deletion_timestamp is not None:
        return  # its variants are collected with it
    if model.condition_true(family.parent, names.CONDITION_FINISHED):
        yield from _finish(family)
        return
    yield from _leave(family)
    yield from _switch(family, now)
    yield from _follow(family, now)
    yield from _amend(family)
    gate = gate_to_open(family)
    if gate is not None and gate.due <= now:
        yield VariantStep(
            kind=StepKind.OPEN_GATE, flavor=gate.flavor, key=model.workload_key(family.variants[gate.flavor])
        )
    for other, why in family.others:
        yield VariantStep(kind=StepKind.DELETE, key=model.workload_key(other), message=why)
    wanted = wanted_active(family, now)
    for flavor in family.policy.flavors:
        if flavor not in family.variants:
            yield VariantStep(kind=StepKind.CREATE, flavor=flavor, active=flavor in wanted)


# --- the state of both sides -----------------------------------------------------------------------------------------


def is_reserved(obj: wire.Workload) -> bool:
    """Whether the Workload has a reservation by its status."""
    return obj.status.admission is not None or model.condition_true(obj, names.CONDITION_QUOTA_RESERVED)


def is_held_back(parent: wire.Workload, now: datetime) -> bool:
    """Whether no variant may be tried: the parent is inactive, gated, or waits after an eviction of its own."""
    if not parent.spec.active or parent.metadata.annotations.get(names.ADMISSION_GATED_BY_ANNOTATION):
        return True
    if requeueing.waits_until(parent, now) is not None:
        return True
    requeued = model.condition(parent.status.conditions, names.CONDITION_REQUEUED)
    return requeued is not None and requeued.status == "False" and requeued.reason not in _OURS


def admitted_flavor(family: VariantFamily) -> str | None:
    """Return the most preferred flavor whose variant is admitted, also one that leaves; None: no variant is."""
    return next((flavor for flavor, variant in family.variants.items() if model.is_admitted(variant)), None)


def _is_evicted(obj: wire.Workload) -> bool:
    return model.condition_true(obj, names.CONDITION_EVICTED)


def _runs_by(family: VariantFamily, variant: wire.Workload) -> bool:
    """Whether the parent has the admission of this variant."""
    return is_reserved(family.parent) and flavors_of(family.parent) == flavors_of(variant)


# --- evictions -------------------------------------------------------------------------------------------------------


def _leave(family: VariantFamily) -> Iterator[VariantStep]:
    """Yield the steps of evictions: that of a variant goes to its parent and back, that of a parent to its variant."""
    parent = family.parent
    for flavor, variant in family.variants.items():
        key, told = model.workload_key(variant), model.condition(variant.status.conditions, names.CONDITION_EVICTED)
        if told is not None and told.status == "True":
            if is_reserved(variant) and not _runs_by(family, variant):
                yield VariantStep(kind=StepKind.RELEASE, flavor=flavor, key=key, message=told.message)
            elif is_reserved(variant) and not _is_evicted(parent):
                reason = variant_names.REASON_VARIANT_EVICTED
                yield VariantStep(
                    kind=StepKind.EVICT_PARENT, flavor=flavor, key=key, reason=reason, message=told.message
                )
        elif (own := _own_eviction(family, variant)) is not None:
            yield VariantStep(
                kind=StepKind.EVICT_VARIANT, flavor=flavor, key=key, reason=own.reason, message=own.message
            )


def _own_eviction(family: VariantFamily, variant: wire.Workload) -> Condition | None:
    """Return the eviction of the parent that its admitted variant has not followed yet; None: there is none.

    An eviction that kqueue wrote because of a variant is not followed by others, and one from before the variant's
    admission is over.
    """
    told = model.condition(family.parent.status.conditions, names.CONDITION_EVICTED)
    if told is None or told.status != "True" or told.reason in _OURS or not model.is_admitted(variant):
        return None
    if not family.parent.spec.active:
        return None  # its variants are deactivated, too
    since = model.since(variant, names.CONDITION_ADMITTED)
    return told if (since or NO_TIME) <= (told.last_transition_time or NO_TIME) else None


# --- which variants are tried ----------------------------------------------------------------------------------------


def wanted_active(family: VariantFamily, now: datetime) -> frozenset[str]:
    """Return the flavors whose variants may be tried, or are admitted."""
    if is_held_back(family.parent, now):
        return frozenset()
    flavors, held = family.policy.flavors, admitted_flavor(family)
    if held is None:
        return frozenset(flavors)
    before = flavors[: flavors.index(held)]
    return frozenset({held, *filter(family.policy.may_move_to, before)})


def _switch(family: VariantFamily, now: datetime) -> Iterator[VariantStep]:
    wanted, held = wanted_active(family, now), admitted_flavor(family)
    why = f"the variant for flavor {held} is admitted" if held is not None else "its parent is not to be tried now"
    for flavor, variant in family.variants.items():
        key = model.workload_key(variant)
        if variant.spec.active and flavor not in wanted:
            yield VariantStep(kind=StepKind.DEACTIVATE, flavor=flavor, key=key, message=why)
        elif not variant.spec.active and flavor in wanted and not _was_given_up(variant):
            yield VariantStep(kind=StepKind.ACTIVATE, flavor=flavor, key=key, message="it may be tried again")


def _was_given_up(variant: wire.Workload) -> bool:
    """Whether kqueue deactivated the variant for a cause of its own, such as a check that rejected it."""
    evicted = model.condition(variant.status.conditions, names.CONDITION_EVICTED)
    caused = evicted is not None and evicted.reason.startswith(names.DEACTIVATED_DUE_TO_PREFIX)
    return caused or model.condition_true(variant, names.CONDITION_DEACTIVATION_TARGET)


# --- the parent follows its variant, and its variant the parent's pods -----------------------------------------------


def _follow(family: VariantFamily, now: datetime) -> Iterator[VariantStep]:
    parent, flavor = family.parent, _to_copy(family, now)
    if is_reserved(parent):
        runs_by = next((f for f, v in family.variants.items() if is_reserved(v) and _runs_by(family, v)), None)
        if runs_by is None:
            if not _is_evicted(parent):
                reason = variant_names.REASON_CONCURRENT_ADMISSION
                message = "None of its variants holds the quota that its job uses"
                yield VariantStep(kind=StepKind.EVICT_PARENT, reason=reason, message=message)
            return
        variant = family.variants[runs_by]
        if _is_evicted(parent) or _is_evicted(variant):
            return
        if flavor == runs_by and parent.status.admission != variant.status.admission:
            yield VariantStep(kind=StepKind.ADMIT_PARENT, flavor=runs_by, key=model.workload_key(variant))
        elif pods_told(parent) != pods_told(variant):
            yield VariantStep(kind=StepKind.COPY_PODS, flavor=runs_by, key=model.workload_key(variant))
    elif flavor is not None:
        yield VariantStep(kind=StepKind.ADMIT_PARENT, flavor=flavor, key=model.workload_key(family.variants[flavor]))


def _to_copy(family: VariantFamily, now: datetime) -> str | None:
    """Return the flavor of the variant whose admission the parent gets; None: it gets none now."""
    if is_held_back(family.parent, now):
        return None
    for flavor, variant in family.variants.items():
        if model.is_admitted(variant):
            stays = variant.spec.active and not _is_evicted(variant) and _own_eviction(family, variant) is None
            return flavor if stays else None
    return None


@value()
class PodsTold:
    """The facts that a Workload tells of its pods: status and reason of PodsReady, ended pods, and failed hosts."""

    ready: tuple[str, str]
    reclaimable: tuple[wire.ReclaimablePod, ...]
    finished: tuple[wire.FinishedPods, ...]
    failed: tuple[wire.UnhealthyNode, ...]


def pods_told(obj: wire.Workload) -> PodsTold:
    """Return what a Workload tells of its pods."""
    ready, status = model.condition(obj.status.conditions, names.CONDITION_PODS_READY), obj.status
    told = (ready.status, ready.reason) if ready is not None else ("", "")
    return PodsTold(told, status.reclaimable_pods, status.finished_pods, status.unhealthy_nodes)


def _finish(family: VariantFamily) -> Iterator[VariantStep]:
    ended = model.condition(family.parent.status.conditions, names.CONDITION_FINISHED)
    assert ended is not None
    for flavor, variant in family.variants.items():
        if not model.condition_true(variant, names.CONDITION_FINISHED):
            key = model.workload_key(variant)
            yield VariantStep(kind=StepKind.FINISH, flavor=flavor, key=key, reason=ended.reason, message=ended.message)


def _amend(family: VariantFamily) -> Iterator[VariantStep]:
    wanted = family.parent.spec
    for flavor, variant in family.variants.items():
        held = variant.spec
        same_class = held.priority_class_ref == wanted.priority_class_ref
        if same_class and held.priority == wanted.priority:
            continue
        if same_class or not is_reserved(variant):  # otherwise the API refuses another class
            yield VariantStep(kind=StepKind.AMEND, flavor=flavor, key=model.workload_key(variant))


def reason_to_wait(family: VariantFamily, now: datetime) -> tuple[str, str] | None:
    """Return why the parent waits, from what was found for its variants: reason and message; None: it does not wait for
    them, or they were not tried.
    """
    if is_reserved(family.parent) or is_held_back(family.parent, now):
        return None
    told = {
        flavor: found
        for flavor, variant in family.variants.items()
        if variant.spec.active
        and (found := model.condition(variant.status.conditions, names.CONDITION_QUOTA_RESERVED)) is not None
    }
    if not told or any(found.reason in _BLOCKS for found in told.values()):
        return None  # what blocks its queue is written on the parent, too
    reasons = {found.reason for found in told.values()}
    reason = reasons.pop() if len(reasons) == 1 and reasons <= waiting.OF_A_MOMENT else names.REASON_PENDING_EVALUATION
    causes = [
        f"{flavor}: {'its checks are pending' if found.status == 'True' else waiting.cause_of(found.message)}"
        for flavor, found in told.items()
    ]
    return reason, f"Tried by variants; {'; '.join(causes)}"


# --- preemption gates ------------------------------------------------------------------------------------------------


@value()
class GateToOpen:
    """The variant whose preemption gate is the next to be opened, and the time from which it may be."""

    flavor: str
    due: datetime


def gate_to_open(family: VariantFamily) -> GateToOpen | None:
    """Return the next preemption gate to open; None: none is, as far as the variants were tried."""
    chosen = None
    for flavor in family.policy.flavors:
        variant = family.variants.get(flavor)
        if variant is not None and (not model.is_queueable(variant) or _opened(variant) is not None):
            continue
        if variant is None or model.condition(variant.status.conditions, names.CONDITION_QUOTA_RESERVED) is None:
            return None
        if model.condition_true(variant, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES):
            chosen = flavor
            break
    if chosen is None:
        return None
    opened = [at for variant in family.variants.values() if (at := _opened(variant)) is not None]
    return GateToOpen(chosen, moment_after(max(opened), GATE_PAUSE) if opened else NO_TIME)


def _opened(variant: wire.Workload) -> datetime | None:
    """Return the time at which the gate of concurrent admission was opened; None: it is closed."""
    return opened_at(variant, variant_names.CONCURRENT_ADMISSION_GATE)
