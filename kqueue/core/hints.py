"""Hints of a joint plan: the one value that a cycle knows of joint placement.

A hint is checked like the answer of a placer.  One that does not hold any more has no effect: its workload is nominated
like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from kqueue.core.flavors import Pins
from kqueue.core.topology.arranged import Hint
from kqueue.core.value import value


@value(kw_only=True)
class WaitForPlace:
    """A workload waits for a better place than those that are free.

    `seconds`: after so many seconds further places are good enough; None: no other place ever is.
    """

    seconds: int | None

    def until(self, now: datetime) -> datetime | None:
        """Return the time from which further places are good enough; None: there is none."""
        return now + timedelta(seconds=self.seconds) if self.seconds is not None else None


@value(kw_only=True)
class PlanHint:
    """The flavors and the domains that a plan proposes for a workload.

    Args:
        flavors: by pod set and resource.
        places: the domains of its pods.
        plan: the name of the plan, for messages; not empty.
        wait: the workload waits for a better place; None: it is placed.
    """

    flavors: Pins
    places: Hint
    plan: str
    wait: WaitForPlace | None = None


Hints = Mapping[str, PlanHint]
"""By the UID of the workload."""
NO_HINTS: Hints = {}


def wait_of(hints: Hints, uid: str) -> WaitForPlace | None:
    """Return what a workload waits for by a plan; None: it does not wait."""
    hint = hints.get(uid)
    return hint.wait if hint is not None else None
