"""A placer in one file: it tries domains from the last one on, while kqueue's own begin with the first."""

from __future__ import annotations

from kqueue.core.topology.optimal import Arrangement
from kqueue.core.topology.placers import FoundPlacement, Question, greedy, problem_with
from kqueue.core.topology.result import Misfit, MisfitCode

NAME = "Toy"


def place(question: Question) -> FoundPlacement | Misfit:
    """The last host that holds everything; best fit where none does, and for slices and leaders."""
    pods = question.request.need * question.request.slice_size
    for leaf in reversed(range(len(question.tree))):
        arrangement = Arrangement([leaf], [pods])
        if not question.leaders and problem_with(question, arrangement) is None:
            return FoundPlacement(arrangement)
    return greedy(question)


def no_room(question: Question) -> Misfit:
    """What a placer answers that finds nothing."""
    level = question.tree.levels[question.request.level]
    return Misfit(code=MisfitCode.NO_FIT, pod_set="", level=level, count=question.request.count, unit="pod", size=1)
