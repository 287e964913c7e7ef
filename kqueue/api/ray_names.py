"""Names in objects of elastic RayJobs and RayServices.  Source: Kueue."""

from __future__ import annotations

from typing import Final

RAYCLUSTER_GENERATION_ANNOTATION: Final = "kueue.x-k8s.io/raycluster-generation"
"""On a job: the generation of its RayCluster for which the newest slice was made; a part of that slice's name."""
