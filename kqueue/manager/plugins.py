"""Loads the plugins that the configuration names, and puts them together by profile."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from kqueue.clock import FakeClock
from kqueue.config.plugins import KUBE_PREEMPTION, EnabledPlugin, Plugins, SchedulingProfile
from kqueue.core.hooks import NO_PERMITS, HooksByProfile, PermitHooks, ProfileHooks
from kqueue.core.kube_preemption import KubePreemption
from kqueue.core.order_keys import (
    BUILT_IN_KEYS,
    BUILT_IN_PROFILES,
    DEFAULT_PROFILE_NAME,
    LAST,
    ProfileOrder,
    built_in_order,
    comparable,
)
from kqueue.core.plugins import ASYNC_METHODS, METHODS, Point, has_point
from kqueue.core.queued import Queued
from kqueue.errors import ConfigError, FieldError
from kqueue.isolation import isolated
from kqueue.manager.plugin_guard import PluginGuard

PLUGINS_GROUP = "kqueue.plugins"
"""Group of entry points; the name of an entry point is the name of its plugin."""

_ARITY = {method: arguments for methods in METHODS.values() for method, arguments in methods.items()}

Loaded = Mapping[str, Any]
"""Plugins by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePlugins:
    """The plugins of a process.

    `orders` are the orders that are not built in, by profile; `permits` is point `permit`; `hooks` are all other
    points, by profile.
    """

    guard: PluginGuard | None = None
    loaded: Loaded = field(default_factory=dict)
    orders: Mapping[str, ProfileOrder] = field(default_factory=dict)
    hooks: HooksByProfile = field(default_factory=dict)
    permits: PermitHooks = NO_PERMITS


def load_plugins(section: Plugins, found: Iterable[EntryPoint] | None = None) -> Loaded:
    """Import the enabled plugins and make them; no other package is imported.

    `found` replaces the entry points of all installed packages.
    Raises ConfigError with all mistakes, each with its path in the configuration.
    """
    if not section.enabled and not section.profiles:
        return {}
    entries = list(entry_points(group=PLUGINS_GROUP) if found is None else found)
    problems: list[FieldError] = []
    loaded: dict[str, Any] = {}
    for index, enabled in enumerate(section.enabled):
        plugin, mistakes = _made(enabled, entries, f"plugins.enabled[{index}]")
        problems += mistakes
        if plugin is not None:
            loaded[enabled.name] = plugin
    for index, profile in enumerate(section.profiles):
        problems += _missing_methods(profile, loaded, f"plugins.profiles[{index}]")
    if problems:
        raise ConfigError("\n  ".join([f"plugins have {len(problems)} problems:", *map(str, problems)]))
    return loaded


def _made(enabled: EnabledPlugin, entries: Iterable[EntryPoint], path: str) -> tuple[Any, list[FieldError]]:
    """Return the plugin (None: it could not be made) and what is wrong with it."""
    mine = [entry for entry in entries if entry.name == enabled.name]
    if not mine:
        remedy = f"no installed package has this entry point of group {PLUGINS_GROUP}; install the package"
        return None, [FieldError(f"{path}.name", remedy, enabled.name)]
    if len(mine) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in mine))
        return None, [FieldError(f"{path}.name", f"is in {packages}; uninstall one of them", enabled.name)]
    with isolated() as loading:
        make = mine[0].load()
        plugin = _called(make, enabled.args)
    if loading.error is not None:
        why = f"{type(loading.error).__name__}: {loading.error}"
        sentence = f"{mine[0].value} of {_package(mine[0])} cannot be used: {why}; correct or uninstall the package"
        return None, [FieldError(f"{path}.name", sentence, enabled.name)]
    return plugin, [FieldError(f"{path}.name", problem, enabled.name) for problem in form_problems(enabled, plugin)]


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an installed package"


def _called(make: Any, args: dict[str, Any]) -> Any:
    if not callable(make):
        raise TypeError("it is no function")
    if inspect.signature(make).parameters:
        return make(args)
    if args:
        raise TypeError("it takes no args; leave args out")
    return make()


def form_problems(enabled: EnabledPlugin, plugin: object) -> Iterator[str]:
    """Yield what is wrong with the form of a plugin: its name, and the names and arguments of its methods."""
    name = getattr(plugin, "name", None)
    if name != enabled.name:
        yield f"the plugin has the name {name!r}; its attribute `name` must be that of the entry point"
    methods = {m: getattr(plugin, m) for m in dir(plugin) if not m.startswith("_") and callable(getattr(plugin, m))}
    for method, function in sorted(methods.items()):
        arguments = _ARITY.get(method)
        if arguments is None:
            yield f"method {method} is of no extension point; begin names of other methods with an underscore"
        elif not _takes(function, arguments):
            yield f"method {method} must take {arguments} argument{'s' if arguments > 1 else ''} beside self"
        elif inspect.iscoroutinefunction(function) != (method in ASYNC_METHODS):
            yield f"method {method} must {'' if method in ASYNC_METHODS else 'not '}be async"
    if not any(has_point(plugin, point) for point in METHODS):
        yield "the plugin has no extension point with all its methods"


def _takes(function: Callable[..., object], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except (TypeError, ValueError):
        return False
    return True


def _missing_methods(profile: SchedulingProfile, loaded: Loaded, path: str) -> Iterator[FieldError]:
    """Yield plugins that a profile names for points which they have no methods of."""
    order = [key for key in profile.order or () if key not in BUILT_IN_KEYS]
    for point, plugins in {"order": order, **profile.points()}.items():
        for name in plugins:
            if name in loaded and not has_point(loaded[name], Point(point)):
                methods = ", ".join(METHODS[Point(point)])
                yield FieldError(f"{path}.{point}", f"the plugin has not the methods of this point: {methods}", name)


# --- put together ------------------------------------------------------------------------------------------------


def active_plugins(
    section: Plugins, guard: PluginGuard, loaded: Loaded, *, budgeted: Callable[[], Collection[str]] = frozenset
) -> ActivePlugins:
    """Return the orders and hooks of all profiles; `budgeted` is as in `KubePreemption`."""
    loaded = {**loaded, KUBE_PREEMPTION: KubePreemption(budgeted)}
    orders = {name: built_in_order(name) for name in BUILT_IN_PROFILES if name != DEFAULT_PROFILE_NAME}
    hooks: dict[str, ProfileHooks] = {}
    for profile in section.profiles:
        keys = profile.order
        if keys is None:
            keys = BUILT_IN_PROFILES.get(profile.name, BUILT_IN_PROFILES[DEFAULT_PROFILE_NAME])
        if keys != BUILT_IN_PROFILES[DEFAULT_PROFILE_NAME] or profile.name != DEFAULT_PROFILE_NAME:
            orders[profile.name] = ProfileOrder([_key(key, guard, loaded) for key in keys])
        if any(profile.points().values()):
            hooks[profile.name] = _hooks(profile, guard, loaded)
    permitting = {name: plugin for name, plugin in loaded.items() if has_point(plugin, Point.PERMIT)}
    permits = PermitHooks(asking_async=guard.ask_async, plugins=permitting)
    return ActivePlugins(guard=guard, loaded=loaded, orders=orders, hooks=hooks, permits=permits)


def hooks_for_replay(section: Plugins, budgeted: Callable[[], Collection[str]]) -> HooksByProfile:
    """Return the hooks of all profiles for a replay of recorded plans, in which no call is too slow.

    Raises ConfigError: a plugin cannot be used.
    """
    ignores = {plugin.name: plugin.on_error == "Ignore" for plugin in section.enabled}
    still = FakeClock()  # time does not pass, so no plugin is set aside
    guard = PluginGuard(ignores, clock=still, leads=lambda: True, count=lambda *_: None)
    return active_plugins(section, guard, load_plugins(section), budgeted=budgeted).hooks


def _key(name: str, guard: PluginGuard, loaded: Loaded) -> Callable[[Queued], Any]:
    if name in BUILT_IN_KEYS:
        return BUILT_IN_KEYS[name]
    method = loaded[name].key

    def asked(item: Queued) -> tuple[int, Any]:
        return comparable(method(item))

    return lambda item: guard.ask(name, Point.ORDER, LAST, asked, item)


def _hooks(profile: SchedulingProfile, guard: PluginGuard, loaded: Loaded) -> ProfileHooks:
    def of(names: Iterable[str]) -> tuple[Any, ...]:
        return tuple(loaded[name] for name in names)

    return ProfileHooks(
        asking=guard.ask,
        asking_async=guard.ask_async,
        screens=of(profile.screen),
        filters=of(profile.filter),
        victims=of(profile.victims),
        scores=of(profile.score),
        reserves=of(profile.reserve),
        before_releases=of(profile.before_release),
        releases=of(profile.release),
        after_releases=of(profile.after_release),
    )
