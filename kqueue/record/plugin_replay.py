"""Recorded answers of plugins in a replay: a plan gets them without the plugins' code, or they are compared with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import msgspec

from kqueue.core.hooks import HooksByProfile, PluginRefusal, ProfileHooks, RefusedHosts
from kqueue.core.preemption import Target
from kqueue.core.topology import Tree
from kqueue.core.workload import Flavor, Head, PodSet, TopologyView
from kqueue.errors import PluginError
from kqueue.record.plain import Plain
from kqueue.record.plugin_answers import AnsweredQuestion, flavors_of_trees
from kqueue.record.plugin_questions import (
    PluginQuestion,
    ProfileForm,
    about_flavors,
    about_head,
    about_pod_sets,
    about_targets,
    plain_answer,
    question_name,
)

_AGREED: Mapping[PluginQuestion, Any] = {
    PluginQuestion.SCREENED: None,
    PluginQuestion.REFUSED_FLAVOR: None,
    PluginQuestion.REFUSED_HOSTS: (),
    PluginQuestion.VETOED: {},
    PluginQuestion.RANKED: (),
}
"""Answers in place of those that are not recorded; the scores of flavors are 0."""
_MOST_TOLD = 100
"""The most sentences about different answers of one cycle."""


class RecordedAnswer(NamedTuple):
    """A question with its answers as texts and as values; a value is a PluginError where the plugin failed."""

    answered: AnsweredQuestion
    values: Sequence[Any]


@dataclass(slots=True)
class RecordedAnswers:
    """The answers of one recorded plan, by question.

    Args:
        left_out: answers that were too many or too long to be recorded.
        unanswered: questions of a replay that have no recorded answer, as sentences.
        different: answers of plugins that are loaded here and differ from the recorded ones, as sentences.
    """

    profiles: Mapping[str, ProfileForm] = field(default_factory=dict)
    answers: Mapping[str, RecordedAnswer] = field(default_factory=dict)
    left_out: int = 0
    unanswered: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    _asked: dict[str, int] = field(default_factory=dict)

    def texts(self) -> tuple[list[AnsweredQuestion], int]:
        """Return all questions with their answers, and the number of answers that are left out."""
        return [one.answered for one in self.answers.values()], self.left_out

    def hooks(self, topologies: Mapping[str, TopologyView], loaded: HooksByProfile) -> HooksByProfile:
        """Return hooks for a replay: the plugins that are `loaded`, and recorded answers for all other profiles."""
        trees = flavors_of_trees(topologies)
        recorded = {
            profile: _RecordedHooks(profile=profile, form=form, recorded=self, trees=trees)
            for profile, form in self.profiles.items()
        }
        with_code = {
            profile: _ComparedHooks.comparing(hooks, recorded.get(profile) or _no_answers(profile, self, trees))
            for profile, hooks in loaded.items()
        }
        return {**recorded, **with_code}

    def next(self, name: str) -> tuple[bytes, Any] | None:
        """Return the next answer to a question, or the last one again, as text and value; None: there is none."""
        found = self.answers.get(name)
        if found is None or not found.values:
            return None
        number = min(self._asked.get(name, 0), len(found.values) - 1)
        self._asked[name] = number + 1
        return found.answered.texts[number], found.values[number]


def _no_answers(profile: str, recorded: RecordedAnswers, trees: Mapping[int, str]) -> _RecordedHooks:
    return _RecordedHooks(profile=profile, form=ProfileForm(), recorded=recorded, trees=trees)


@dataclass(frozen=True, kw_only=True)
class _AskedHooks(ProfileHooks, ABC):
    """Hooks whose questions all go through `_answered`."""

    @abstractmethod
    def _answered(self, question: PluginQuestion, about: Plain, ask: Callable[[], Any]) -> Any:
        """Return the answer to a question; `ask` puts it to the plugins."""

    @abstractmethod
    def flavor_of(self, tree: Tree) -> str:
        """Return the flavor of a topology in the record."""

    def screened(self, head: Head) -> PluginRefusal | None:
        answer: PluginRefusal | None = self._answered(
            PluginQuestion.SCREENED, about_head(head), lambda: ProfileHooks.screened(self, head)
        )
        return answer

    def refused_flavor(self, pod_sets: Iterable[PodSet], flavor: Flavor) -> PluginRefusal | None:
        some = tuple(pod_sets)
        answer: PluginRefusal | None = self._answered(
            PluginQuestion.REFUSED_FLAVOR,
            about_pod_sets(some, flavor.name),
            lambda: ProfileHooks.refused_flavor(self, some, flavor),
        )
        return answer

    def refused_hosts(self, pod_set: PodSet, tree: Tree) -> RefusedHosts:
        answer: RefusedHosts = self._answered(
            PluginQuestion.REFUSED_HOSTS,
            about_pod_sets([pod_set], self.flavor_of(tree)),
            lambda: ProfileHooks.refused_hosts(self, pod_set, tree),
        )
        return answer

    def vetoed(self, head: Head, targets: Sequence[Target]) -> dict[str, str]:
        about = about_targets(head, targets)
        return dict(self._answered(PluginQuestion.VETOED, about, lambda: ProfileHooks.vetoed(self, head, targets)))

    def ranked(self, head: Head, targets: Sequence[Target]) -> tuple[Any, ...]:
        about = about_targets(head, targets)
        answer: tuple[Any, ...] = self._answered(
            PluginQuestion.RANKED, about, lambda: ProfileHooks.ranked(self, head, targets)
        )
        return answer

    def scored(self, head: Head, flavors: Mapping[str, Flavor]) -> dict[str, int]:
        about = about_flavors(head, flavors)
        answer = self._answered(PluginQuestion.SCORED, about, lambda: ProfileHooks.scored(self, head, flavors))
        return {name: answer.get(name, 0) for name in flavors}


@dataclass(frozen=True, kw_only=True)
class _RecordedHooks(_AskedHooks):
    """The plugins of a profile, without their code."""

    profile: str
    form: ProfileForm
    recorded: RecordedAnswers
    trees: Mapping[int, str]

    def _answered(self, question: PluginQuestion, about: Plain, ask: Callable[[], Any]) -> Any:
        del ask
        found = self.next(question, about)
        if found is None:
            self.recorded.unanswered.append(f"{_sentence(self.profile, question, about)} is not in the record")
            return _AGREED.get(question, {})
        if isinstance(found[1], PluginError):
            raise found[1]
        return found[1]

    def next(self, question: PluginQuestion, about: Plain) -> tuple[bytes, Any] | None:
        """Return the recorded answer as text and value; None: there is none."""
        return self.recorded.next(question_name(self.profile, question, about))

    def flavor_of(self, tree: Tree) -> str:
        return self.trees.get(id(tree), tree.topology)

    def screened(self, head: Head) -> PluginRefusal | None:
        return super().screened(head) if self.form.screen else None

    @property
    def filters_flavors(self) -> bool:
        return bool(self.form.filter)

    @property
    def filters_nodes(self) -> bool:
        return bool(self.form.filter_nodes)

    @property
    def vetoes(self) -> bool:
        return bool(self.form.veto)

    @property
    def ranks(self) -> bool:
        return bool(self.form.rank)

    @property
    def prefers_flavors(self) -> bool:
        return bool(self.form.score)


@dataclass(frozen=True, kw_only=True)
class _ComparedHooks(_AskedHooks):
    """Plugins that are loaded here: they answer; `recorded.different` gets answers unlike the recorded ones."""

    before: _RecordedHooks

    @classmethod
    def comparing(cls, hooks: ProfileHooks, before: _RecordedHooks) -> _ComparedHooks:
        given = {f.name: getattr(hooks, f.name) for f in fields(ProfileHooks)}
        return cls(**given, before=before)

    def _answered(self, question: PluginQuestion, about: Plain, ask: Callable[[], Any]) -> Any:
        known = self.before.next(question, about)
        failed: PluginError | None = None
        try:
            answer = ask()
        except PluginError as e:
            answer = failed = e
        if known is not None and question is not PluginQuestion.RANKED:  # of sort keys the record has the order only
            self._compare(question, about, msgspec.json.decode(known[0]), plain_answer(question, answer))
        if failed is not None:
            raise failed
        return answer

    def _compare(self, question: PluginQuestion, about: Plain, recorded: Plain, now: Plain) -> None:
        told = self.before.recorded.different
        if recorded != now and len(told) < _MOST_TOLD:
            what = _sentence(self.before.profile, question, about)
            told.append(f"{what}: recorded {_short(recorded)}, now {_short(now)}")

    def flavor_of(self, tree: Tree) -> str:
        return self.before.flavor_of(tree)


def _sentence(profile: str, question: PluginQuestion, about: Plain) -> str:
    return f"the answer of profile {profile} to {question.value} about {about[0]:.80}"


def _short(plain: Plain) -> str:
    return msgspec.json.encode(plain).decode()[:300]
