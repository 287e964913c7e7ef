"""Past usage in the status of ClusterQueues and Cohorts, which only v1beta1 has, and which kqueue does not write."""

from __future__ import annotations

from kqueue.api.v1beta1.names import PAST_USAGE
from webhooks.conversion.fields import JSON, changed, without


def without_past_usage(status: JSON) -> JSON:
    """Return the status without it: nobody would keep it true."""
    return changed(status, "fairSharing", lambda sharing: without(sharing, PAST_USAGE))
