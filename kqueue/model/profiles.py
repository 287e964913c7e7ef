"""The placement profile that an object names."""

from __future__ import annotations

from kqueue.api import names
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.topology.placers import PLACERS


def profile_name(meta: ObjectMeta) -> str | None:
    """Return the placement profile that a ClusterQueue or Workload names, valid or not; None: it names none."""
    return meta.annotations.get(names.PLACEMENT_PROFILE_ANNOTATION)


def chosen_algorithm(meta: ObjectMeta) -> tuple[str | None, str]:
    """Return the name of the placer of the workload's profile (None: no profile, or an unknown one) and the problem."""
    name = profile_name(meta)
    if name is None or name in PLACERS:
        return name, ""
    path = f"metadata.annotations[{names.PLACEMENT_PROFILE_ANNOTATION}]"
    return None, f"{path}: {name!r} is no profile; use one of {', '.join(PLACERS)}"
