"""Verdicts of steps, and the functions that run steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kqueue.clock import Clock
from kqueue.errors import ForbiddenError, KqueueError, UnreachableError

JSON = dict[str, Any]
STEP_SECONDS = 90.0
"""Limit of a step, after which it has failed; the longest step watches a Lease of a minute."""


class StepStatus(StrEnum):
    """Results of a step."""

    OK = "ok"
    WARNING = "warning"
    """The step passed with a remark, or could not be checked."""
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The result of a step. `details` are further lines, such as names of objects."""

    status: StepStatus
    message: str
    remedy: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckStep:
    """A step that has ended."""

    name: str
    seconds: float
    verdict: CheckVerdict

    def as_json(self) -> JSON:
        """Return the step as JSON."""
        verdict = self.verdict
        return {
            "name": self.name,
            "status": verdict.status.value,
            "seconds": round(self.seconds, 3),
            "message": verdict.message,
            "remedy": verdict.remedy,
            "details": list(verdict.details),
        }


def ok(message: str, *details: str) -> CheckVerdict:
    """Return a verdict of a step that passed."""
    return CheckVerdict(StepStatus.OK, message, "", details)


def warning(message: str, remedy: str, *details: str) -> CheckVerdict:
    """Return a verdict that needs attention but is no failure."""
    return CheckVerdict(StepStatus.WARNING, message, remedy, details)


def failed(message: str, remedy: str, *details: str) -> CheckVerdict:
    """Return a verdict of a failure that keeps jobs from starting."""
    return CheckVerdict(StepStatus.FAILED, message, remedy, details)


def skipped(message: str) -> CheckVerdict:
    """Return the verdict of a step that was not run."""
    return CheckVerdict(StepStatus.SKIPPED, message)


def many(count: int, word: str) -> str:
    """Return a count with its noun: `1 flavor`, `3 flavors`, `2 Topologies`."""
    plural = f"{word[:-1]}ies" if word.endswith(("gy", "ty")) else f"{word}s"
    return f"{count} {word if count == 1 else plural}"


PAUSE_SECONDS = 2.0
"""Seconds between two tries of a failing step."""
Check = Callable[[], Awaitable[CheckVerdict]]


async def examine(
    checks: Iterable[tuple[str, Check]],
    clock: Clock,
    tell: Callable[[CheckStep], None],
    *,
    seconds: float = STEP_SECONDS,
    patience: float = 0.0,
) -> list[CheckStep]:
    """Run the checks one after the other, and report each when it is over.

    If the API server does not answer, the rest is skipped.

    Args:
        checks: names and checks, in their order.
        clock: measures each step.
        tell: gets each step when it is over.
        seconds: limit of one try.
        patience: seconds from the start in which failing checks are repeated, because kqueue may just be starting.
    """
    steps: list[CheckStep] = []
    unreachable = ""
    until = clock.monotonic() + patience
    for name, check in checks:
        before = clock.monotonic()
        verdict = skipped(unreachable) if unreachable else await judged(check, seconds)
        while verdict.status is StepStatus.FAILED and clock.monotonic() + PAUSE_SECONDS <= until:
            await clock.sleep(PAUSE_SECONDS)
            verdict = await judged(check, seconds)
        steps.append(CheckStep(name, clock.monotonic() - before, verdict))
        tell(steps[-1])
        if len(steps) == 1 and verdict.status is StepStatus.FAILED:
            unreachable = "the API server does not answer"
    return steps


async def judged(check: Check, seconds: float = STEP_SECONDS) -> CheckVerdict:
    """Run a check and return its verdict; an error becomes a verdict, too."""
    try:
        async with asyncio.timeout(seconds):
            return await check()
    except TimeoutError:
        return failed(f"it was not over within {seconds:g} s", "look whether the API server is slow, and try again")
    except ForbiddenError as e:
        return warning(f"you may not: {e}", "run kqueue doctor as a user with more rights")
    except UnreachableError as e:
        return failed(str(e), "check the address and the network: kubectl version")
    except KqueueError as e:
        return failed(str(e), "see the message")
