"""Check the rules of ClusterQueues, Cohorts and ResourceFlavors that their schemas cannot express.

An object that is being deleted is not checked, so that its finalizers can always be removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from kqueue.api import backfill_names, names, quota_names, run_names
from kqueue.config.duration import whole_seconds
from kqueue.core.backfill.mode import parse_backfill
from kqueue.core.budgets import parse_budgets
from kqueue.core.lost_work import parse_pod_seconds
from kqueue.core.quantity import parse_quantity
from kqueue.core.quota_shares import parse_shares
from kqueue.errors import FieldError
from kqueue.jobs import syntax
from kqueue.jobs.fields import annotations_of, mapping, objects, sequence, text
from kqueue.jobs.meaning import same
from kqueue.jobs.switches import JobFeatures
from webhooks import node_classes

MOST_FLAVORS = 256
MOST_RESOURCES = 256
MOST_ENTRIES = 512
MOST_CONCURRENT_FLAVORS = 16
_MOST_NAMED = 5
"""Names that a message quotes."""

Object = Mapping[str, Any]


def finalizer(obj: Object) -> dict[str, Any]:
    """Return the merge patch that adds the finalizer which keeps an object while it is in use."""
    present = [str(f) for f in sequence(obj, "metadata", "finalizers")]
    if names.RESOURCE_IN_USE_FINALIZER in present:
        return {}
    return {"metadata": {"finalizers": [*present, names.RESOURCE_IN_USE_FINALIZER]}}


def being_deleted(obj: Object) -> bool:
    """Whether the object has a deletion time."""
    return bool(mapping(obj, "metadata").get("deletionTimestamp"))


def cluster_queue_problems(obj: Object, old: Object | None, switches: JobFeatures) -> list[FieldError]:
    """Return every mistake in a ClusterQueue; `old` is None on create."""
    if being_deleted(obj):
        return []
    spec = mapping(obj, "spec")
    found = list(_group_problems(spec, parent="cohortName"))
    found += _size_problems(spec)
    found += _selector_problems(mapping(spec, "namespaceSelector"), "spec.namespaceSelector")
    found += _weight_problems(spec)
    found += _check_problems(spec, mapping(old, "spec") if old is not None else None, switches)
    found += _concurrency_problems(spec, switches)
    found += _annotation_problems(obj, old)
    found += _unlisted_problems(obj, old)
    policy = "concurrentAdmissionPolicy"
    if old is not None and not same(mapping(old, "spec").get(policy), spec.get(policy)):
        found.append(FieldError(f"spec.{policy}", "cannot change; create another ClusterQueue instead"))
    return found


_ANNOTATIONS: Mapping[str, Callable[[str], object]] = {
    names.MINIMUM_RUNTIME_ANNOTATION: whole_seconds,
    run_names.LONGEST_RUNTIME_ANNOTATION: whole_seconds,
    run_names.MOST_LOST_ANNOTATION: parse_pod_seconds,
    quota_names.QUOTA_SHARES_ANNOTATION: parse_shares,
    quota_names.BUDGETS_ANNOTATION: parse_budgets,
    backfill_names.BACKFILL_ANNOTATION: parse_backfill,
}
"""Annotations of ClusterQueues, each with its parser, which raises ValueError."""


_OF_COHORTS = {backfill_names.BACKFILL_ANNOTATION: parse_backfill}
"""Annotations of Cohorts."""


def _annotation_problems(
    obj: Object, old: Object | None, parsers: Mapping[str, Callable[[str], object]] = _ANNOTATIONS
) -> Iterator[FieldError]:
    """Yield new mistakes in annotations; old ones are in condition Active, and prevent no other change."""
    notes, before = annotations_of(obj), annotations_of(old) if old is not None else {}
    for key, parse in parsers.items():
        if key in notes and notes[key] != before.get(key):
            try:
                parse(notes[key])
            except ValueError as e:
                yield FieldError(f"metadata.annotations[{key}]", str(e))


def _unlisted_problems(obj: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield new names in annotations that are not in resource groups: such a share stops the ClusterQueue, and such a
    budget limits nothing.
    """
    before = _unlisted(old) if old is not None else {}
    for key, found in _unlisted(obj).items():
        if found - before.get(key, frozenset()):
            wrong = ", ".join(sorted(found)[:_MOST_NAMED])
            yield FieldError(
                f"metadata.annotations[{key}]",
                f"{wrong} is not in spec.resourceGroups; add it there, or remove its entry",
            )


def _unlisted(obj: Object) -> dict[str, frozenset[str]]:
    """Return by annotation the flavors with resources, or the resources, that no resource group has."""
    notes = annotations_of(obj)
    groups = list(objects(mapping(obj, "spec"), "resourceGroups"))
    resources = {str(resource) for group in groups for resource in sequence(group, "coveredResources")}
    columns = {
        f"{text(flavor, 'name')}/{text(quota, 'name')}"
        for group in groups
        for flavor in objects(group, "flavors")
        for quota in objects(flavor, "resources")
    }
    try:
        shares = {
            f"{one.flavor}/{one.resource}" for one in parse_shares(notes.get(quota_names.QUOTA_SHARES_ANNOTATION, ""))
        }
    except ValueError:
        shares = set()
    try:
        budgets = {one.resource for one in parse_budgets(notes.get(quota_names.BUDGETS_ANNOTATION, ""))}
    except ValueError:
        budgets = set()
    return {
        quota_names.QUOTA_SHARES_ANNOTATION: frozenset(shares - columns),
        quota_names.BUDGETS_ANNOTATION: frozenset(budgets - resources),
    }


def cohort_problems(obj: Object) -> list[FieldError]:
    """Return every mistake in a Cohort."""
    if being_deleted(obj):
        return []
    spec = mapping(obj, "spec")
    wrong = _annotation_problems(obj, None, _OF_COHORTS)
    return [*_group_problems(spec, parent="parentName"), *_weight_problems(spec), *wrong]


def cohort_warnings(obj: Object) -> list[str]:
    """Warn about a Cohort that is its own parent.  Cycles are accepted, but stop their whole tree."""
    parent = text(obj, "spec", "parentName")
    if parent and parent == text(obj, "metadata", "name"):
        return [f"spec.parentName is the Cohort itself: nothing in Cohort {parent} is admitted until that is changed"]
    return []


def flavor_problems(obj: Object) -> list[FieldError]:
    """Return every mistake in a ResourceFlavor."""
    if being_deleted(obj):
        return []
    found = list(syntax.check_labels(mapping(obj, "spec", "nodeLabels"), "spec.nodeLabels"))
    seen: dict[tuple[str, str], str] = {}
    for i, taint in enumerate(objects(obj, "spec", "nodeTaints")):
        path = f"spec.nodeTaints[{i}]"
        key, effect = text(taint, "key"), text(taint, "effect")
        found += syntax.check(syntax.label_key, key, f"{path}.key")
        found += syntax.check(syntax.label_value, text(taint, "value"), f"{path}.value")
        if (key, effect) in seen:
            found.append(FieldError(path, f"has key and effect of {seen[key, effect]}; keep one of them", key))
        seen.setdefault((key, effect), path)
    found += toleration_problems(obj.get("spec"), "spec")
    found += node_classes.flavor_problems(obj)
    return found


def toleration_problems(owner: object, path: str) -> Iterator[FieldError]:
    """Yield keys of tolerations that no taint can have."""
    for i, toleration in enumerate(objects(owner, "tolerations")):
        if text(toleration, "key"):
            yield from syntax.check(syntax.label_key, text(toleration, "key"), f"{path}.tolerations[{i}].key")


def _group_problems(spec: Object, *, parent: str) -> Iterator[FieldError]:
    """Yield mistakes in resource groups; `parent` is the field with the cohort for borrowing and lending."""
    places: dict[tuple[str, str], str] = {}

    def once(what: str, name: str, path: str) -> Iterator[FieldError]:
        if (what, name) in places:
            yield FieldError(path, f"{what} is listed at {places[what, name]} already; keep one of them", name)
        places.setdefault((what, name), path)

    for g, group in enumerate(objects(spec, "resourceGroups")):
        path = f"spec.resourceGroups[{g}]"
        covered = [str(resource) for resource in sequence(group, "coveredResources")]
        for r, resource in enumerate(covered):
            yield from syntax.check(syntax.label_key, resource, f"{path}.coveredResources[{r}]")
            yield from once("resource", resource, f"{path}.coveredResources[{r}]")
        for f, flavor in enumerate(objects(group, "flavors")):
            yield from once("flavor", text(flavor, "name"), f"{path}.flavors[{f}].name")
            for r, quota in enumerate(objects(flavor, "resources")):
                at = f"{path}.flavors[{f}].resources[{r}]"
                if r < len(covered) and text(quota, "name") != covered[r]:
                    problem = f"must be {covered[r]}: flavors list resources in the order of coveredResources"
                    yield FieldError(f"{at}.name", problem, text(quota, "name"))
                yield from _quota_problems(quota, at, parent=parent, has_parent=bool(text(spec, parent)))


def _quota_problems(quota: Object, path: str, *, parent: str, has_parent: bool) -> Iterator[FieldError]:
    amounts: dict[str, int] = {}
    for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        written = quota.get(field)
        if written is None:
            continue
        try:
            amounts[field] = parse_quantity(written, text(quota, "name"))
        except ValueError as e:
            yield FieldError(f"{path}.{field}", str(e))
            continue
        if amounts[field] < 0:
            yield FieldError(f"{path}.{field}", "must not be negative; write 0 or more", written)
        if field != "nominalQuota" and not has_parent:
            problem = f"needs spec.{parent}: without it there is no queue to lend to or borrow from"
            yield FieldError(f"{path}.{field}", problem, written)
    lending, nominal = amounts.get("lendingLimit"), amounts.get("nominalQuota")
    if parent == "cohortName" and lending is not None and nominal is not None and lending > nominal:
        problem = "must not be above nominalQuota: only what is there can be lent"
        yield FieldError(f"{path}.lendingLimit", problem, quota["lendingLimit"])


def _size_problems(spec: Object) -> Iterator[FieldError]:
    groups = objects(spec, "resourceGroups")
    flavors = sum(len(objects(group, "flavors")) for group in groups)
    resources = sum(len(sequence(group, "coveredResources")) for group in groups)
    for what, number, most in (("flavors", flavors, MOST_FLAVORS), ("resources", resources, MOST_RESOURCES)):
        if number > most:
            yield FieldError("spec.resourceGroups", f"has {number} {what} in all; at most {most} are allowed")
    for g, group in enumerate(groups):
        entries = sum(len(objects(flavor, "resources")) for flavor in objects(group, "flavors"))
        if entries > MOST_ENTRIES:
            problem = f"has {entries} quotas; at most {MOST_ENTRIES} are allowed in one group"
            yield FieldError(f"spec.resourceGroups[{g}]", problem)


def _selector_problems(selector: Object, path: str) -> Iterator[FieldError]:
    yield from syntax.check_labels(mapping(selector, "matchLabels"), f"{path}.matchLabels")
    for i, rule in enumerate(objects(selector, "matchExpressions")):
        at = f"{path}.matchExpressions[{i}]"
        yield from syntax.check(syntax.label_key, text(rule, "key"), f"{at}.key")
        operator, values = text(rule, "operator"), sequence(rule, "values")
        for v, value in enumerate(values):
            yield from syntax.check(syntax.label_value, str(value), f"{at}.values[{v}]")
        if operator in ("In", "NotIn"):
            if not values:
                yield FieldError(f"{at}.values", f"must have at least one value with operator {operator}")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                yield FieldError(f"{at}.values", f"must be left out with operator {operator}")
        else:
            yield FieldError(f"{at}.operator", "must be In, NotIn, Exists or DoesNotExist", operator)


def _weight_problems(spec: Object) -> Iterator[FieldError]:
    """Refuse a weight of 1n or less, which the share computation cannot divide by; 0 is allowed."""
    weight, path = mapping(spec, "fairSharing").get("weight"), "spec.fairSharing.weight"
    if weight is None:
        return
    try:
        thousandths = parse_quantity(weight, "cpu")
    except ValueError as e:
        yield FieldError(path, str(e))
        return
    if thousandths < 0:
        yield FieldError(path, "must not be negative; write 0 or more", weight)
    elif thousandths == 1 and not _above_a_nano(str(weight)):
        yield FieldError(path, "is too small; write 0, 2n or more", weight)


def _above_a_nano(written: str) -> bool:
    """Whether a well-formed quantity above 0 and up to 1m is above 1n; integers of thousandths cannot show this."""
    number = written.rstrip("num")
    least = {"n": "1", "u": "1e-3", "m": "1e-6"}.get(written[len(number) :], "1e-9")
    try:
        return Decimal(number) > Decimal(least)
    except InvalidOperation:
        return False  # the exponent is out of range, and the number is not large


def _flavor_names(spec: Object) -> set[str]:
    return {text(f, "name") for group in objects(spec, "resourceGroups") for f in objects(group, "flavors")}


def _check_problems(spec: Object, old: Object | None, switches: JobFeatures) -> Iterator[FieldError]:
    """Yield checks that name a flavor outside of the ClusterQueue.

    An unchanged mistake of the old object passes, so that an old queue can still be edited, unless the feature gate
    forbids it.
    """
    flavors = _flavor_names(spec)
    known: dict[str, set[str]] = {}
    if old is not None and not switches.strict_on_flavors and _flavor_names(old) == flavors:
        known = {text(check, "name"): _on_flavors(check) for check in _checks(old)}
    for i, check in enumerate(_checks(spec)):
        if known.get(text(check, "name")) == _on_flavors(check):
            continue
        for f, flavor in enumerate(sequence(check, "onFlavors")):
            if str(flavor) not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{f}]"
                yield FieldError(path, "is not a flavor of this ClusterQueue; name one of its resourceGroups", flavor)


def _checks(spec: Object) -> list[Object]:
    return list(objects(spec, "admissionChecksStrategy", "admissionChecks"))


def _on_flavors(check: Object) -> set[str]:
    return {str(flavor) for flavor in sequence(check, "onFlavors")}


def _concurrency_problems(spec: Object, switches: JobFeatures) -> Iterator[FieldError]:
    policy = mapping(spec, "concurrentAdmissionPolicy")
    if not switches.concurrent_admission or not policy:
        return
    path = "spec.concurrentAdmissionPolicy"
    groups = objects(spec, "resourceGroups")
    if len(groups) != 1:
        yield FieldError(path, f"needs exactly one resource group; there are {len(groups)}")
    flavors = list(itertools.chain.from_iterable(objects(group, "flavors") for group in groups))
    if len(flavors) > MOST_CONCURRENT_FLAVORS:
        yield FieldError(path, f"allows at most {MOST_CONCURRENT_FLAVORS} flavors; there are {len(flavors)}")
    if text(spec, "queueingStrategy") == names.STRATEGY_STRICT_FIFO:
        yield FieldError(path, "cannot be used with queueingStrategy StrictFIFO; use BestEffortFIFO")
    constraints = mapping(policy, "migration", "constraints")
    if constraints and text(policy, "migration", "mode") != "TryPreferredFlavors":
        yield FieldError(f"{path}.migration.constraints", "needs mode TryPreferredFlavors; remove them or change it")
    last = text(constraints, "lastAcceptableFlavorName")
    if last and last not in _flavor_names(spec):
        problem = "is not a flavor of this ClusterQueue; name one of its resourceGroups"
        yield FieldError(f"{path}.migration.constraints.lastAcceptableFlavorName", problem, last)
