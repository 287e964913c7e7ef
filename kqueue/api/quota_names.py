"""Annotations and conditions of quotas that follow nodes or time, which are kqueue's own."""

from __future__ import annotations

from typing import Final

QUOTA_SHARES_ANNOTATION: Final = "kqueue.dev/quota-from-capacity"
"""On ClusterQueues: nominal quotas as shares of what the nodes of a flavor have, as `flavor/resource=500` (per mille)
or `flavor/resource=50%`, with commas between."""
RESOLVED_QUOTA_ANNOTATION: Final = "kqueue.dev/resolved-quota"
"""On ClusterQueues: the nominal quotas that follow from the shares, as `flavor/resource=amount`, written by kqueue."""
CONDITION_QUOTA_FROM_CAPACITY: Final = "kqueue.dev/QuotaFromCapacity"
"""On ClusterQueues: whether all shares are resolved."""
REASON_CAPACITY_FOLLOWED: Final = "CapacityFollowed"
"""kqueue.dev/QuotaFromCapacity: quotas follow the nodes."""
REASON_SHARES_ABOVE_CAPACITY: Final = "SharesAboveCapacity"
"""kqueue.dev/QuotaFromCapacity: quotas follow the nodes, and the shares of several ClusterQueues exceed the whole."""
REASON_CAPACITY_UNKNOWN: Final = "CapacityUnknown"
"""Not kqueue.dev/QuotaFromCapacity: a flavor does not exist, so its last quota stays."""
BUDGETS_ANNOTATION: Final = "kqueue.dev/budgets"
"""On ClusterQueues: resource-hours that a namespace or a LocalQueue may use in a period, as
`[NAMESPACE[/LOCALQUEUE]:]RESOURCE=AMOUNTh/PERIOD`, with commas between."""
BUDGETS_USED_ANNOTATION: Final = "kqueue.dev/budgets-used"
"""On ClusterQueues: the use of the budgets, written by kqueue."""
CONDITION_BUDGET_LEFT: Final = "kqueue.dev/BudgetLeft"
"""On LocalQueues: whether workloads may start as far as budgets are concerned."""
REASON_BUDGET_LEFT: Final = "BudgetLeft"
"""kqueue.dev/BudgetLeft: all budgets have something left."""
REASON_BUDGET_EXHAUSTED: Final = "BudgetExhausted"
"""Not kqueue.dev/BudgetLeft, and not QuotaReserved: a budget is used up."""
