"""The kinds that are converted, and the conversion of one object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kqueue.api.names import API_VERSION
from kqueue.api.v1beta1.names import OLDER_API_VERSION
from kqueue.errors import KqueueError
from kqueue.isolation import isolated
from webhooks.conversion import cluster_queue, cohort, local_queue, multikueue_cluster, workload
from webhooks.conversion.fields import JSON, Change


class NotConvertedError(KqueueError):
    """An object cannot be converted.  The text names it, and what is wrong."""


@dataclass(frozen=True, slots=True)
class KindConversion:
    """Both ways of one kind."""

    to_v1beta1: Change
    to_v1beta2: Change


KINDS: Final[Mapping[str, KindConversion]] = {
    "ClusterQueue": KindConversion(cluster_queue.to_v1beta1, cluster_queue.to_v1beta2),
    "Cohort": KindConversion(cohort.to_v1beta1, cohort.to_v1beta2),
    "LocalQueue": KindConversion(local_queue.to_v1beta1, local_queue.to_v1beta2),
    "MultiKueueCluster": KindConversion(multikueue_cluster.to_v1beta1, multikueue_cluster.to_v1beta2),
    "Workload": KindConversion(workload.to_v1beta1, workload.to_v1beta2),
}


def converted(obj: JSON, api_version: str) -> JSON:
    """Return an object in another version; the object itself if it is in that version.

    Raises:
        NotConvertedError: kind or version is unknown, or a field does not have the form of its schema.
    """
    found, kind = obj.get("apiVersion"), obj.get("kind")
    known = (API_VERSION, OLDER_API_VERSION)
    if api_version not in known or found not in known:
        raise NotConvertedError(
            f"{_name(obj)} cannot be converted from {found} to {api_version}; known are {' and '.join(known)}"
        )
    conversion = KINDS.get(kind) if isinstance(kind, str) else None
    if conversion is None:
        raise NotConvertedError(f"{_name(obj)} is of a kind that is not converted; known are {', '.join(KINDS)}")
    if found == api_version:
        return obj
    change = conversion.to_v1beta1 if api_version == OLDER_API_VERSION else conversion.to_v1beta2
    with isolated() as check:
        return {**change(obj), "apiVersion": api_version}
    problem = f"{type(check.error).__name__}: {check.error}"
    raise NotConvertedError(
        f"{_name(obj)} cannot be converted to {api_version}: a field does not have the form of its schema ({problem}); "
        f"correct the object in {found}"
    ) from check.error


def _name(obj: JSON) -> str:
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{obj.get('kind')} {name}".strip()
