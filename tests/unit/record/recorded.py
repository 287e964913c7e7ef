"""Recorded cycles of random worlds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kqueue.core.plan_question import PlanQuestion
from kqueue.core.workload import Head
from kqueue.record.capture import CapturedCycle, Captures
from tests.unit.core.cycle_worlds import Model
from tests.unit.core.test_progress import bustle, make_model


def cycles(seed: int, number: int) -> Iterator[CapturedCycle]:
    """The cycles of a world; between two of them its workloads come, start and end."""
    model, captures = make_model(seed), Captures()
    for n in range(number):
        bustle(model, 1)
        for _ in range(4):
            model.arrive()
        yield cycle(model, captures, n)


def cycle(model: Model, captures: Captures, number: int) -> CapturedCycle:
    """One plan of the world as it is, captured as the scheduling loop does."""
    claims = model.claims.values()
    question = PlanQuestion(snapshot=model.snapshot(claims), heads=model.heads(), rules=model.rules())
    captured = captures.take(number, question)

    def next_head(queue: str, without: Collection[str]) -> Head | None:
        head = model.next_head(queue, without)
        captured.asked.append((queue, tuple(without), head))
        return head

    captured.decisions.extend(question.decisions(next_head=next_head))
    return captured
