"""Decisions as texts: equal decisions have equal bytes, whichever process made them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kqueue.core.decision import Admit, Decision, Preempt, Wait
from kqueue.core.workload import Admitted, Head
from kqueue.record.entries import to_text
from kqueue.record.plain import Plain, Writers


def _mention(workload: Head | Admitted) -> Plain:
    return {"key": workload.key, "uid": workload.uid, "queue": workload.queue}


def _error(error: Exception) -> Plain:
    return f"{type(error).__name__}: {error}"


_WRITERS = Writers(canonical=True, instead={Head: _mention, Admitted: _mention, Exception: _error})


def answer(decision: Decision) -> bytes:
    """Return a decision in canonical form.  Workloads in it are named; their details are those of the question."""
    return to_text(_plain(decision))


def _plain(decision: Decision) -> Plain:
    written: dict[str, Any] = {"decision": type(decision).__name__}
    written.update(_WRITERS.of(type(decision))(decision))
    if isinstance(decision, Wait):
        written["message"] = decision.details
    return written


FIELDS = {kind.__name__: tuple(f.name for f in fields(kind)) for kind in (Admit, Preempt, Wait)}
"""The fields of each kind of decision, in their order."""
