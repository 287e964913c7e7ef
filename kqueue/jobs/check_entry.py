"""The entry of an AdmissionCheck in a Workload's status, as every controller of checks writes it.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.jobs.fields import JSON
from kqueue.state.conditions import cut


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """The new entry of a check in a Workload; `seconds` is the wait before a retry."""

    state: str
    message: str
    seconds: int | None = None
    updates: tuple[JSON, ...] = ()


def new_entry(entry: wire.AdmissionCheckState, answer: CheckAnswer, since: str) -> JSON:
    """Return the entry of the check with an answer; `since` is the present time, in the form of objects.

    The time of the last transition changes with the state only, and the number of retries stays.
    """
    kept = {"name": entry.name, "retryCount": entry.retry_count}
    same = answer.state == entry.state
    told: JSON = {
        **kept,
        "state": answer.state,
        "message": cut(answer.message),
        "lastTransitionTime": msgspec.to_builtins(entry.last_transition_time) if same else since,
        "requeueAfterSeconds": answer.seconds,
        "podSetUpdates": list(answer.updates) or None,
    }
    return {field: value for field, value in told.items() if value is not None}


def answered(
    entries: Sequence[wire.AdmissionCheckState], answers: Mapping[str, CheckAnswer], since: str
) -> list[JSON] | None:
    """Return all entries with the answers, by the name of their check; None when no entry changes."""
    wanted = [
        new_entry(entry, answers[entry.name], since) if entry.name in answers else dict(msgspec.to_builtins(entry))
        for entry in entries
    ]
    return None if msgspec.convert(wanted, tuple[wire.AdmissionCheckState, ...]) == tuple(entries) else wanted
