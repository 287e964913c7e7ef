"""The contract of policies of joint placement, as a check that other packages run in their tests.

    from kqueue.placing.policy_contract import check_policy

    def test_contract():
        check_policy(MyPolicy())

Worlds are drawn from seeds, so a failure can be repeated: its message names the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import numpy as np

from kqueue.core.joint.policy import NEVER, JudgedPlace, PlacePolicy
from kqueue.core.joint.policy_view import JudgedPods, Neighbours, TreeFacts, WorldView
from kqueue.core.joint.statistics import NodeStatistics
from kqueue.core.joint.traits import Traits
from kqueue.core.joint.units import Unit
from kqueue.core.topology import Capacity, DomainUsage, PodSetRequest
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.tree import Ints
from kqueue.placing.contract import ContractError, drawn

_NTH = 4


def check_policy(policy: PlacePolicy, *, seeds: Iterable[int] = range(100)) -> None:
    """Ask a policy about worlds of many forms.  Raises ContractError at the first wrong answer.

    Right answers are whole numbers: for domains and hosts one for each, 0 or more, or `NEVER`.  Costs of hosts never
    fall from pod to pod; patience and the seconds that count never fall with the seconds that a workload has waited.
    Equal questions have equal answers, and the policy does not change what it sees.
    """
    for seed in seeds:
        _Check(policy, seed).run()


class _Check:
    """The questions of one seed."""

    def __init__(self, policy: PlacePolicy, seed: int) -> None:
        chance = random.Random(seed)
        self._policy, self._seed = policy, seed
        self._pods, self._view = _drawn_view(chance)

    def run(self) -> None:
        before = self._view.capacity.tables()[1]
        self._costs()
        self._seconds()
        self._place()
        if not np.array_equal(before, self._view.capacity.tables()[1]):
            self._refuse("the policy changed the free amounts")

    def _costs(self) -> None:
        pods, view, policy = self._pods, self._view, self._policy
        for level in range(len(view.tree.levels)):
            ask = partial(policy.domains, pods, level, view)
            self._table(f"domains of level {level}", ask, view.tree.domains(level))
        rows = [
            self._table(f"hosts of pod {nth}", partial(policy.hosts, pods, nth, view), len(view.tree))
            for nth in range(1, _NTH + 1)
        ]
        for nth, (row, following) in enumerate(pairwise(rows), 1):
            if (following < row).any():
                self._refuse(f"the costs of hosts fall from pod {nth} to pod {nth + 1}")

    def _seconds(self) -> None:
        pods, view, policy = self._pods, self._view, self._policy
        later = JudgedPods(
            queue=pods.queue,
            request=pods.request,
            level=pods.level,
            units=pods.units,
            waited=pods.waited + 60,
            traits=pods.traits,
        )
        for name, ask in (("patience", lambda p: policy.patience(p, view)), ("waiting", policy.waiting)):
            now, then = ask(pods), ask(later)
            for found in (now, then):
                if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
                    self._refuse(f"{name} is {found!r}, and must be a whole number or None")
            if now is not None and (then is None or then < now) and not (name == "patience" and then is None):
                self._refuse(f"{name} falls with the seconds that the workload has waited")
        if policy.key(pods) != policy.key(pods):
            self._refuse("key has two answers to one question")
        hash(policy.key(pods))

    def _place(self) -> None:
        view, pods = self._view, self._pods
        if not len(view.tree):
            return
        place = JudgedPlace(pods=pods, leaves=np.array([0]), counts=np.array([pods.request.count]))
        found, again = self._policy.real_cost(place, view), self._policy.real_cost(place, view)
        if not isinstance(found, int | np.integer) or isinstance(found, bool) or found < 0:
            self._refuse(f"real_cost is {found!r}, and must be a whole number, 0 or more")
        if found != again:
            self._refuse("real_cost has two answers to one question")

    def _table(self, name: str, ask: Callable[[], Ints | None], size: int) -> Ints:
        found, again = ask(), ask()
        if found is None:
            return np.zeros(size, dtype=np.int64)
        if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.shape != (size,):
            self._refuse(f"{name} must be an int64 array of {size} costs, and is {found!r}")
        if (found < 0).any():
            self._refuse(f"{name} has costs below 0; use NEVER ({NEVER}) for places that no pod may use")
        if not np.array_equal(found, again if again is not None else ()):
            self._refuse(f"{name} has two answers to one question")
        return found

    def _refuse(self, problem: str) -> None:
        raise ContractError(f"seed {self._seed}: {problem}")


def _drawn_view(chance: random.Random) -> tuple[JudgedPods, WorldView]:
    """Return random pods and a random world with running pods and samples of some nodes."""
    question = drawn(chance)
    tree, resolved = question.tree, question.request
    assert isinstance(resolved, Resolved)
    start = Capacity.of(tree)
    used = [DomainUsage(tree.written(leaf), {"cpu": 1000}, chance.randint(0, 2)) for leaf in range(len(tree))]
    start.charge(used)
    now = start.fork()
    now.charge([DomainUsage(tree.written(chance.randrange(len(tree))), {"cpu": 500}, 1)])
    measured = {
        node.name: [{"cpu": chance.randint(0, 6000), "memory": chance.randint(0, 1 << 40)}]
        for leaf in tree.leaves
        for node in leaf.nodes
        if chance.random() < 0.5
    }
    level = resolved.level if not resolved.unconstrained else -1
    place = tree.paths[chance.randrange(len(tree))]
    pods = JudgedPods(
        queue="team",
        request=PodSetRequest(name="workers", count=chance.randint(1, 6), requests={"cpu": 1000}),
        level=level,
        units=chance.randint(1, 4),
        waited=chance.randint(0, 100_000),
        traits=Traits(
            prefers=((tree.levels[1], place[1]),) if chance.random() < 0.5 else (),
            interference=chance.choice(["", "x", "y"]),
            expected_seconds=chance.choice([None, 0, 600]),
        ),
    )
    neighbours = Neighbours()
    neighbours.note("x", tree.written(0), 2)
    view = WorldView(
        flavor="contract",
        capacity=now,
        start=start,
        facts=TreeFacts(tree, NodeStatistics.of(measured)),
        unit=Unit("cpu", 1000),
        neighbours=neighbours,
    )
    return pods, view
