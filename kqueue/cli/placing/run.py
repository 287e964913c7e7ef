"""From the bytes of an input to the text of the answer and the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kqueue.cli.placing.answer import answer, error, text
from kqueue.cli.placing.case import read
from kqueue.cli.placing.document import NotJsonError, parse
from kqueue.cli.placing.explaining import Explainer, explain_problems
from kqueue.cli.placing.fields import Problem, Problems
from kqueue.cli.placing.solving import solve

PLACED, NOT_PLACED, INVALID = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Answer:
    """What the command gives back: a JSON document, an exit code, and on request an account for people."""

    document: dict[str, Any]
    code: int
    explanation: str = ""

    def text(self, *, compact: bool) -> str:
        """The document as text."""
        return text(self.document, compact=compact)


def run(data: bytes, *, explain: bool = False) -> Answer:
    """Answer one input, with one placement or with `cases`."""
    try:
        document = parse(data)
    except NotJsonError as e:
        return _invalid(None, [Problem("", str(e))])
    if isinstance(document, dict) and "cases" in document:
        return _cases(document, explain=explain)
    return _one(document, explain=explain)


def _cases(document: dict[str, Any], *, explain: bool) -> Answer:
    problems = Problems()
    fields = problems.fields(document, "", ("cases",))
    cases = [case for _, case in fields.items("cases")]
    if problems:
        return _invalid(document, problems.found)
    answers = [_one(case, explain=explain) for case in cases]
    return Answer(
        {"results": [found.document for found in answers]},
        INVALID if any(found.code == INVALID for found in answers) else PLACED,
        "\n".join(found.explanation for found in answers),
    )


def _one(document: Any, *, explain: bool) -> Answer:
    case = read(document)
    if isinstance(case, list):
        return _invalid(document, case)
    explainer = Explainer(case) if explain else None
    solution = solve(case, watch=explainer.watch) if explainer else solve(case)
    code = PLACED if solution.placed else NOT_PLACED
    return Answer(answer(solution), code, explainer.text(solution) if explainer else "")


def _invalid(document: Any, problems: list[Problem]) -> Answer:
    return Answer(error(document, problems), INVALID, explain_problems(document, problems))
