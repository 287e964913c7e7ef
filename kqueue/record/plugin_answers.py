"""Answers of plugins while a plan is made: noted on the event loop, and put into their plain form on another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol, TypeVar

from kqueue.core.hooks import HooksByProfile, PluginRefusal, ProfileHooks, RefusedHosts
from kqueue.core.preemption import Target
from kqueue.core.topology import Tree
from kqueue.core.workload import Flavor, Head, PodSet, TopologyView
from kqueue.errors import PluginError
from kqueue.record.entries import to_text
from kqueue.record.plain import Plain
from kqueue.record.plugin_questions import (
    PluginQuestion,
    ProfileForm,
    about_flavors,
    about_head,
    about_pod_sets,
    about_targets,
    form_of_profile,
    places,
    plain_answer,
    question_name,
)

T = TypeVar("T")

MOST_ANSWERS = 20_000
"""Answers of one plan that are recorded; a plan asks some ten times for each workload."""
MOST_TEXT = 8 << 20
"""Bytes of all different answers of one plan: a refusal has a host and a sentence, and a topology 20,000 hosts."""


class AnsweredQuestion(NamedTuple):
    """The hash of a question, and its answers as texts in the order in which they were given."""

    question: PluginQuestion
    name: str
    texts: list[bytes]


class StoredAnswers(Protocol):
    """The answers of one plan in their plain form."""

    @property
    def profiles(self) -> Mapping[str, ProfileForm]:
        """The plugins by profile."""
        ...

    def texts(self) -> tuple[list[AnsweredQuestion], int]:
        """Return all questions with their answers, and the number of answers that are left out."""
        ...


class _Noted(NamedTuple):
    profile: str
    question: PluginQuestion
    about: tuple[Any, ...]
    answer: Any


@dataclass(slots=True)
class NotedAnswers:
    """The answers of one plan, as they were given; their values do not change any more."""

    profiles: Mapping[str, ProfileForm]
    _trees: Mapping[int, str]
    """The flavor of each topology of the plan, by the identity of its tree."""
    _noted: list[_Noted] = field(default_factory=list)
    _left_out: int = 0

    def note(self, profile: str, question: PluginQuestion, about: tuple[Any, ...], answer: Any) -> None:
        """Note an answer, or the failure of a plugin."""
        if len(self._noted) < MOST_ANSWERS:
            self._noted.append(_Noted(profile, question, about, answer))
        else:
            self._left_out += 1

    def texts(self) -> tuple[list[AnsweredQuestion], int]:
        """Return all questions with their answers, and the number of answers that are left out."""
        found: dict[str, AnsweredQuestion] = {}
        left_out, size, known = self._left_out, 0, set[bytes]()
        texts: dict[int, bytes] = {}
        """Texts of lists of hosts by their identity: plugins refuse the same hosts to many workloads."""
        for one, plain in self._plain():
            text = texts.get(id(one.answer)) if one.question is PluginQuestion.REFUSED_HOSTS else None
            if text is None:
                text = to_text(plain)
                if one.question is PluginQuestion.REFUSED_HOSTS:
                    texts[id(one.answer)] = text
            if text not in known:
                size += len(text)
                known.add(text)
            if size > MOST_TEXT or plain is _UNORDERED:
                left_out += 1
            else:
                name = self._name(one)
                found.setdefault(name, AnsweredQuestion(one.question, name, [])).texts.append(text)
        return list(found.values()), left_out

    def _plain(self) -> Iterator[tuple[_Noted, Plain]]:
        """Yield answers with their plain form; sort keys of sets of targets become places among those of a workload."""
        ranked: dict[tuple[str, str], list[_Noted]] = {}
        for one in self._noted:
            if one.question is PluginQuestion.RANKED and not isinstance(one.answer, PluginError):
                ranked.setdefault((one.profile, one.about[0].uid), []).append(one)
        place: dict[int, list[int] | None] = {}
        for some in ranked.values():
            place.update(zip(map(id, some), places([one.answer for one in some]), strict=True))
        for one in self._noted:
            if id(one) in place:
                yield one, (_UNORDERED if place[id(one)] is None else place[id(one)])
            else:
                yield one, plain_answer(one.question, one.answer)

    def _name(self, one: _Noted) -> str:
        match one.question:
            case PluginQuestion.SCREENED:
                about = about_head(*one.about)
            case PluginQuestion.REFUSED_FLAVOR:
                about = about_pod_sets(*one.about)
            case PluginQuestion.REFUSED_HOSTS:
                pod_set, tree = one.about
                about = about_pod_sets([pod_set], self._trees.get(id(tree), tree.topology))
            case PluginQuestion.VETOED | PluginQuestion.RANKED:
                about = about_targets(*one.about)
            case PluginQuestion.SCORED:
                about = about_flavors(*one.about)
        return question_name(one.profile, one.question, about)


_UNORDERED: Plain = "no order"
"""Stands for the answers of a plugin whose sort keys cannot be compared."""


def note_answers(
    hooks: HooksByProfile, topologies: Mapping[str, TopologyView]
) -> tuple[HooksByProfile, NotedAnswers | None]:
    """Return hooks that note each answer, and the place of the notes; None: there are no plugins."""
    if not hooks:
        return hooks, None
    noted = NotedAnswers(
        {profile: form_of_profile(one) for profile, one in hooks.items()}, flavors_of_trees(topologies)
    )
    return {profile: _NotingHooks.of(one, profile, noted) for profile, one in hooks.items()}, noted


def flavors_of_trees(topologies: Mapping[str, TopologyView]) -> dict[int, str]:
    """Return the flavor of each topology by the identity of its tree; the smaller name of two flavors."""
    return {id(view.tree): name for name, view in sorted(topologies.items(), reverse=True)}


@dataclass(frozen=True, kw_only=True)
class _NotingHooks(ProfileHooks):
    profile: str
    noted: NotedAnswers

    @classmethod
    def of(cls, hooks: ProfileHooks, profile: str, noted: NotedAnswers) -> _NotingHooks:
        given = {f.name: getattr(hooks, f.name) for f in fields(ProfileHooks)}
        return cls(**given, profile=profile, noted=noted)

    def _noted(self, question: PluginQuestion, about: tuple[Any, ...], ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except PluginError as e:
            self.noted.note(self.profile, question, about, e)
            raise
        self.noted.note(self.profile, question, about, answer)
        return answer

    def screened(self, head: Head) -> PluginRefusal | None:
        if not self.screens:
            return None
        return self._noted(PluginQuestion.SCREENED, (head,), lambda: ProfileHooks.screened(self, head))

    def refused_flavor(self, pod_sets: Iterable[PodSet], flavor: Flavor) -> PluginRefusal | None:
        some = tuple(pod_sets)
        about = some, flavor.name
        return self._noted(
            PluginQuestion.REFUSED_FLAVOR, about, lambda: ProfileHooks.refused_flavor(self, some, flavor)
        )

    def refused_hosts(self, pod_set: PodSet, tree: Tree) -> RefusedHosts:
        about = pod_set, tree
        return self._noted(PluginQuestion.REFUSED_HOSTS, about, lambda: ProfileHooks.refused_hosts(self, pod_set, tree))

    def vetoed(self, head: Head, targets: Sequence[Target]) -> dict[str, str]:
        about = head, tuple(targets)
        return self._noted(PluginQuestion.VETOED, about, lambda: ProfileHooks.vetoed(self, head, targets))

    def ranked(self, head: Head, targets: Sequence[Target]) -> tuple[Any, ...]:
        about = head, tuple(targets)
        return self._noted(PluginQuestion.RANKED, about, lambda: ProfileHooks.ranked(self, head, targets))

    def scored(self, head: Head, flavors: Mapping[str, Flavor]) -> dict[str, int]:
        about = head, tuple(flavors)
        return self._noted(PluginQuestion.SCORED, about, lambda: ProfileHooks.scored(self, head, flavors))
