"""Reads BatchProcess objects: process types, quorum, base counts, and mistakes.  Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.api.batch_limits import MOST_PODS, MOST_PROCESSES
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, mapping, objects, sequence, text, whole
from kqueue.jobs.kind import GroupVersionKind

FRAMEWORK = "kqueue.dev/batchprocess"
KIND = GroupVersionKind(names.KQUEUE_GROUP, names.KQUEUE_VERSION, "BatchProcess")
PLURAL = "batchprocesses"
WORKSPACE_KIND = GroupVersionKind(names.WORKSPACE_GROUP, names.WORKSPACE_VERSION, "BatchProcess")
"""The same object under the name of Brain++ workspaces; it is copied to one of `KIND`."""
MAIN_CONTAINER = "main"
LONGEST_ADDRESS = 57
"""Characters of NAME-PROCESS-INDEX: a DNS label less the digits that make the names of pods unique."""
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PROCESS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_PROCESS_NAME = 30
_SMALL_MEMORY = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRole:
    """One process type.

    Args:
        name: the name, unique in the object.
        index: the place in the list.
        replicas: the pods that the type has in the end.
        minimum: the pods of the type that must start with the gang.
        base: the pods of the type in the base, the gang's Workload.
        first_rank: the rank of its first pod.
        source: the entry of `spec.simpleProcesses`.
    """

    name: str
    index: int
    replicas: int
    minimum: int
    base: int
    first_rank: int
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The roles of a BatchProcess, and the number of pods that start together."""

    quorum: int
    replicas: int
    roles: tuple[BatchRole, ...]

    def role(self, name: str) -> BatchRole | None:
        """Return the role of this name; None: there is none."""
        return next((role for role in self.roles if role.name == name), None)


def process_names(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of the process types; an entry without a name is called process-N."""
    entries = objects(spec, "simpleProcesses")
    return [text(entry, "name") or f"process-{index}" for index, entry in enumerate(entries)]


def plan_of(obj: JSON) -> BatchPlan:
    """Return the plan of a valid BatchProcess.

    The base is filled with the minimum of each type; further pods are added one for each type in turn, in the order of
    the list, until the quorum is reached.
    """
    spec = mapping(obj, "spec")
    entries = objects(spec, "simpleProcesses")
    replicas = [_replicas(entry) for entry in entries]
    minima = _minima(spec, entries, replicas)
    quorum = max(_min_available(spec, sum(replicas)), sum(minima))
    base = _filled(minima, replicas, quorum)
    first_ranks = [sum(replicas[:index]) for index in range(len(replicas))]
    roles = tuple(
        BatchRole(
            name=name,
            index=index,
            replicas=replicas[index],
            minimum=minima[index],
            base=base[index],
            first_rank=first_ranks[index],
            source=entry,
        )
        for index, (name, entry) in enumerate(zip(process_names(spec), entries, strict=True))
    )
    return BatchPlan(quorum=quorum, replicas=sum(replicas), roles=roles)


def _replicas(entry: Mapping[str, Any]) -> int:
    found = whole(entry, "replicas")
    return 1 if found is None else found


def _min_available(spec: Mapping[str, Any], replicas: int) -> int:
    found = whole(spec, "podGroup", "minAvailable")
    return replicas if found is None else found


def _minima(spec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], replicas: Sequence[int]) -> list[int]:
    has_quorum = whole(spec, "podGroup", "minAvailable") is not None
    given = [whole(entry, "minAvailable") for entry in entries]
    defaults = [0] * len(entries) if has_quorum else replicas
    return [default if found is None else found for found, default in zip(given, defaults, strict=True)]


def _filled(minima: Sequence[int], replicas: Sequence[int], quorum: int) -> list[int]:
    """Return base counts: the minima, raised by one type after the other; takes no time by the size of the quorum."""
    base = list(minima)
    missing = quorum - sum(base)
    while missing > 0:
        open_types = [index for index, count in enumerate(base) if count < replicas[index]]
        if not open_types:
            break
        rounds = max(1, min(missing // len(open_types), min(replicas[i] - base[i] for i in open_types)))
        for index in open_types if missing >= len(open_types) else open_types[:missing]:
            base[index] += rounds
        missing = quorum - sum(base)
    return base


# --- mistakes --------------------------------------------------------------------------------------------------------


def problems(obj: JSON) -> list[FieldError]:
    """Return all mistakes of a BatchProcess, each with its path and remedy."""
    spec = mapping(obj, "spec")
    entries = objects(spec, "simpleProcesses")
    if not 1 <= len(entries) <= MOST_PROCESSES:
        return [
            FieldError("spec.simpleProcesses", f"needs 1 to {MOST_PROCESSES} entries", len(entries)),
            *_name_problems(obj, ()),
        ]
    names = process_names(spec)
    found = [*_process_name_problems(names, entries)]
    if counts := [*_count_problems(spec, names, entries)]:
        found += counts
    else:
        found += _name_problems(obj, plan_of(obj).roles)
    found += _image_problems(spec, entries)
    found += _policy_problems(spec, names)
    found += _priority_problems(names, entries)
    return found


def _process_name_problems(names: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    counts = Counter(names)
    for index, name in enumerate(names):
        path = f"spec.simpleProcesses[{index}].name"
        if counts[name] > 1 and name in names[:index]:
            yield FieldError(path, "is used twice", name)
        if "name" in entries[index] and (len(name) > _LONGEST_PROCESS_NAME or not _PROCESS_NAME.fullmatch(name)):
            problem = f"must be a DNS label of at most {_LONGEST_PROCESS_NAME} characters: a-z, 0-9 and '-'"
            yield FieldError(path, problem, name)


def _count_problems(
    spec: Mapping[str, Any], names: Sequence[str], entries: Sequence[Mapping[str, Any]]
) -> Iterator[FieldError]:
    replicas = [_replicas(entry) for entry in entries]
    total = sum(replicas)
    for index, entry in enumerate(entries):
        minimum = whole(entry, "minAvailable")
        if not 0 <= replicas[index] <= MOST_PODS:
            yield FieldError(f"spec.simpleProcesses[{index}].replicas", f"must be 0 to {MOST_PODS}", replicas[index])
        elif minimum is not None and not 0 <= minimum <= replicas[index]:
            problem = f"must be 0 to {replicas[index]}, the process's replicas"
            yield FieldError(f"spec.simpleProcesses[{index}].minAvailable", problem, minimum)
    group = mapping(spec, "podGroup")
    given = whole(group, "replicas")
    if total == 0:
        yield FieldError("spec.simpleProcesses", "have no replicas; give one of them at least 1", total)
    elif total > MOST_PODS:
        yield FieldError("spec.simpleProcesses", f"must have at most {MOST_PODS} replicas together", total)
    elif given is not None and given != total:
        problem = f"the processes have {total} replicas together; make them equal, or leave it out"
        yield FieldError("spec.podGroup.replicas", problem, given)
    quorum = whole(group, "minAvailable")
    if quorum is not None and not 1 <= quorum <= max(total, 1):
        problem = f"must be 1 to {max(total, 1)}, the number of replicas"
        yield FieldError("spec.podGroup.minAvailable", problem, quorum)
    timeout = whole(group, "timeoutSeconds")
    if timeout is not None and timeout < 1:
        problem = "must be 1 or more; leave it out to wait without end"
        yield FieldError("spec.podGroup.timeoutSeconds", problem, timeout)


def _name_problems(obj: JSON, roles: Sequence[BatchRole]) -> Iterator[FieldError]:
    name = text(obj, "metadata", "name")
    shown = name if len(name) <= 20 else f"{name[:18]}..."
    if not _DNS_LABEL.fullmatch(name):
        yield FieldError("metadata.name", "must be a DNS label that begins with a letter", shown)
        return
    longest = max(
        ((len(f"{name}-{role.name}-{role.replicas - 1}"), role) for role in roles if role.replicas),
        key=lambda found: found[0],
        default=None,
    )
    if longest is not None and longest[0] > LONGEST_ADDRESS:
        length, role = longest
        problem = (
            f"makes pod names of {length} characters with process '{role.name}' and index {role.replicas - 1}, "
            f"{LONGEST_ADDRESS} are possible"
        )
        yield FieldError("metadata.name", problem, shown)


def _image_problems(spec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    for index, entry in enumerate(entries):
        containers = objects(entry, "template", "spec", "containers")
        inside = text(containers[0], "image") if containers else ""
        if not (text(entry, "image") or text(spec, "image") or inside):
            yield FieldError(
                f"spec.simpleProcesses[{index}].image", "must be set here, in spec.image or in the template"
            )


def _policy_problems(spec: Mapping[str, Any], names: Sequence[str]) -> Iterator[FieldError]:
    for index, name in enumerate(sequence(spec, "successPolicy", "processes")):
        if name not in names:
            path = f"spec.successPolicy.processes[{index}]"
            yield FieldError(path, f"no process has this name; there are {', '.join(names)}", name)


def _priority_problems(names: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    classes = [text(entry, "template", "spec", "priorityClassName") for entry in entries]
    for index, found in enumerate(classes[1:], start=1):
        if found != classes[0]:
            wanted = f"'{classes[0]}'" if classes[0] else "absent"
            problem = f"must be {wanted} as in process {names[0]}; all processes need the same"
            yield FieldError(f"spec.simpleProcesses[{index}].template.spec.priorityClassName", problem, found or None)


def warnings(obj: JSON) -> list[str]:
    """Return sentences about valid input that is probably a mistake."""
    spec = mapping(obj, "spec")
    found = []
    quorum = whole(spec, "podGroup", "minAvailable")
    minima = sum(whole(entry, "minAvailable") or 0 for entry in objects(spec, "simpleProcesses"))
    if quorum is not None and minima > quorum:
        found.append(
            f"spec.podGroup.minAvailable is {quorum} and the processes need {minima} together; {minima} counts"
        )
    for index, entry in enumerate(objects(spec, "simpleProcesses")):
        for kind in ("limits", "requests"):
            memory = mapping(entry, "resources", kind).get("memory")
            number = str(memory)
            if memory is not None and number.isdigit() and 0 < int(number) < _SMALL_MEMORY:
                path = f"spec.simpleProcesses[{index}].resources.{kind}[memory]"
                found.append(f"{path} is {number} bytes; write {number}Mi if MiB are meant")
    return found


# --- changes ---------------------------------------------------------------------------------------------------------

_ALWAYS = ("suspend", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
_WITHOUT_QUOTA = (("replicas",), ("minAvailable",), ("timeoutSeconds",))
_UNCHANGEABLE = "cannot change after creation; make another"


def change_problems(new: JSON, old: JSON, *, has_quota: bool) -> list[FieldError]:
    """Return changes that are not possible any more.

    `suspend`, `ttlSecondsAfterFinished` and `activeDeadlineSeconds` may always change; numbers of pods and the timeout
    while no quota is reserved; nothing else after the creation.
    """
    before, after = _fixed(old, has_quota=has_quota), _fixed(new, has_quota=has_quota)
    paths = [f"spec.{field}" for field in sorted(before.keys() | after.keys()) if before.get(field) != after.get(field)]
    return [FieldError(path, _UNCHANGEABLE) for path in paths]


def _fixed(obj: JSON, *, has_quota: bool) -> dict[str, Any]:
    spec = {field: value for field, value in mapping(obj, "spec").items() if field not in _ALWAYS}
    if has_quota:
        return spec
    group = {k: v for k, v in mapping(spec, "podGroup").items() if (k,) not in _WITHOUT_QUOTA}
    processes = [
        {k: v for k, v in entry.items() if k not in ("replicas", "minAvailable")}
        for entry in objects(spec, "simpleProcesses")
    ]
    return {**spec, "podGroup": group, "simpleProcesses": processes}
