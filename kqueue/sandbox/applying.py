"""Server-side apply, and the owners of fields.

Ownership is tracked from the first apply on, server-side or by kubectl itself, as the real server does for objects
without `managedFields`: existing fields belong to a manager named `before-first-apply`.  Objects that are never applied
have no `managedFields` and no cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kqueue.errors import ConflictError
from kqueue.sandbox import failure, fieldset
from kqueue.sandbox.api import Object
from kqueue.sandbox.decoding import shape_of
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.fieldset import SELF, FieldSet
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.shape import ANY, FieldShape
from kqueue.sandbox.store import copied

BEFORE = "before-first-apply"
CLIENT_SIDE = "kubectl-client-side-apply"
"""The manager of `kubectl apply` without `--server-side`."""
SERVER_SIDE = "kubectl"
"""The manager of `kubectl apply --server-side`, which may change fields of an earlier client-side apply."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which a client-side kubectl stores the applied object."""


@dataclass(frozen=True, slots=True)
class Apply:
    """One server-side apply: `wanted` has all fields that the manager sets."""

    wanted: Object
    manager: str
    force: bool
    subresource: str
    now_text: Callable[[], str]

    def first_entry(self, kind: ServedKind) -> list[Object]:
        """Return managedFields of an object that this apply creates."""
        return [self._entry(kind, self._scope(kind, fieldset.of_object(shape_of(kind), self.wanted)), None)]

    def onto(self, kind: ServedKind, old: Object) -> Object:
        """Return `old` with the manager's fields set, its former fields removed, and managedFields updated.

        Raises:
            ConflictError: another manager owns a field that would change, and `force` is not set.
        """
        shape = shape_of(kind)
        wanted = self._scoped(kind)
        fields = fieldset.of_object(shape, wanted)
        entries = _entries(kind, old, self.now_text)
        mine = next((e for e in entries if self._is_mine(e)), None)
        others = [e for e in entries if e is not mine]
        clashes = {
            _name(entry): found
            for entry in others
            if (found := list(_clashes(shape, fields, entry["fieldsV1"], old, wanted, "")))
        }
        if clashes and not self.force and not self._is_own(shape, fields, others, old, wanted):
            raise _conflict(clashes)
        taken: FieldSet = {}
        for entry in others:
            clash = _clashing(shape, fields, entry["fieldsV1"], old, wanted)
            taken = fieldset.union(taken, clash)
            if clash:
                entry["fieldsV1"] = fieldset.minus(entry["fieldsV1"], clash)
        owned_elsewhere: FieldSet = {}
        for entry in others:
            owned_elsewhere = fieldset.union(owned_elsewhere, entry["fieldsV1"])
        new: Object = _overlaid(shape, copied(old), wanted)
        if mine is not None:
            new = _pruned(shape, new, fieldset.minus(mine["fieldsV1"], fields), owned_elsewhere, fields)
        kept = [entry for entry in others if entry["fieldsV1"]]
        new["metadata"]["managedFields"] = [*kept, self._entry(kind, fields, mine)]
        if self.manager == SERVER_SIDE and LAST_APPLIED in (new["metadata"].get("annotations") or {}):
            new["metadata"]["annotations"][LAST_APPLIED] = _last_applied_text(self.wanted)
        return new

    def _is_own(self, shape: FieldShape, fields: FieldSet, others: list[Object], old: Object, wanted: Object) -> bool:
        """Whether all conflicting fields are unchanged since a client-side apply of kubectl."""
        if self.manager != SERVER_SIDE or (last := _last_applied(old)) is None:
            return False
        changed, removed = _differences(shape, last, old)
        own = fieldset.minus(fieldset.of_object(shape, last), fieldset.union(changed, removed))
        return not any(
            fieldset.minus(_clashing(shape, fields, entry["fieldsV1"], old, wanted), own) for entry in others
        )

    def _scoped(self, kind: ServedKind) -> Object:
        """Return the part of `wanted` that this endpoint may write."""
        wanted = dict(self.wanted)
        if self.subresource == "status":
            return {key: wanted[key] for key in ("apiVersion", "kind", "metadata", "status") if key in wanted}
        if kind.status:
            wanted.pop("status", None)
        return wanted

    def _scope(self, kind: ServedKind, fields: FieldSet) -> FieldSet:
        return {name: inner for name, inner in fields.items() if not (kind.status and name == "f:status")}

    def _is_mine(self, entry: Object) -> bool:
        mine = (self.manager, "Apply", self.subresource)
        return (entry["manager"], entry["operation"], entry.get("subresource", "")) == mine

    def _entry(self, kind: ServedKind, fields: FieldSet, present: Object | None) -> Object:
        if present is not None and present["fieldsV1"] == fields:
            return present
        return _entry(kind, self.manager, "Apply", self.subresource, fields, self.now_text())


def track_update(
    kind: ServedKind, new: Object, old: Object, manager: str, subresource: str, now_text: Callable[[], str]
) -> None:
    """Make the manager of a plain write owner of the changed fields, in `new`; only if the object is tracked.

    A client may write the entries itself: they replace the old ones, and one empty entry ends the tracking.
    """
    meta, present = new["metadata"], old["metadata"].get("managedFields")
    sent = meta.pop("managedFields", None)
    if present is None and manager != CLIENT_SIDE:
        return
    if sent == [{}]:
        return
    shape = shape_of(kind)
    changed, removed = _differences(shape, old, new)
    is_sent = sent is not None and sent != present and _are_entries(sent)
    if not (changed or removed or is_sent):
        if present is not None:
            meta["managedFields"] = present
        return
    entries = [dict(entry) for entry in sent] if is_sent else _entries(kind, old, now_text)
    if changed or removed:
        for entry in entries:
            entry["fieldsV1"] = fieldset.minus(entry["fieldsV1"], fieldset.union(changed, removed))
        mine = next(
            (
                e
                for e in entries
                if e["manager"] == manager and e["operation"] == "Update" and e.get("subresource", "") == subresource
            ),
            None,
        )
        if changed:
            owned = fieldset.union(mine["fieldsV1"], changed) if mine is not None else changed
            entries = [e for e in entries if e is not mine]
            entries.append(_entry(kind, manager, "Update", subresource, owned, now_text()))
    meta["managedFields"] = [entry for entry in entries if entry["fieldsV1"]]


def _last_applied(obj: Object) -> Object | None:
    """Return the object in kubectl's annotation; None if it is missing or cannot be parsed."""
    text = (obj["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        found = msgspec.json.decode(text or "null")
    except msgspec.DecodeError:
        return None
    return found if type(found) is dict and type(found.get("metadata")) is dict else None


def _last_applied_text(wanted: Object) -> str:
    meta = {k: v for k, v in wanted["metadata"].items() if k not in ("managedFields", "creationTimestamp")}
    notes = {k: v for k, v in (meta.pop("annotations", None) or {}).items() if k != LAST_APPLIED}
    whole = {**wanted, "metadata": {**meta, **({"annotations": notes} if notes else {})}}
    return msgspec.json.encode(whole, order="deterministic").decode() + "\n"


def first_update(kind: ServedKind, new: Object, manager: str, now: str) -> list[Object]:
    """Return managedFields of an object that a plain write creates: empty, unless kubectl applies it."""
    if manager != CLIENT_SIDE:
        return []
    return [_entry(kind, manager, "Update", "", fieldset.of_object(shape_of(kind), new), now)]


def _are_entries(sent: Any) -> bool:
    keys = ("manager", "operation", "apiVersion", "fieldsV1")
    return type(sent) is list and all(type(each) is dict and all(key in each for key in keys) for each in sent)


def same(new: Object, old: Object) -> bool:
    """Whether a write changes nothing, so that it gets no new resourceVersion."""
    return new == old


def _entry(kind: ServedKind, manager: str, operation: str, subresource: str, fields: FieldSet, now: str) -> Object:
    out: Object = {
        "manager": manager,
        "operation": operation,
        "apiVersion": kind.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if subresource:
        out["subresource"] = subresource
    return out


def _entries(kind: ServedKind, old: Object, now_text: Callable[[], str]) -> list[Object]:
    """Return copies of the object's entries, whose sets may be replaced."""
    present = old["metadata"].get("managedFields")
    if present:
        return [dict(entry) for entry in present]
    fields = fieldset.of_object(shape_of(kind), old)
    return [_entry(kind, BEFORE, "Update", "", fields, now_text())]


def _name(entry: Object) -> str:
    sub = f' with subresource "{entry["subresource"]}"' if entry.get("subresource") else ""
    if entry["operation"] == "Apply":
        return f'"{entry["manager"]}"{sub}'
    return f'"{entry["manager"]}"{sub} using {entry["apiVersion"]}'


def _conflict(clashes: dict[str, list[str]]) -> ConflictError:
    count = sum(map(len, clashes.values()))
    causes = tuple(
        Cause("FieldManagerConflict", path, f"conflict with {owner}")
        for owner, paths in clashes.items()
        for path in paths
    )
    noun = "conflict" if count == 1 else "conflicts"
    if len(clashes) == 1:
        owner, paths = next(iter(clashes.items()))
        where = f": {paths[0]}" if len(paths) == 1 else ":\n" + "\n".join(f"- {path}" for path in paths)
        text = f"Apply failed with {count} {noun}: {'conflict' if count == 1 else 'conflicts'} with {owner}{where}"
    else:
        parts = [f"conflicts with {owner}:\n" + "\n".join(f"- {p}" for p in paths) for owner, paths in clashes.items()]
        text = f"Apply failed with {count} {noun}: " + "\n".join(parts)
    return failure.apply_conflict(text, causes)


def _by_name(shape: FieldShape, value: Any) -> dict[str, tuple[Any, FieldShape]]:
    return {name: (item, inner) for name, item, inner in fieldset.members(shape, value)}


def _clashes(shape: FieldShape, fields: FieldSet, owned: FieldSet, live: Any, wanted: Any, path: str) -> list[str]:
    """Return paths of fields in both sets whose values differ."""
    found: list[str] = []
    here, there = _by_name(shape, wanted), _by_name(shape, live)
    for name, inner in fields.items():
        if name == SELF or name not in owned or name not in there:
            continue
        value, below = here[name]
        present = there[name][0]
        where = path + _dotted(name)
        if inner and owned[name] and owned[name] != {SELF: {}}:
            found += _clashes(below, inner, owned[name], present, value, where)
        elif not set(inner) - {SELF} and value != present and name[0] != "v":
            found.append(where)
    return found


def _clashing(shape: FieldShape, fields: FieldSet, owned: FieldSet, live: Any, wanted: Any) -> FieldSet:
    """Return the fields of `_clashes` as a set."""
    found: FieldSet = {}
    here, there = _by_name(shape, wanted), _by_name(shape, live)
    for name, inner in fields.items():
        if name == SELF or name not in owned or name not in there:
            continue
        value, below = here[name]
        present = there[name][0]
        if inner and owned[name] and owned[name] != {SELF: {}}:
            if deeper := _clashing(below, inner, owned[name], present, value):
                found[name] = deeper
        elif not set(inner) - {SELF} and value != present and name[0] != "v":
            found[name] = {}
    return found


def _dotted(name: str) -> str:
    prefix, rest = name[0], name[2:]
    return (
        f".{rest}" if prefix == "f" else f"[{rest[1:-1].replace(chr(34) + ':', chr(34) + '=').replace(chr(34), '', 2)}]"
    )


def _overlaid(shape: FieldShape, old: Any, wanted: Any) -> Any:
    """Return `old` merged with `wanted`: objects merge, keyed lists merge by key, the rest is replaced."""
    if shape.apply.atomic or old is None:
        return copied(wanted)
    if type(wanted) is dict and type(old) is dict:
        for key, value in wanted.items():
            if shape.type == "object" and key in ("apiVersion", "kind"):
                old.setdefault(key, value)
            else:
                old[key] = _overlaid(shape.child(key) or ANY, old.get(key), value)
        return old
    if type(wanted) is list and type(old) is list and shape.apply.keys:
        return _overlaid_items(shape, old, wanted)
    if type(wanted) is list and type(old) is list and shape.apply.is_set:
        return old + [item for item in wanted if item not in old]
    return copied(wanted)


def _overlaid_items(shape: FieldShape, old: list[Any], wanted: list[Any]) -> list[Any]:
    places = {fieldset.item_name(shape.apply.keys, item): i for i, item in enumerate(old) if type(item) is dict}
    for item in wanted:
        place = places.get(fieldset.item_name(shape.apply.keys, item))
        if place is None:
            old.append(copied(item))
        else:
            old[place] = _overlaid(shape.element or ANY, old[place], item)
    return old


def _pruned(shape: FieldShape, value: Any, dropped: FieldSet, others: FieldSet, wanted: FieldSet) -> Any:
    """Return `value` without the fields in `dropped` that no other manager owns."""
    if type(value) is dict:
        for name, inner in dropped.items():
            key = name[2:]
            if name == SELF or key not in value:
                continue
            child = shape.child(key) or ANY
            if name not in others and name not in wanted:
                if inner or not any(True for _ in fieldset.members(child, value[key])):
                    del value[key]  # else the owner set it empty, and its present members belong to others
            elif inner:
                value[key] = _pruned(child, value[key], inner, others.get(name, {}), wanted.get(name, {}))
                if value[key] in ({}, []) and name not in wanted:
                    del value[key]
        return value
    if type(value) is list:
        out = []
        for name, item, inner_shape in list(fieldset.members(shape, value)):
            if name in dropped and name not in others and name not in wanted:
                continue
            inner = dropped.get(name)
            out.append(_pruned(inner_shape, item, inner, others.get(name, {}), wanted.get(name, {})) if inner else item)
        return out
    return value


def _differences(shape: FieldShape, old: Object, new: Object) -> tuple[FieldSet, FieldSet]:
    """Return fields that were added or changed, and fields that were removed."""
    before, after = _ownable(old), _ownable(new)
    return _changed(shape, before, after), _gone(shape, before, after)


def _ownable(obj: Object) -> Object:
    out = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    out["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in fieldset.SERVER_METADATA}
    return out


def _changed(shape: FieldShape, old: Any, new: Any) -> FieldSet:
    before = _by_name(shape, old)
    found: FieldSet = {}
    for name, (value, inner) in _by_name(shape, new).items():
        if name not in before:
            found[name] = ({SELF: {}} if name[0] == "k" else {}) | fieldset.of_value(inner, value)
        elif value != before[name][0]:
            deeper = _changed(inner, before[name][0], value)
            whole = not any(True for _ in fieldset.members(inner, value))
            if deeper or whole:
                found[name] = deeper
    return found


def _gone(shape: FieldShape, old: Any, new: Any) -> FieldSet:
    after = _by_name(shape, new)
    found: FieldSet = {}
    for name, (value, inner) in _by_name(shape, old).items():
        if name not in after:
            found[name] = {}
        elif value != after[name][0] and (deeper := _gone(inner, value, after[name][0])):
            found[name] = deeper
    return found
