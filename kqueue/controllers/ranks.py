"""Orders the keys of a work queue by the Workload from the watch.

A rank only orders work: the reconciler reads the present objects, whatever the rank was.
"""

from __future__ import annotations

from collections.abc import Iterable

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.runtime.workqueue import KeyRank
from kqueue.state import checks


def workload_rank(workload: wire.Workload | None) -> KeyRank:
    """Return the rank of a Workload in the queue of its own reconciler; None: the Workload is gone.

    A finished Workload has no quota.  Its only remaining step is its deletion after the retention time.
    """
    if workload is None or model.condition_true(workload, names.CONDITION_FINISHED):
        return KeyRank.FOLLOW
    if workload.metadata.deletion_timestamp is not None or _leaves(workload):
        return KeyRank.FREE
    if _holds(workload):
        admitted = model.condition_true(workload, names.CONDITION_ADMITTED)
        return KeyRank.FOLLOW if admitted else KeyRank.START
    return KeyRank.START if _is_kept_out(workload) else KeyRank.TELL


def owner_rank(workloads: Iterable[wire.Workload], *, ended: bool, held_back: bool) -> KeyRank:
    """Return the rank of a job, pod or group in the queue of its reconciler.

    An owner without an open Workload needs a new Workload, or its running pods must be stopped.

    Args:
        workloads: the owner's Workloads.
        ended: the owner has finished or is gone, so its Workloads release their quota.
        held_back: the owner is suspended or gated, so its admission has to start it.
    """
    open_ones = [w for w in workloads if not model.condition_true(w, names.CONDITION_FINISHED)]
    if any(_leaves(w) or (ended and _holds(w)) for w in open_ones):
        return KeyRank.FREE
    if ended:
        return KeyRank.FOLLOW
    admitted = any(model.condition_true(w, names.CONDITION_ADMITTED) for w in open_ones)
    return KeyRank.START if not open_ones or (held_back and admitted) else KeyRank.FOLLOW


def _holds(workload: wire.Workload) -> bool:
    reserved = model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
    return reserved or workload.status.admission is not None


def _leaves(workload: wire.Workload) -> bool:
    """Whether a Workload has quota that it must release."""
    if not _holds(workload):
        return False
    reserved = model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
    return (
        workload.metadata.deletion_timestamp is not None
        or not workload.spec.active
        or model.condition_true(workload, names.CONDITION_EVICTED)
        or model.condition_true(workload, names.CONDITION_DEACTIVATION_TARGET)
        or reserved is (workload.status.admission is None)
        or any(checks.in_state(workload, state) for state in (names.CHECK_RETRY, names.CHECK_REJECTED))
    )


def _is_kept_out(workload: wire.Workload) -> bool:
    """Whether a Workload without quota is outside its queue, so that a step must add it or remove it."""
    requeued = model.condition(workload.status.conditions, names.CONDITION_REQUEUED)
    return not workload.spec.active or (requeued is not None and requeued.status == "False")
