"""Makes the view that says what other policy, priorities or nodes would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqueue.jobs.registry import declared_for
from kqueue.manager.admission import policy_of
from kqueue.manager.explaining import make_prospects, sources_of
from kqueue.manager.proposing import PolicyManifestReader
from kqueue.manager.start_times import make_questions
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.start_times import StartTimeViews
from kqueue.visibility.what_if import WhatIfTimes, WhatIfView
from webhooks.routes import routes

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator


def make_what_ifs(operator: Operator, starts: StartTimeViews, pending: PendingWorkloads) -> WhatIfView:
    """Return the view."""
    sources, config = sources_of(operator), operator.config
    handlers = routes(
        config.integrations.frameworks,
        operator.manager.switches,
        policy=policy_of(config),
        declared=declared_for(config),
    )
    return WhatIfView(
        make_prospects(operator),
        PolicyManifestReader(handlers, sources.known, sources.held_back_under),
        has_class=lambda name: name in operator.watches.workload_priorities.store,
        times=WhatIfTimes(questions=make_questions(operator, sources, pending), computer=starts),
    )
