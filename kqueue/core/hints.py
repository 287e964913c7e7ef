"""Hints of a joint plan: the one value that a cycle knows of joint placement.

A hint is checked like the answer of a placer.  One that does not hold any more has no effect: its workload is nominated
like all others.
"""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.flavors import Pins
from kqueue.core.topology.arranged import Hint
from kqueue.core.value import value


@value(kw_only=True)
class PlanHint:
    """The flavors and the domains that a plan proposes for a workload.

    Args:
        flavors: by pod set and resource.
        places: the domains of its pods.
        plan: the name of the plan, for messages; not empty.
    """

    flavors: Pins
    places: Hint
    plan: str


Hints = Mapping[str, PlanHint]
"""By the UID of the workload."""
NO_HINTS: Hints = {}
