"""Runs one input: from its bytes to the text of the answer and the exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.placing import joint_answer, joint_case, joint_solving
from kqueue.placing.answer import answer, error, text
from kqueue.placing.case import read
from kqueue.placing.document import NotJsonError, parse
from kqueue.placing.explaining import PlacementExplainer, explain_problems
from kqueue.placing.fields import FieldProblem, Problems, printable
from kqueue.placing.joint_explaining import explain_joint
from kqueue.placing.remarks import joint_remarks, remarks
from kqueue.placing.solving import solve

PLACED, NOT_PLACED, INVALID = 0, 1, 2
MOST_LINES = 20
"""Limit of printed remarks; the rest is counted."""
NO_SOLVER = FieldProblem(
    "/joint", "OR-tools is not installed, so the answer has no bound: install kqueue[flow] to get one"
)
NO_OPTIMUM = FieldProblem(
    "/joint/exact", "the search for the optimum reached its limit: ask for fewer workloads or nodes"
)
_LONGEST_LINE = 600
_NUMBER = re.compile(r"/[0-9]+(?=/|$)")


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of the command: a JSON document, an exit code, and on request a description for people.

    `remarks` are about valid inputs and are not part of the document.
    """

    document: dict[str, Any]
    code: int
    explanation: str = ""
    remarks: tuple[FieldProblem, ...] = ()

    def text(self, *, compact: bool) -> str:
        """Return the document as text."""
        return text(self.document, compact=compact)

    def remark_lines(self) -> Iterator[str]:
        """Yield the remarks for a terminal: a bounded number of lines of bounded length."""
        shown = _fair_share(self.remarks)
        for remark in shown:
            yield _line(f"remark: {remark.path}: {remark.text}")
        if len(shown) < len(self.remarks):
            yield f"remark: and {len(self.remarks) - len(shown)} more; the answer of --strict lists all of them"


def run(data: bytes, *, explain: bool = False, strict: bool = False) -> Answer:
    """Answer one input, with one placement or with `cases`.  `strict`: a case with remarks is not valid."""
    try:
        document = parse(data)
    except NotJsonError as e:
        return _invalid(None, [FieldProblem("", str(e))])
    if isinstance(document, dict) and "cases" in document:
        return _cases(document, explain=explain, strict=strict)
    return _one(document, explain=explain, strict=strict)


def _cases(document: dict[str, Any], *, explain: bool, strict: bool) -> Answer:
    problems = Problems()
    fields = problems.fields(document, "", ("cases",))
    cases = [case for _, case in fields.items("cases")]
    if problems:
        return _invalid(document, problems.found)
    answers = [_one(case, explain=explain, strict=strict) for case in cases]
    return Answer(
        {"results": [found.document for found in answers]},
        INVALID if any(found.code == INVALID for found in answers) else PLACED,
        "\n".join(found.explanation for found in answers),
        tuple(
            [
                FieldProblem(f"/cases/{i}{remark.path}", remark.text)
                for i, found in enumerate(answers)
                for remark in found.remarks
            ]
        ),
    )


def _one(document: Any, *, explain: bool, strict: bool) -> Answer:
    if isinstance(document, dict) and "workloads" in document:
        return _joint(document, explain=explain, strict=strict)
    case = read(document)
    if isinstance(case, list):
        return _invalid(document, case)
    remarked = remarks(case)
    if remarked and strict:
        return _invalid(document, remarked)
    explainer = PlacementExplainer(case) if explain else None
    solution = solve(case, watch=explainer.watch) if explainer else solve(case)
    code = PLACED if solution.placed else NOT_PLACED
    return Answer(answer(solution), code, explainer.text(solution) if explainer else "", remarked)


def _joint(document: dict[str, Any], *, explain: bool, strict: bool) -> Answer:
    """Answer a document with several workloads."""
    case = joint_case.read(document)
    if isinstance(case, list):
        return _invalid(document, case)
    remarked = joint_remarks(case)
    if remarked and strict:
        return _invalid(document, remarked)
    solution = joint_solving.solve(case)
    if not solution.has_solver:
        remarked = (*remarked, NO_SOLVER)
    if case.exact and solution.exact_units is None:
        remarked = (*remarked, NO_OPTIMUM)
    code = PLACED if solution.placed else NOT_PLACED
    return Answer(joint_answer.answer(solution), code, explain_joint(solution) if explain else "", remarked)


def _invalid(document: Any, problems: Sequence[FieldProblem]) -> Answer:
    return Answer(error(document, problems), INVALID, explain_problems(document, problems))


def _fair_share(found: Sequence[FieldProblem]) -> list[FieldProblem]:
    """Return the remarks to print, in their order: one of each kind of path before a second one of any kind."""
    if len(found) <= MOST_LINES:
        return list(found)
    seen: dict[str, int] = {}
    ranks = []
    for i, remark in enumerate(found):
        kind = _NUMBER.sub("/*", remark.path)
        ranks.append((seen.setdefault(kind, 0), i))
        seen[kind] += 1
    return [found[i] for i in sorted(i for _, i in sorted(ranks)[:MOST_LINES])]


def _line(text: str) -> str:
    """Return one line without control characters, so that names in it cannot change the terminal."""
    cut = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}..."
    return printable(cut)
