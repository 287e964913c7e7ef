"""Names of concurrent admission: one Workload of a job, its parent, is tried in several flavors by its variants."""

from __future__ import annotations

from typing import Final

# ---- Concurrent admission: labels, annotations, gates ----------------------------------------------------------------

CONCURRENT_ADMISSION_PARENT_LABEL: Final = "kueue.x-k8s.io/concurrent-admission-parent"
"""On Workloads, `true`: variants are tried in its place, one per flavor."""
ALLOWED_FLAVORS_ANNOTATION: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
"""On variants: the flavor that the variant may use."""
CONCURRENT_ADMISSION_GATE: Final = "kueue.x-k8s.io/concurrent-admission"
"""Preemption gate of variants: one variant of a parent after the other may preempt."""

# ---- Concurrent admission: values ------------------------------------------------------------------------------------

MIGRATION_RETAIN: Final = "RetainFirstAdmission"
"""concurrentAdmissionPolicy.migration.mode: the first admitted variant is kept."""

# ---- Concurrent admission: reasons of conditions ---------------------------------------------------------------------

REASON_FLAVOR_MIGRATION: Final = "FlavorMigration"
"""Evicted: a variant in a flavor that its ClusterQueue prefers fits now."""
REASON_VARIANT_EVICTED: Final = "VariantEvicted"
"""Evicted, of a parent: its admitted variant was evicted."""
REASON_CONCURRENT_ADMISSION: Final = "ConcurrentAdmission"
"""Evicted, of a parent: none of its variants is admitted."""

# ---- Concurrent admission: events ------------------------------------------------------------------------------------

EVENT_CREATED_VARIANT: Final = "CreatedVariant"
"""Normal, on the parent: a variant was created."""
EVENT_DELETED_VARIANT: Final = "DeletedVariant"
"""Normal, on the parent: a variant was deleted."""
EVENT_ACTIVATED_VARIANT: Final = "ActivatedVariant"
"""Normal, on the variant: it may be queued."""
EVENT_DEACTIVATED_VARIANT: Final = "DeactivatedVariant"
"""Normal, on the variant: it is not queued for now."""
EVENT_PREEMPTION_UNGATED_VARIANT: Final = "PreemptionUngatedVariant"
"""Normal, on the variant: it may preempt other workloads."""
