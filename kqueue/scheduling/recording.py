"""Interface through which scheduling reports plans with all that they follow from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from kqueue.core.decision import Decision
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.share_order import NextHead
from kqueue.core.workload import Head


class PlanRecording(Protocol):
    """Records one plan.  Calls must return at once and must not raise."""

    @property
    def question(self) -> PlanQuestion:
        """The question, with plugins whose answers are recorded."""
        ...

    def asking(self, next_head: NextHead) -> NextHead:
        """Return the function with its answers recorded."""
        ...

    def decided(self, decision: Decision) -> None:
        """Record a decision."""
        ...

    def ended(self, error: BaseException | None = None) -> None:
        """Record the end of the plan; `error`: it ended early."""
        ...


class PlanRecorder(Protocol):
    """Records plans.  Calls must return at once and must not raise."""

    def begin(self, question: PlanQuestion, lines: Mapping[str, Mapping[str, Head]]) -> PlanRecording:
        """Record a question as it is now, before it is answered.

        `lines` has the StrictFIFO ClusterQueues of its heads, each with the workloads behind its head by UID; these
        mappings do not change any more.
        """
        ...


def recorded(decisions: Iterator[Decision], recording: PlanRecording) -> Iterator[Decision]:
    """Yield decisions, and record each of them and the end."""
    error: BaseException | None = None
    try:
        for decision in decisions:
            recording.decided(decision)
            yield decision
    except BaseException as e:
        error = e
        raise
    finally:
        recording.ended(error)
