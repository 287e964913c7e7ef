"""The contract of plugins, as a check that other packages run in their tests.

    from kqueue.plugin_contract import check_plugin

    def test_contract():
        check_plugin(lambda: MyPlugin({"limit": 3}))

Inputs are drawn from a seed, so a failure can be repeated.  Async methods are not called, because they may send
requests: test them with an `Admit` of `drawn_admits`.
"""

from __future__ import annotations

import copy
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from kqueue.config.plugins import KUBE_PREEMPTION, EnabledPlugin
from kqueue.core.decision import Admit
from kqueue.core.plugins import Point, Verdict, has_point
from kqueue.core.preemption import PreemptionReason, Target
from kqueue.core.queued import Queued, QueuedGang
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import NodeFacts, PodSetRequest, TopologyRequest
from kqueue.core.workload import Admission, Admitted, Flavor, Head, PodSet, PodSetAssignment
from kqueue.manager.plugins import form_problems

LONGEST_CALL = 0.05
"""Seconds that a call may take."""
_TRIES = 3
"""A call is too slow if it is so each time: the machine may have been busy."""
_START = datetime(2026, 1, 1, tzinfo=UTC)
_NAMES = ("a", "b", "c", "d")

T = TypeVar("T")


class PluginContractError(AssertionError):
    """A plugin broke its contract; the message says how."""


def check_plugin(make: Callable[[], Any], *, inputs: int = 1000, seed: int = 0) -> None:
    """Ask a plugin about so many inputs at each point of it.  Raises PluginContractError at the first wrong answer.

    `make` returns a new plugin with each call.  A right plugin has the methods of its points; its sort keys have one
    type and an order; it answers equally for equal inputs; its scores are whole numbers from 0 to 100; `unreserve`
    brings its state back to that before `reserve`; and no call takes longer than 50 ms.
    """
    plugin, chance = make(), random.Random(seed)
    name = str(getattr(plugin, "name", ""))
    if name != KUBE_PREEMPTION:
        for problem in form_problems(EnabledPlugin(name=name), plugin):
            raise PluginContractError(f"plugin {name}: {problem}")
    for point, check in _CHECKS.items():
        if has_point(plugin, point):
            check(_Caller(name), plugin, chance, inputs)


class _Caller:
    """Calls methods of a plugin, twice with equal inputs, and measures them."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    def fail(self, method: str, why: str) -> PluginContractError:
        """Return the error of a method."""
        return PluginContractError(f"plugin {self._plugin}, method {method}: {why}")

    def once(self, function: Callable[..., T], *about: Any) -> T:
        """Call a method, and return its answer; a slow call is repeated."""
        method = getattr(function, "__name__", str(function))
        for _ in range(_TRIES):
            began = time.perf_counter()
            answer = function(*about)
            taken = time.perf_counter() - began
            if taken <= LONGEST_CALL:
                return answer
        raise self.fail(method, f"a call takes {taken * 1000:.0f} ms, at most {LONGEST_CALL * 1000:.0f} are allowed")

    def twice(self, kind: type[T], function: Callable[..., Any], *about: Any) -> T:
        """Return the answer of a method for these values; equal values must have equal answers of this kind."""
        method = getattr(function, "__name__", str(function))
        answer, again = self.once(function, *about), self.once(function, *map(_copied, about))
        if answer != again:
            raise self.fail(method, f"equal inputs have two answers, {answer!r} and {again!r}")
        if not isinstance(answer, kind):
            raise self.fail(method, f"the answer is {type(answer).__name__}, not {kind.__name__}")
        return answer


def _check_order(call: _Caller, plugin: Any, chance: random.Random, inputs: int) -> None:
    keys = [call.twice(object, plugin.key, item) for item in _drawn(drawn_queued, chance, inputs)]
    for key in keys:
        if not isinstance(key, int | float | str) or isinstance(key, bool) or key != key:  # a NaN is not itself
            raise call.fail("key", f"{key!r} is no number and no text")
    kinds = {str if isinstance(key, str) else float for key in keys}
    if len(kinds) > 1:
        raise call.fail("key", "some keys are texts and others are numbers, which have no order")


def _check_screen(call: _Caller, plugin: Any, chance: random.Random, inputs: int) -> None:
    for head in _drawn(drawn_head, chance, inputs):
        call.twice(Verdict, plugin.screen, head)


def _check_filter(call: _Caller, plugin: Any, chance: random.Random, inputs: int) -> None:
    for _ in range(inputs):
        pod_set = drawn_head(chance).pod_sets[0]
        if hasattr(plugin, "allows_flavor"):
            call.twice(str, plugin.allows_flavor, pod_set, drawn_flavor(chance))
        if hasattr(plugin, "allows_node"):
            call.twice(str, plugin.allows_node, pod_set, drawn_node(chance))


def _check_victims(call: _Caller, plugin: Any, chance: random.Random, inputs: int) -> None:
    ranks: list[Any] = []
    for _ in range(inputs):
        head, targets = drawn_head(chance), drawn_targets(chance)
        if hasattr(plugin, "veto"):
            call.twice(frozenset, plugin.veto, head, targets)
        if hasattr(plugin, "rank"):
            ranks.append(call.twice(tuple, plugin.rank, head, targets))
    try:
        ranks.sort()
    except TypeError as e:
        raise call.fail("rank", f"the answers cannot be compared: {e}") from e


def _check_score(call: _Caller, plugin: Any, chance: random.Random, inputs: int) -> None:
    for head in _drawn(drawn_head, chance, inputs):
        flavors = {name: drawn_flavor(chance, name) for name in _NAMES}
        prepared = call.once(plugin.prepare, head) if hasattr(plugin, "prepare") else head
        scores = {name: call.twice(int, plugin.score, prepared, flavor) for name, flavor in flavors.items()}
        if hasattr(plugin, "normalise"):
            scores = call.once(plugin.normalise, scores)
        if scores.keys() != flavors.keys():
            raise call.fail("normalise", f"the scores are of {sorted(scores)}, not of {sorted(flavors)}")
        for name, score in scores.items():
            if not isinstance(score, int) or not 0 <= score <= 100:
                raise call.fail("score", f"{score!r} of flavor {name} is no whole number from 0 to 100")


def _check_reserve(call: _Caller, plugin: Any, chance: random.Random, inputs: int) -> None:
    """Reserve some decisions and undo them; reservations of other workloads stay in between."""
    held: list[Admit] = []
    for admit in drawn_admits(chance, inputs):
        before = _state(plugin)
        verdict = call.once(plugin.reserve, admit)
        if not isinstance(verdict, Verdict):
            raise call.fail("reserve", f"the answer is {type(verdict).__name__}, not Verdict")
        if verdict.ok and chance.random() < 0.5 and len(held) < 100:
            held.append(admit)
            continue
        call.once(plugin.unreserve, admit)
        if _state(plugin) != before:
            raise call.fail("unreserve", "the plugin's state is not as before `reserve`")


_CHECKS: dict[Point, Callable[[_Caller, Any, random.Random, int], None]] = {
    Point.ORDER: _check_order,
    Point.SCREEN: _check_screen,
    Point.FILTER: _check_filter,
    Point.VICTIMS: _check_victims,
    Point.SCORE: _check_score,
    Point.RESERVE: _check_reserve,
}


def _state(plugin: Any) -> dict[str, Any]:
    """Return a copy of the plugin's attributes; those that cannot be copied, as locks, are left out."""
    found: dict[str, Any] = {}
    for name, value in vars(plugin).items():
        try:
            found[name] = copy.deepcopy(value)
        except TypeError:
            continue
    return found


def _copied(value: Any) -> Any:
    """Return an equal value; the value itself where pickle cannot copy it, as results of `prepare`."""
    try:
        return pickle.loads(pickle.dumps(value))
    except (TypeError, AttributeError, pickle.PicklingError):
        return value


# --- inputs -----------------------------------------------------------------------------------------------------------


def _drawn(draw: Callable[[random.Random], T], chance: random.Random, inputs: int) -> Iterator[T]:
    return (draw(chance) for _ in range(inputs))


def _moment(chance: random.Random) -> datetime:
    return _START + timedelta(seconds=chance.randint(0, 100_000))


def drawn_queued(chance: random.Random) -> Queued:
    """Return a random waiting workload."""
    uid, created = f"{chance.randrange(2**32):08x}", _moment(chance)
    gang = QueuedGang(key="ns/gang", since=created, uid=uid) if chance.random() < 0.3 else None
    return Queued(
        key=f"{chance.choice(_NAMES)}/w-{uid}",
        uid=uid,
        queue="team",
        local_queue=f"{chance.choice(_NAMES)}/{chance.choice(_NAMES)}",
        priority=chance.choice([-(2**31), -5, 0, 0, 1, 2**31 - 1]),
        timestamp=created,
        created=created,
        first_try=chance.choice([None, created]),
        gang=gang,
    )


def drawn_head(chance: random.Random) -> Head:
    """Return a random workload that is tried."""
    uid = f"{chance.randrange(2**32):08x}"
    requests = {"cpu": chance.choice([1, 500, 4000, 2**63 - 1]), "nvidia.com/gpu": chance.randint(0, 8)}
    level = chance.choice([None, "example.com/rack"])
    request = PodSetRequest(
        name=chance.choice(["main", "workers"]),
        count=chance.choice([1, 4, 10_000]),
        requests=requests,
        topology=TopologyRequest(required=level),
    )
    return Head(
        key=f"{chance.choice(_NAMES)}/w-{uid}",
        uid=uid,
        queue="team",
        priority=chance.choice([-5, 0, 10]),
        timestamp=_moment(chance),
        pod_sets=(PodSet(request=request, quota_requests=requests, asks_topology=level is not None),),
    )


def drawn_flavor(chance: random.Random, name: str = "") -> Flavor:
    """Return a random flavor."""
    return Flavor(
        name=name or chance.choice(_NAMES),
        node_labels=chance.choice([{}, {"pool": "gpu"}]),
        topology=chance.choice([None, "dc"]),
    )


def drawn_node(chance: random.Random) -> NodeFacts:
    """Return a random node."""
    name = f"host-{chance.randint(0, 99)}"
    labels = {"kubernetes.io/hostname": name, "example.com/rack": f"r{chance.randint(0, 9)}"}
    return NodeFacts(name=name, labels=labels, allocatable={"cpu": 1000 * chance.randint(0, 64), "pods": 110})


def drawn_targets(chance: random.Random) -> Sequence[Target]:
    """Return random workloads to preempt, at least one."""
    return [_target(chance, n) for n in range(chance.randint(1, 5))]


def _target(chance: random.Random, number: int) -> Target:
    admitted = Admitted(
        key=f"{chance.choice(_NAMES)}/w-{number}",
        uid=f"u-{number}",
        queue=chance.choice(["team", "other"]),
        local_queue="a/main",
        priority=chance.choice([-5, 0, 5]),
        timestamp=_moment(chance),
        reserved_at=chance.choice([None, _moment(chance)]),
        evicted=chance.random() < 0.2,
        usage={FlavorResource("a", "cpu"): 1000},
    )
    return Target(admitted, chance.choice(list(PreemptionReason)))


def drawn_admits(chance: random.Random, inputs: int) -> Iterator[Admit]:
    """Yield random decisions, each for another workload."""
    for head in _drawn(drawn_head, chance, inputs):
        pods = head.pod_sets[0]
        flavors = dict.fromkeys(pods.quota_requests, chance.choice(_NAMES))
        usage = {resource: amount * pods.request.count for resource, amount in pods.quota_requests.items()}
        held = PodSetAssignment(name=pods.name, flavors=flavors, usage=usage, count=pods.request.count)
        yield Admit(head=head, admission=Admission(queue=head.queue, pod_sets=(held,)))
