"""Adds the annotations with start times to a process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kqueue.controllers.start_notes import StartNotes, Told, nothing_told

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator


def add_start_notes(operator: Operator) -> None:
    """Let the leader write start times to waiting Workloads, or remove those that were written before.

    Call it before `run`, in a process that plans.
    """
    manager, workloads = operator.manager, operator.watches.workloads
    notes = StartNotes(
        workloads=workloads.store,
        writer=manager.workload_writer,
        told=_told(operator) if operator.config.start_times.annotate else nothing_told,
        clock=operator.clock,
        settings=operator.config.start_times,
    )
    workloads.subscribe(notes.on_workload)
    manager.background.append(notes.run)


def _told(operator: Operator) -> Told:
    from kqueue.manager.start_times import told_by_key  # imports what explains why workloads wait

    return partial(told_by_key, operator)
