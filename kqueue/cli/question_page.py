"""The frame of an answer to a question about what does not exist: its summary first, and last the time of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kqueue.cli.explain_page import PageLine, as_of, print_lines
from kqueue.cli.output import Output, show

JSON = Mapping[str, Any]
GOOD, BAD, HEAD, DIM = "green", "red", "bold", "dim"


def framed(answer: JSON, summary: str, parts: Iterable[PageLine]) -> Iterator[PageLine]:
    """Yield the summary, why the answer is not complete, the parts, and the time of the state."""
    yield PageLine(summary, style=HEAD)
    if "message" in answer:
        yield PageLine(answer["message"], style=BAD)
    yield from parts
    yield PageLine("")
    yield PageLine(as_of(answer["asOf"]), style=DIM)


def show_answer(answer: dict[str, Any], output: Output, page: Callable[[JSON], Iterable[PageLine]]) -> None:
    """Print an answer, as text by its page."""
    if output is Output.TEXT:
        print_lines(page(answer))
    else:
        show(answer, output)
