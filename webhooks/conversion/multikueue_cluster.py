"""MultiKueueCluster: v1beta2 has one source of credentials, v1beta1 may name two."""

from __future__ import annotations

from typing import Any

from webhooks.conversion.fields import JSON, changed, without
from webhooks.conversion.kept import take_kept, with_kept

_CONFIG, _PROFILE, _SOURCE = "kubeConfig", "clusterProfileRef", "clusterSource"
_NONE = {"location": "", "locationType": "Secret"}
"""The kubeconfig that v1beta1 demands where there is none."""


def to_v1beta1(cluster: JSON) -> JSON:
    """Return a MultiKueueCluster of v1beta2 in v1beta1."""
    cluster, kept = take_kept(cluster, lambda fields: _is_second_source(cluster, fields))

    def spec_of(spec: JSON) -> JSON:
        return {**without(spec, _SOURCE), _CONFIG: dict(_NONE), **(spec.get(_SOURCE) or {}), **kept}

    return changed(cluster, "spec", spec_of)


def to_v1beta2(cluster: JSON) -> JSON:
    """Return a MultiKueueCluster of v1beta1 in v1beta2.  Of two sources the kubeconfig is used."""
    spec = cluster.get("spec") or {}
    both = _PROFILE in spec and _has_location(spec)
    cluster = with_kept(cluster, {_PROFILE: spec[_PROFILE]} if both else {})

    def spec_of(spec: JSON) -> JSON:
        used = _CONFIG if _has_location(spec) else _PROFILE
        source = {used: spec[used]} if used in spec else {}
        return {**without(spec, _CONFIG, _PROFILE), _SOURCE: source}

    return changed(cluster, "spec", spec_of)


def _has_location(spec: JSON) -> bool:
    return bool((spec.get(_CONFIG) or {}).get("location"))


def _is_second_source(cluster: JSON, fields: JSON) -> bool:
    source: Any = (cluster.get("spec") or {}).get(_SOURCE) or {}
    profile = fields.get(_PROFILE)
    is_profile = isinstance(profile, dict) and profile.keys() == {"name"} and isinstance(profile["name"], str)
    return fields.keys() == {_PROFILE} and is_profile and _has_location(source) and _PROFILE not in source
