"""Wishes about joint placement that users write as annotations."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import yaml

from kqueue.api import names
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.joint.registry import NORMAL_WEIGHT, PolicySpec, mistakes_in
from kqueue.core.joint.traits import Traits, pairs_of
from kqueue.documents import DocumentLimits, load_yaml
from kqueue.model.run_times import expected_run_time

_LIMITS = DocumentLimits(depth=8, values=1000)
_POLICIES = f"metadata.annotations[{names.JOINT_POLICIES_ANNOTATION}]"
_KEYS = ("name", "weight", "parameters")


def traits_of(meta: ObjectMeta) -> Traits | None:
    """Return what a Workload tells the policies of joint placement, as far as it is valid; None: nothing."""
    own = meta.annotations
    prefers = own.get(names.PREFERS_ANNOTATION, "")
    interference = own.get(names.INTERFERENCE_ANNOTATION, "")
    expected = expected_run_time(meta)
    if not (prefers or interference or names.EXPECTED_RUNTIME_ANNOTATION in own) and expected is None:
        return None
    return Traits(prefers=pairs_of(prefers), interference=interference, expected_seconds=expected)


def joint_policies(meta: ObjectMeta) -> tuple[tuple[PolicySpec, ...] | None, str]:
    """Return the policies that a ClusterQueue names (None: it names none), and the problem (empty: there is none)."""
    text = meta.annotations.get(names.JOINT_POLICIES_ANNOTATION)
    return (None, "") if text is None else _policies(text)


@lru_cache(maxsize=256)
def _policies(text: str) -> tuple[tuple[PolicySpec, ...] | None, str]:
    try:
        documents = load_yaml(text, aliases=False, limits=_LIMITS)
    except (yaml.YAMLError, ValueError) as e:
        return None, f"{_POLICIES}: is no YAML: {e}"
    found = documents[0] if len(documents) == 1 else None
    if not isinstance(found, list) or not found:
        return None, f"{_POLICIES}: must be a list of policies such as [{{name: packing, weight: 1000}}]"
    specs, problem = policy_specs(found)
    return (specs, "") if not problem else (None, f"{_POLICIES}: {problem}")


def policy_specs(found: list[Any]) -> tuple[tuple[PolicySpec, ...], str]:
    """Return the policies of a list as users write it, and the first problem (empty: there is none)."""
    specs: list[PolicySpec] = []
    for place, item in enumerate(found):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return (), f"entry {place} must have a name"
        unknown = sorted(str(key) for key in item if key not in _KEYS)
        if unknown:
            return (), f"entry {place} has an unknown key {unknown[0]}; the keys are {', '.join(_KEYS)}"
        weight, parameters = item.get("weight", NORMAL_WEIGHT), item.get("parameters", {})
        if type(weight) is not int or not isinstance(parameters, dict):
            return (), f"entry {place}: weight must be a whole number, and parameters a mapping"
        specs.append(PolicySpec(name=item["name"], weight=weight, parameters=parameters))
    mistakes = mistakes_in(specs)
    if mistakes:
        return (), "; ".join(f"{one.path}: {one.problem}" if one.path else one.problem for one in mistakes)
    return tuple(specs), ""
