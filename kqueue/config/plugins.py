"""The section of the configuration file about plugins of other packages and the profiles that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from kqueue.config.names import nearest
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError

BUILT_IN_PROFILES = ("default", "back-to-back", "pod-group")
"""Profiles that need no configuration; a profile of the same name adds plugins to one, or gives it another order."""
BUILT_IN_KEYS = (
    "priority",
    "timestamp",
    "first-attempt",
    "uid",
    "uid-descending",
    "ungrouped-first",
    "group-creation",
    "pod-creation",
)
"""Sort keys that need no plugin."""
KUBE_PREEMPTION = "kube-preemption"
"""The plugin that is built in, for point `victims`."""
_TAKEN = (*BUILT_IN_KEYS, KUBE_PREEMPTION)

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_RULE = "must be 1 to 63 lower-case letters, digits, dots and dashes, and begin and end with a letter or digit"


class EnabledPlugin(Section):
    """A plugin of an installed package."""

    name: str
    """Name of its entry point in group `kqueue.plugins`."""
    args: dict[str, Any] = Field(default_factory=dict)
    """The argument of the function that makes the plugin."""
    on_error: Literal["Wait", "Ignore"] = "Wait"
    """Whether a workload waits when the plugin fails, or goes on as if the plugin agreed."""

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if _NAME.fullmatch(value) is None:
            raise ValueError(_RULE)
        return value


class SchedulingProfile(Section):
    """An order of waiting workloads, and plugins.  ClusterQueues name it with annotation `kqueue.dev/profile`."""

    name: str
    """Name; `default` holds for ClusterQueues without the annotation."""
    order: tuple[str, ...] | None = None
    """Sort keys, the most important one first: built-in keys and names of plugins.  None: as the built-in profile of
    this name, or as `default`."""
    screen: tuple[str, ...] = ()
    """Plugins that keep workloads from being tried."""
    filter: tuple[str, ...] = ()
    """Plugins that keep pods from flavors and nodes."""
    victims: tuple[str, ...] = ()
    """Plugins that protect workloads from preemption, or choose among sets of them."""
    score: tuple[str, ...] = ()
    """Plugins that prefer flavors; their scores are added."""
    reserve: tuple[str, ...] = ()
    """Plugins that keep a state about workloads with quota."""
    before_release: tuple[str, ...] = ()
    """Plugins that are called before the pods of an admitted workload are released."""
    release: tuple[str, ...] = ()
    """Plugins that may release pods in place of kqueue."""
    after_release: tuple[str, ...] = ()
    """Plugins that are called after pods were released."""

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if _NAME.fullmatch(value) is None:
            raise ValueError(_RULE)
        return value

    @field_validator("order")
    @classmethod
    def _has_a_key(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("must have a key; leave it out for the order of the default profile")
        return value

    def points(self) -> dict[str, tuple[str, ...]]:
        """Return the plugins of each point but `order`, by the point's name in Python."""
        return {point: getattr(self, point) for point in _POINTS}


_POINTS = ("screen", "filter", "victims", "score", "reserve", "before_release", "release", "after_release")


class PreemptionSettings(Section):
    """Preemption.  kqueue's own section; Kueue has none."""

    respect_disruption_budgets: bool = False
    """Whether workloads with pods under a PodDisruptionBudget that allows no disruption are preempted last."""


class Plugins(Section):
    """Plugins of installed packages, and profiles.  kqueue's own section; Kueue has none."""

    enabled: tuple[EnabledPlugin, ...] = ()
    """Plugins that are loaded; no other package is imported."""
    profiles: tuple[SchedulingProfile, ...] = ()
    """Profiles beside those built in: `default`, `back-to-back` and `pod-group`."""

    @model_validator(mode="after")
    def _names_are_known_and_distinct(self) -> Self:
        refuse_any([*self._plugin_problems(), *self._profile_problems()])
        return self

    def _plugin_problems(self) -> Iterator[FieldError]:
        seen: set[str] = set()
        for index, plugin in enumerate(self.enabled):
            path = f"enabled[{index}].name"
            if plugin.name in _TAKEN:
                yield FieldError(path, "is built in; give the entry point another name", plugin.name)
            elif plugin.name in seen:
                yield FieldError(path, "must be different from the other names", plugin.name)
            seen.add(plugin.name)

    def _profile_problems(self) -> Iterator[FieldError]:
        plugins = [plugin.name for plugin in self.enabled]
        seen: set[str] = set()
        for index, profile in enumerate(self.profiles):
            path = f"profiles[{index}]"
            if profile.name in seen:
                yield FieldError(f"{path}.name", "has an order already; a profile has one order", profile.name)
            seen.add(profile.name)
            yield from _unknown(f"{path}.order", profile.order or (), (*BUILT_IN_KEYS, *plugins))
            for point, named in profile.points().items():
                built_in = (KUBE_PREEMPTION,) if point == "victims" else ()
                yield from _unknown(f"{path}.{to_camel(point)}", named, (*plugins, *built_in))


def _unknown(path: str, named: Sequence[str], known: Sequence[str]) -> Iterator[FieldError]:
    for position, name in enumerate(named):
        if name in named[:position]:
            yield FieldError(f"{path}[{position}]", "must not be repeated", name)
        elif name not in known:
            hint = nearest(name, known) or (
                f"; known are {', '.join(known)}" if known else "; plugins.enabled is empty"
            )
            yield FieldError(f"{path}[{position}]", f"is not enabled{hint}", name)
