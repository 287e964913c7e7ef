"""The contract of plugins: kqueue's own keep it, and each breach is noticed."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import parse
from kqueue.core.kube_preemption import KubePreemption
from kqueue.core.order_keys import BUILT_IN_KEYS
from kqueue.core.plugins import AGREED, METHODS, Point, Verdict
from kqueue.manager.plugins import form_problems
from kqueue.plugin_contract import PluginContractError, check_plugin

ROOT = Path(__file__).parents[2]


def test_built_in_plugins_keep_the_contract_g5_17() -> None:
    check_plugin(lambda: KubePreemption(lambda: frozenset({"u-1", "u-3"})))


@pytest.mark.parametrize("name", sorted(BUILT_IN_KEYS))
def test_built_in_keys_keep_the_contract_g5_17(name: str) -> None:
    def key(self: Any, item: Any) -> Any:
        found = BUILT_IN_KEYS[name](item)
        return found if isinstance(found, str) else int(found) if isinstance(found, int) else repr(found)

    check_plugin(type("BuiltIn", (), {"name": "built-in", "key": key}), inputs=200)


class Books:
    """A plugin that counts reservations; `forgets` and `counts` say what its methods do wrong."""

    name = "acme"

    def __init__(self, *, forgets: bool = False) -> None:
        self.held: dict[str, int] = {}
        self._forgets = forgets

    def reserve(self, admit: Any) -> Verdict:
        if len(self.held) > 20:
            return Verdict("no more")
        self.held[admit.head.uid] = 1
        return AGREED

    def unreserve(self, admit: Any) -> None:
        if not self._forgets:
            self.held.pop(admit.head.uid, None)


def test_a_plugin_with_a_state_keeps_the_contract() -> None:
    check_plugin(Books)


NUMBERS = itertools.count()


SECONDS = [0.0]
"""The time of the check's clock: only slow plugins move it."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    SECONDS[0] = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: SECONDS[0])


def _takes_long(_head: Any) -> Verdict:
    SECONDS[0] += 0.06
    return AGREED


def plugin(**methods: Any) -> Callable[[], Any]:
    def made(answer: Any) -> Any:
        def one(self: Any, about: Any) -> Any:
            return answer(about) if callable(answer) else answer

        def two(self: Any, about: Any, more: Any) -> Any:
            return answer(about, more) if callable(answer) else answer

        return {1: one, 2: two}

    arity = {"allows_flavor": 2, "allows_node": 2, "veto": 2, "rank": 2, "score": 2}
    found = {method: made(answer)[arity.get(method, 1)] for method, answer in methods.items()}
    for method, function in found.items():
        function.__name__ = method
    return type("Plugin", (), {"name": "acme", **found})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(plugin(screan=AGREED), "method screan is of no extension point", id="an unknown method"),
        pytest.param(plugin(key=lambda _i: next(NUMBERS)), "method key: equal inputs have two answers", id="chance"),
        pytest.param(plugin(key=None), "method key: None is no number and no text", id="no key"),
        pytest.param(plugin(key=float("nan")), "equal inputs have two answers, nan and nan", id="not a number"),
        pytest.param(
            plugin(key=lambda item: item.uid if item.priority else 0), "some keys are texts", id="keys of two types"
        ),
        pytest.param(plugin(screen=True), "method screen: the answer is bool, not Verdict", id="no verdict"),
        pytest.param(plugin(allows_node=None), "method allows_node: the answer is NoneType, not str", id="no text"),
        pytest.param(plugin(veto=set()), "method veto: the answer is set, not frozenset", id="no set"),
        pytest.param(
            plugin(rank=lambda _h, targets: (0,) if len(targets) > 1 else ("a",)),
            "method rank: the answers cannot be compared",
            id="ranks of two types",
        ),
        pytest.param(plugin(score=101), "method score: 101 of flavor a is no whole number", id="too high a score"),
        pytest.param(
            plugin(score=1, normalise={"a": 1}), "method normalise: the scores are of", id="scores that are missing"
        ),
        pytest.param(
            lambda: Books(forgets=True), "method unreserve: the plugin's state is not", id="a state that stays"
        ),
        pytest.param(plugin(screen=_takes_long), "method screen: a call takes", id="a slow call"),
    ],
)
def test_a_breach_is_noticed_g5_17(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(PluginContractError, match=re.escape(said)):
        check_plugin(make, inputs=100)


def test_failures_can_be_repeated() -> None:
    """Equal seeds draw equal inputs."""
    seen: list[list[str]] = []
    for _ in range(2):
        heads: list[str] = []
        check_plugin(plugin(screen=lambda head, heads=heads: heads.append(head.key) or AGREED), inputs=20)
        seen.append(heads)
    assert seen[0] == seen[1]


# --- the page --------------------------------------------------------------------------------------------------------


def block(mark: str) -> str:
    """A block of the page that is marked for a test."""
    page = (ROOT / "docs/how-to/plugins.md").read_text()
    found = re.search(rf"<!-- {mark}: run by a test -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_plugin_of_the_page_keeps_the_contract() -> None:
    """What the page shows can be copied: the plugin, and the configuration that enables it."""
    module: dict[str, Any] = {"__name__": "page"}
    exec(block("plugin"), module)
    section = parse(block("configuration"), source="page").plugins
    (enabled,) = section.enabled
    check_plugin(lambda: module["Shifts"](enabled.args), inputs=200)
    assert list(form_problems(enabled, module["Shifts"](enabled.args))) == []
    assert {point for profile in section.profiles for point, names in profile.points().items() if names} == {"screen"}


def test_the_page_lists_every_point() -> None:
    """With all its methods."""
    page = (ROOT / "docs/how-to/plugins.md").read_text()
    for point, methods in METHODS.items():
        if point is not Point.UNRESERVE:
            assert f"| {point.value} |" in page
        assert all(f"{method}(" in page for method in methods)
    assert all(f"`{key}`" in page for key in BUILT_IN_KEYS)
