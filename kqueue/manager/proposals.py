"""Proposals of moves in a controller process, as views see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqueue.controllers.defrag_proposals import make_memory
from kqueue.controllers.defrag_settings import why_no_proposals
from kqueue.controllers.plan_watches import plans_watch
from kqueue.visibility.defragmentation import ProposalSource

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator


def proposal_source(operator: Operator) -> ProposalSource:
    """Return the proposals of this process, for views."""
    manager = operator.manager
    off = why_no_proposals(manager.config)
    plans = None if off or "scheduler" not in operator.parts else manager.shared(plans_watch).store
    return ProposalSource(
        off=off,
        plans=lambda: plans.values() if plans is not None else (),
        memory=manager.shared(make_memory),
        leads=operator.ready.is_set,
    )
