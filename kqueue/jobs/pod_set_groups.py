"""Check `podset-group-name`, which places pod sets of one job together, over all templates of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.errors import FieldError
from kqueue.jobs import syntax, topology_request
from kqueue.jobs.fields import annotations_of
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.topology_request import GROUP, PREFERRED, REQUIRED, effective

GROUP_SIZE = 2
"""The number of pod sets in a group: a leader and its workers."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One template of a job, with its path and its number of pods."""

    path: str
    template: Mapping[str, Any]
    count: int


def topology_problems(
    members: Sequence[GroupMember],
    job: Mapping[str, Any],
    switches: JobFeatures,
    *,
    counted: bool,
    elastic: bool = False,
) -> Iterator[FieldError]:
    """Yield all mistakes in the topology requests of a job: its own aliases, each template, and groups.

    `counted`: whether sizes are compared with the number of pods, which kqueue may have written.  `elastic`: whether
    the job uses workload slices.
    """
    yield from topology_request.job_problems(job, switches)
    for member in members:
        count = member.count if counted else None
        yield from topology_request.problems(
            member.template, job, path=member.path, count=count, switches=switches, elastic=elastic
        )
    yield from problems(members, job, switches)


def problems(members: Sequence[GroupMember], job: Mapping[str, Any], switches: JobFeatures) -> Iterator[FieldError]:
    """Yield groups that are not a pair of leader and workers, or whose two pod sets have different topology requests.

    `topology_request.problems` reports mistakes within one template.
    """
    if not switches.topology:
        return
    groups: dict[str, list[GroupMember]] = {}
    for member in members:
        name = annotations_of(member.template).get(GROUP)
        if name is not None:
            groups.setdefault(name, []).append(member)
    for name, grouped in groups.items():
        yield from _group_problems(name, grouped, job)


def _group_problems(name: str, members: Sequence[GroupMember], job: Mapping[str, Any]) -> Iterator[FieldError]:
    path = syntax.entry_path(f"{members[0].path}.metadata.annotations", GROUP)
    if len(members) != GROUP_SIZE:
        text = f"a group has exactly {GROUP_SIZE} pod sets and this one has {len(members)}; name the group on both"
        yield FieldError(path, text, name)
        return
    if all(member.count != 1 for member in members):
        counts = " and ".join(str(member.count) for member in members)
        yield FieldError(path, f"one pod set of a group must have exactly 1 pod, the leader; these have {counts}", name)
    first, second = (effective(member.template, job) for member in members)
    for level in (REQUIRED, PREFERRED):
        if first.get(level) != second.get(level):
            at = syntax.entry_path(f"{members[1].path}.metadata.annotations", level)
            text = f"must be {first.get(level) or 'absent'} as in the other pod set of group {name}"
            yield FieldError(at, text, second.get(level))
