"""Loading of plugins: only enabled ones, and all mistakes at once; the guard around their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.config.plugins import EnabledPlugin, Plugins, SchedulingProfile
from kqueue.core.kube_preemption import KubePreemption
from kqueue.core.order_keys import LAST
from kqueue.core.plugins import AGREED, METHODS, Point, Verdict, has_point
from kqueue.errors import ConfigError, PluginError
from kqueue.manager.plugin_guard import ASIDE_FOR, PluginGuard
from kqueue.manager.plugins import PLUGINS_GROUP, active_plugins, form_problems, load_plugins
from tests.unit.core.test_order_keys import queued
from tests.unit.toys.toy_plugin import ToyPlugin

TOY = "tests.unit.toys.toy_plugin:ToyPlugin"


def entry(name: str = "toy", value: str = TOY) -> EntryPoint:
    return EntryPoint(name, value, PLUGINS_GROUP)


def section(*plugins: dict[str, Any], profiles: Any = ()) -> Plugins:
    return Plugins.model_validate({"enabled": plugins, "profiles": profiles})


def test_only_enabled_plugins_are_imported_g5_13() -> None:
    """A package that is installed and not named costs nothing and breaks nothing."""
    loaded = load_plugins(section({"name": "toy"}), [entry(), entry("other", "no.such.module:make")])
    assert isinstance(loaded["toy"], ToyPlugin)
    assert load_plugins(section(), [entry("other", "no.such.module:make")]) == {}


def test_args_are_handed_in_g5_13() -> None:
    loaded = load_plugins(section({"name": "acme", "args": {"name": "acme", "keys": {"a": 3}}}), [entry("acme")])
    assert loaded["acme"].key(queued("a")) == 3


def test_all_mistakes_are_told_at_once_with_their_paths_g5_13() -> None:
    enabled = [{"name": name} for name in ("absent", "broken", "twice", "toy", "screens")]
    profiles = [{"name": "n", "screen": ["toy"], "filter": ["screens"], "order": ["priority", "screens"]}]
    found = [
        entry("broken", "no.such.module:make"),
        entry("twice"),
        entry("twice"),
        entry(),
        entry("screens", f"{__name__}:Screens"),
    ]
    with pytest.raises(ConfigError) as raised:
        load_plugins(section(*enabled, profiles=profiles), found)
    first, *lines = str(raised.value).split("\n  ")
    assert first == "plugins have 5 problems:"
    assert lines == [
        "plugins.enabled[0].name: no installed package has this entry point of group kqueue.plugins; install the "
        "package (found 'absent')",
        "plugins.enabled[1].name: no.such.module:make of an installed package cannot be used: ModuleNotFoundError: No "
        "module named 'no'; correct or uninstall the package (found 'broken')",
        "plugins.enabled[2].name: is in an installed package and an installed package; uninstall one of them (found "
        "'twice')",
        "plugins.profiles[0].order: the plugin has not the methods of this point: key (found 'screens')",
        "plugins.profiles[0].filter: the plugin has not the methods of this point: allows_flavor, allows_node (found "
        "'screens')",
    ]


class Screens:
    name = "screens"

    def screen(self, head: Any) -> Verdict:
        return AGREED


class Wrong:
    name = "other"

    def screan(self, head: Any) -> Verdict:
        return AGREED

    def screen(self) -> Verdict:
        return AGREED

    async def key(self, item: Any) -> int:
        return 1

    def permit(self, admit: Any) -> Any:
        return None


def test_methods_of_unknown_names_or_arity_are_refused_g5_13() -> None:
    assert list(form_problems(EnabledPlugin(name="wrong"), Wrong())) == [
        "the plugin has the name 'other'; its attribute `name` must be that of the entry point",
        "method key must not be async",
        "method permit must be async",
        "method screan is of no extension point; begin names of other methods with an underscore",
        "method screen must take 1 argument beside self",
    ]


def test_a_plugin_without_a_point_is_refused() -> None:
    assert list(form_problems(EnabledPlugin(name="screens"), type("Empty", (), {"name": "screens"})())) == [
        "the plugin has no extension point with all its methods"
    ]


def test_the_toy_has_every_point() -> None:
    toy = ToyPlugin({})
    assert all(has_point(toy, point) for point in Point)
    assert list(form_problems(EnabledPlugin(name="toy"), toy)) == []
    assert {point.value for point in Point} >= SchedulingProfile(name="x").points().keys()
    assert set(METHODS) == set(Point)


@pytest.mark.parametrize(
    ("make", "args", "said"),
    [
        pytest.param("Screens", {"a": 1}, "it takes no args; leave args out", id="args for a maker without"),
        pytest.param("TOY", {}, "it is no function", id="no function"),
        pytest.param("fails", {}, "ZeroDivisionError", id="a maker that fails"),
    ],
)
def test_makers_that_cannot_be_used(make: str, args: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"plugins.enabled\[0\].name: .*{said}"):
        load_plugins(section({"name": "screens", "args": args}), [entry("screens", f"{__name__}:{make}")])


def fails() -> Any:
    raise ZeroDivisionError("no plugin today")


# --- profiles ------------------------------------------------------------------------------------------------------


def test_profiles_are_put_together_g5_18() -> None:
    wanted = section(
        {"name": "toy"},
        profiles=[
            {"name": "night", "order": ["priority", "toy", "uid"], "screen": ["toy"]},
            {"name": "pod-group", "filter": ["toy"]},
            {"name": "plain"},
        ],
    )
    found = active_plugins(wanted, guard(), load_plugins(wanted, [entry()]))
    assert set(found.orders) == {"back-to-back", "pod-group", "night", "plain"}
    assert set(found.hooks) == {"night", "pod-group"}
    assert found.orders["night"].place(queued("a", priority=2)).keys == (-2, (0, 0), "a")
    assert len(found.orders["pod-group"].place(queued("a")).keys) == 5
    assert len(found.orders["plain"].place(queued("a")).keys) == 3


def test_without_plugins_only_built_in_orders_are_there() -> None:
    found = active_plugins(Plugins(), guard(), {})
    assert (set(found.orders), found.hooks) == ({"back-to-back", "pod-group"}, {})


class SkippingClock(FakeClock):
    def skip(self, seconds: float) -> None:
        self._elapsed += seconds


# --- the guard -------------------------------------------------------------------------------------------------------


def guard(
    clock: FakeClock | None = None, *, ignores: bool = False, leads: bool = True, seen: list[Any] | None = None
) -> PluginGuard:
    return PluginGuard(
        {"acme": ignores},
        clock=clock or FakeClock(),
        leads=lambda: leads,
        count=lambda *call: seen.append(call) if seen is not None else None,
    )


def slow(clock: SkippingClock, seconds: float) -> Callable[[], str]:
    def question() -> str:
        clock.skip(seconds)
        return "answer"

    return question


def failing() -> str:
    raise KeyError("x")


def test_a_failure_is_an_error_of_ours_g5_14() -> None:
    with pytest.raises(PluginError, match=r"^plugin acme failed: KeyError: 'x'$"):
        guard().ask("acme", Point.SCREEN, "agreed", failing)


def test_a_failure_that_is_ignored_is_agreement_g5_14() -> None:
    assert guard(ignores=True).ask("acme", Point.SCREEN, "agreed", failing) == "agreed"


def test_plugins_are_called_in_the_leader_only_g5_16() -> None:
    assert guard(leads=False).ask("acme", Point.ORDER, LAST, failing) == LAST  # type: ignore[arg-type]


def test_calls_are_measured_g5_15() -> None:
    clock, seen = SkippingClock(), list[Any]()
    guard(clock, seen=seen).ask("acme", Point.SCREEN, "", slow(clock, 0.02))
    assert seen == [("acme", "screen", pytest.approx(0.02))]


def test_the_third_long_call_in_ten_minutes_sets_a_plugin_aside_g5_15() -> None:
    clock = SkippingClock()
    around = guard(clock)
    for _ in range(3):
        assert around.ask("acme", Point.SCREEN, "", slow(clock, 0.06)) == "answer"
    with pytest.raises(PluginError, match=r"plugin acme failed: TimeoutError: its calls took more than 50 ms, it is"):
        around.ask("acme", Point.SCREEN, "", slow(clock, 0))
    clock.skip(ASIDE_FOR.total_seconds())
    assert around.ask("acme", Point.SCREEN, "", slow(clock, 0)) == "answer"


def test_long_calls_long_apart_do_no_harm_g5_15() -> None:
    clock = SkippingClock()
    around = guard(clock)
    for _ in range(9):
        assert around.ask("acme", Point.SCREEN, "", slow(clock, 0.06)) == "answer"
        clock.skip(301)


def test_a_plugin_that_is_set_aside_is_told_what_it_must_undo_g5_6() -> None:
    """Otherwise its own state would be wrong for ever."""
    clock = SkippingClock()
    around = guard(clock)
    for _ in range(3):
        around.ask("acme", Point.RESERVE, "", slow(clock, 0.06))
    assert around.ask("acme", Point.UNRESERVE, "", slow(clock, 0)) == "answer"


async def test_async_calls_have_ten_seconds_g5_15() -> None:
    clock = SkippingClock()
    around = guard(clock)

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    call = asyncio.create_task(around.ask_async("acme", Point.PERMIT, "", never))
    await clock.advance(9.9)
    assert not call.done()
    await clock.advance(0.2)
    with pytest.raises(PluginError, match=r"plugin acme failed: TimeoutError: no answer within 10 s"):
        await call


async def test_async_answers_and_failures_g5_14() -> None:
    async def answers() -> str:
        return "yes"

    async def breaks() -> str:
        raise ValueError("no")

    assert await guard().ask_async("acme", Point.PERMIT, "", answers) == "yes"
    assert await guard(ignores=True).ask_async("acme", Point.PERMIT, "agreed", breaks) == "agreed"
    with pytest.raises(PluginError, match="plugin acme failed: ValueError: no"):
        await guard().ask_async("acme", Point.PERMIT, "", breaks)


def test_the_built_in_plugin_needs_no_package_g5_23() -> None:
    wanted = section(profiles=[{"name": "calm", "victims": ["kube-preemption"]}])
    found = active_plugins(wanted, guard(), load_plugins(wanted, []), budgeted=lambda: frozenset({"u"}))
    (plugin,) = found.hooks["calm"].victims
    assert isinstance(plugin, KubePreemption)
    assert found.hooks["calm"].ranks
    assert not found.hooks["calm"].vetoes
