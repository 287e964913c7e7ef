"""Operations and rules for all pod templates of a job with several of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.errors import FieldError
from kqueue.jobs import syntax
from kqueue.jobs.fields import JSON
from kqueue.jobs.kind import PodSetInfo, Refused
from kqueue.jobs.template import merged, restored

Placed = tuple[str, Mapping[str, Any]]
"""A path and the pod template at this path."""


def started(
    what: str, templates: Sequence[Placed], infos: Sequence[PodSetInfo], *, elastic: bool = False
) -> list[JSON] | Refused:
    """Return the templates with each info merged into its own, all or none; `what` names the kind in a refusal.

    `elastic`: a new slice takes over templates that were started.
    """
    if len(infos) != len(templates):
        return Refused((f"the {what} has {len(templates)} pod sets and the admission has {len(infos)}",))
    found: list[JSON] = []
    conflicts: list[str] = []
    for (path, template), info in zip(templates, infos, strict=True):
        together = merged(template, info, elastic=elastic)
        if isinstance(together, tuple):
            conflicts += [f"{path}: {conflict}; remove it there" for conflict in together]
        else:
            found.append(together)
    return Refused(tuple(conflicts)) if conflicts else found


def stopped(templates: Sequence[Placed], infos: Sequence[PodSetInfo]) -> list[JSON]:
    """Return the templates as their users wrote them; unchanged if the number of `infos` differs."""
    if len(infos) != len(templates):
        return [dict(template) for _, template in templates]
    return [restored(template, info) for (_, template), info in zip(templates, infos, strict=True)]


def name_problems(names: Iterable[tuple[str, str]]) -> Iterator[FieldError]:
    """Return mistakes in names of pod sets, each with its path: invalid names, and names used twice."""
    seen: set[str] = set()
    for path, name in names:
        yield from syntax.check(syntax.dns_label, name, path)
        if name in seen:
            yield FieldError(path, "is the name of another pod set too, upper and lower case being the same", name)
        seen.add(name)
