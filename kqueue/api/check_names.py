"""Reasons, events and values about AdmissionChecks of built-in controllers, and about domains that wait for checks."""

from __future__ import annotations

from typing import Final

# ---- Checks of built-in controllers ----------------------------------------------------------------------------------

REASON_PENDING_DELAYED_TOPOLOGY_REQUESTS: Final = "PendingDelayedTopologyRequests"
"""The workload has quota, all checks are ready, and domains for its pods are not chosen yet."""
DELAYED_PENDING: Final = "Pending"
"""delayedTopologyRequest: domains are chosen when the admission checks are ready."""
DELAYED_READY: Final = "Ready"
"""delayedTopologyRequest: the domains are chosen."""
REASON_CHECK_ACTIVE: Final = "Active"
"""A built-in controller answers the check."""
REASON_BAD_PARAMETERS_REF: Final = "BadParametersRef"
"""The parameters of the check name no object that its controller can use."""
REASON_KIND_NOT_SERVED: Final = "KindNotServed"
"""The API server does not serve the kind of the objects by which the check is answered; kqueue's own."""
EVENT_PROVISIONING_REQUEST_CREATED: Final = "ProvisioningRequestCreated"
"""Normal, on the Workload: a request for nodes was created."""
EVENT_FAILED_CREATE: Final = "FailedCreate"
"""Warning, on the Workload: a request for nodes could not be created."""
EVENT_ADMISSION_CHECK_UPDATED: Final = "AdmissionCheckUpdated"
"""Normal, on the Workload: a check of a built-in controller has another state."""
