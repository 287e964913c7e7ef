"""Questions to the plugins of a profile, as a record names them, and the plain forms of their answers.

screened        null, or [plugin, reason]
refused_flavor  null, or [plugin, reason]
refused_hosts   a list of [host, reason]
vetoed          an object: the plugin by the UID of a target that must stay
ranked          a list: the place of the set of targets among all sets that the plan compared for the workload
scored          an object: the score by flavor
any of them     {"failed": text}: the plugin failed, and its failures keep workloads waiting
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from kqueue.core.hooks import PluginRefusal, ProfileHooks
from kqueue.core.plugins import Plugin
from kqueue.core.preemption import Target
from kqueue.core.workload import Head, PodSet
from kqueue.errors import PluginError
from kqueue.isolation import isolated
from kqueue.record.entries import to_text
from kqueue.record.plain import Plain, Writers, at, reader

_WRITE_POD_SET = Writers(canonical=True, omit_defaults=True).of(PodSet)
"""Fields with their default are left out, so that a field of a later version does not change the hash of a question."""


class PluginQuestion(StrEnum):
    """The questions that a plan asks the plugins of a profile: methods of `ProfileHooks`."""

    SCREENED = "screened"
    REFUSED_FLAVOR = "refused_flavor"
    REFUSED_HOSTS = "refused_hosts"
    VETOED = "vetoed"
    RANKED = "ranked"
    SCORED = "scored"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileForm:
    """The plugins of a profile by what a plan asks them; a plan asks nothing where there are none."""

    screen: tuple[str, ...] = ()
    filter: tuple[str, ...] = ()
    filter_nodes: tuple[str, ...] = ()
    veto: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    score: tuple[str, ...] = ()


def form_of_profile(hooks: ProfileHooks) -> ProfileForm:
    """Return the names of the plugins that a plan asks."""
    return ProfileForm(
        screen=_names(hooks.screens),
        filter=_names(hooks.filters),
        filter_nodes=_names(hooks.filters, "allows_node"),
        veto=_names(hooks.victims, "veto"),
        rank=_names(hooks.victims, "rank"),
        score=_names(hooks.scores),
    )


def _names(plugins: Iterable[Plugin], method: str = "name") -> tuple[str, ...]:
    return tuple(plugin.name for plugin in plugins if hasattr(plugin, method))


# --- questions


def question_name(profile: str, question: PluginQuestion, about: Plain) -> str:
    """Return the hash under which the answers to a question are stored."""
    return blake2b(to_text([profile, question.value, about]), digest_size=8).hexdigest()


def about_head(head: Head, *more: Plain) -> Plain:
    """Return what a question about a workload is about: its UID, its numbers of pods, and `more`."""
    return [head.uid, [pod_set.request.count for pod_set in head.pod_sets], *more]


def about_targets(head: Head, targets: Iterable[Target]) -> Plain:
    """Return what a question about workloads to preempt is about."""
    return about_head(head, [[target.admitted.uid, target.reason.value] for target in targets])


def about_flavors(head: Head, flavors: Iterable[str]) -> Plain:
    """Return what a question about the flavors of a workload is about."""
    return about_head(head, list(flavors))


def about_pod_sets(pod_sets: Iterable[PodSet], flavor: str) -> Plain:
    """Return what a question about pod sets in a flavor, or on its nodes, is about."""
    return [flavor, *(pod_set_name(pod_set) for pod_set in pod_sets)]


def pod_set_name(pod_set: PodSet) -> str:
    """Return the hash of a pod set with all its fields."""
    return blake2b(to_text(_WRITE_POD_SET(pod_set)), digest_size=8).hexdigest()


# --- answers


def plain_answer(question: PluginQuestion, answer: Any) -> Plain:
    """Return the plain form of an answer, or of a failure."""
    if isinstance(answer, PluginError):
        return {"failed": str(answer)}
    if question in (PluginQuestion.SCREENED, PluginQuestion.REFUSED_FLAVOR):
        return None if answer is None else list(answer)
    if question is PluginQuestion.SCORED:
        return {flavor: int(score) for flavor, score in answer.items()}  # True counts as 1
    if question is PluginQuestion.VETOED:
        return answer
    return [list(one) if isinstance(one, tuple) else one for one in answer]


_READERS: Mapping[PluginQuestion, Any] = {
    PluginQuestion.SCREENED: tuple[str, str] | None,
    PluginQuestion.REFUSED_FLAVOR: tuple[str, str] | None,
    PluginQuestion.REFUSED_HOSTS: tuple[tuple[str, str], ...],
    PluginQuestion.VETOED: Mapping[str, str],
    PluginQuestion.RANKED: tuple[int],
    PluginQuestion.SCORED: Mapping[str, int],
}


def read_answer(question: PluginQuestion, plain: Plain) -> Any:
    """Return a recorded answer; a PluginError: the plugin failed.  Raises UnreadableValueError: it is no answer."""
    if isinstance(plain, dict) and isinstance(text := plain.get("failed"), str):
        return PluginError(text)
    answer = at(question.value, reader(_READERS[question]), plain)
    if question in (PluginQuestion.SCREENED, PluginQuestion.REFUSED_FLAVOR) and answer is not None:
        return PluginRefusal(*answer)
    return answer


def places(keys: Sequence[Any]) -> list[list[int] | None]:
    """Return the place of each sort key among all keys; equal keys share a place.  None: the keys have no order."""
    with isolated():  # keys are a plugin's, and comparing them runs its code
        ordered = sorted(keys)
        return [[next(i for i, one in enumerate(ordered) if not one < key)] for key in keys]
    return [None] * len(keys)
