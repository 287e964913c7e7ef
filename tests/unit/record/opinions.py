"""Plugins with opinions about everything that a plan asks, for worlds of `cycle_worlds`; and worlds that have them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

from kqueue.core.hooks import HooksByProfile, ProfileHooks
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.plugins import Verdict
from kqueue.core.preemption import Target
from kqueue.core.topology import NodeFacts
from kqueue.core.workload import Flavor, Head, PodSet
from kqueue.record.capture import CapturedCycle, Captures
from kqueue.record.plugin_answers import note_answers
from tests.unit.core.test_progress import bustle, make_model

PROFILE = "picky"


def _draw(salt: str, *about: object) -> int:
    return crc32(repr((salt, *about)).encode())


class Opinions:
    """Answers by a hash of the question, so that equal questions have equal answers; `salt` chooses other answers."""

    name = "opinions"

    _salt = ""

    @classmethod
    def _salted(cls, salt: str) -> Opinions:
        """Return the plugin with other answers."""
        one = cls()
        one._salt = salt
        return one

    def screen(self, head: Head) -> Verdict:
        """Refuse, or fail for, some workloads."""
        draw = _draw(self._salt, "screen", head.uid) % 12
        if draw == 0:
            raise ValueError(f"no opinion about {head.uid}")
        return Verdict("not today" if draw == 1 else "")

    def allows_flavor(self, pod_set: PodSet, flavor: Flavor) -> str:
        """Refuse a flavor to some sizes."""
        return "too many" if _draw(self._salt, pod_set.request.count, flavor.name) % 9 == 0 else ""

    def allows_node(self, pod_set: PodSet, node: NodeFacts) -> str:
        """Refuse some nodes."""
        return "dusty" if _draw(self._salt, pod_set.request.count, node.name) % 7 == 0 else ""

    def veto(self, head: Head, targets: Sequence[Target]) -> frozenset[str]:
        """Protect some workloads."""
        return frozenset(t.admitted.uid for t in targets if _draw(self._salt, t.admitted.uid) % 4 == 0)

    def rank(self, head: Head, targets: Sequence[Target]) -> tuple[object, ...]:
        """Prefer few workloads, with sort keys that no plain form has."""
        return len(targets), head.timestamp, frozenset[str]()

    def score(self, prepared: Head, flavor: Flavor) -> int:
        """Prefer a flavor for each workload."""
        return _draw(self._salt, prepared.uid, flavor.name) % 101


class OtherOpinions(Opinions):
    """Other answers to the same questions."""

    _salt = "other"


def opinions(salt: str = "", *, plugin: object | None = None) -> HooksByProfile:
    """The hooks of the profile."""
    one = plugin or Opinions._salted(salt)
    points = {"screens": "screen", "filters": "allows_flavor", "victims": "rank", "scores": "score"}
    given = {point: (one,) for point, method in points.items() if hasattr(one, method)}
    return {PROFILE: ProfileHooks(**given)}  # type: ignore[arg-type]


def picky_cycles(seed: int, number: int, hooks: HooksByProfile | None = None) -> Iterator[CapturedCycle]:
    """The cycles of a world whose ClusterQueues name the profile."""
    model, captures = make_model(seed), Captures()
    hooks = hooks if hooks is not None else opinions()
    for n in range(number):
        bustle(model, 1)
        for _ in range(4):
            model.arrive()
        snapshot = model.snapshot(model.claims.values())
        queues = {name: replace(spec, plugin_profile=PROFILE) for name, spec in snapshot.queues.items()}
        question = PlanQuestion(
            snapshot=replace(snapshot, queues=queues), heads=model.heads(), rules=model.rules(), hooks=hooks
        )
        yield captured_cycle(captures, n, question, model.next_head)


def captured_cycle(captures: Captures, number: int, question: PlanQuestion, ask: object) -> CapturedCycle:
    """One plan, captured as the recorder does."""
    captured = captures.take(number, question)
    noting, captured.plugin_answers = note_answers(question.hooks, question.snapshot.topologies)

    def next_head(queue: str, without: Collection[str]) -> Head | None:
        head: Head | None = ask(queue, without)  # type: ignore[operator]
        captured.asked.append((queue, tuple(without), head))
        return head

    captured.decisions.extend(replace(question, hooks=noting).decisions(next_head=next_head))
    return captured


def answered(captured: CapturedCycle) -> Mapping[str, list[bytes]]:
    """The answers of a cycle by question."""
    assert captured.plugin_answers is not None
    return {one.name: one.texts for one in captured.plugin_answers.texts()[0]}
