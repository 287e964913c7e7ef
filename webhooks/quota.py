"""What the schema cannot say about ClusterQueues, Cohorts and ResourceFlavors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.core.quantity import parse_quantity
from kqueue.errors import FieldError
from kqueue.jobs import syntax
from kqueue.jobs.fields import mapping, objects, sequence, text

MOST_FLAVORS = 256
MOST_RESOURCES = 256
MOST_ENTRIES = 512

Object = Mapping[str, Any]


def finalizer(obj: Object) -> dict[str, Any]:
    """The merge patch that adds the finalizer which keeps an object while it is in use."""
    present = [str(f) for f in sequence(obj, "metadata", "finalizers")]
    if names.RESOURCE_IN_USE_FINALIZER in present:
        return {}
    return {"metadata": {"finalizers": [*present, names.RESOURCE_IN_USE_FINALIZER]}}


def cluster_queue_problems(obj: Object, old: Object | None) -> list[FieldError]:
    """Every mistake in a ClusterQueue."""
    spec = mapping(obj, "spec")
    cohort = bool(text(spec, "cohortName"))
    found = [*_group_problems(spec, cohort=cohort, lending_below_nominal=True), *_selector_problems(spec)]
    found += _weight_problems(spec)
    found += _check_problems(spec)
    policy = "concurrentAdmissionPolicy"
    if old is not None and mapping(old, "spec").get(policy) != spec.get(policy):
        found.append(FieldError("spec.concurrentAdmissionPolicy", "cannot be changed; create another ClusterQueue"))
    return found


def cohort_problems(obj: Object, old: Object | None) -> list[FieldError]:
    """Every mistake in a Cohort."""
    del old
    spec = mapping(obj, "spec")
    found = list(_group_problems(spec, cohort=bool(text(spec, "parentName")), lending_below_nominal=False))
    if text(spec, "parentName") and text(spec, "parentName") == text(obj, "metadata", "name"):
        found.append(FieldError("spec.parentName", "is the cohort itself; name another one", text(spec, "parentName")))
    return found + list(_weight_problems(spec))


def flavor_problems(obj: Object, old: Object | None) -> list[FieldError]:
    """Every mistake in a ResourceFlavor."""
    del old
    labels = mapping(obj, "spec", "nodeLabels")
    found = list(syntax.check_labels(labels, "spec.nodeLabels"))
    for i, taint in enumerate(objects(obj, "spec", "nodeTaints")):
        path = f"spec.nodeTaints[{i}]"
        found += syntax.check(syntax.label_key, text(taint, "key"), f"{path}.key")
        if text(taint, "value"):
            found += syntax.check(syntax.label_value, text(taint, "value"), f"{path}.value")
    return found


def _group_problems(spec: Object, *, cohort: bool, lending_below_nominal: bool) -> Iterator[FieldError]:
    resources: Counter[str] = Counter()
    flavors: Counter[str] = Counter()
    for g, group in enumerate(objects(spec, "resourceGroups")):
        path = f"spec.resourceGroups[{g}]"
        covered = [str(r) for r in sequence(group, "coveredResources")]
        resources.update(covered)
        for r, resource in enumerate(covered):
            yield from syntax.check(syntax.label_key, resource, f"{path}.coveredResources[{r}]")
        entries = 0
        for f, flavor in enumerate(objects(group, "flavors")):
            flavors[text(flavor, "name")] += 1
            for r, quota in enumerate(objects(flavor, "resources")):
                entries += 1
                at = f"{path}.flavors[{f}].resources[{r}]"
                if r < len(covered) and text(quota, "name") != covered[r]:
                    problem = f"must be {covered[r]}: flavors list resources in the order of coveredResources"
                    yield FieldError(f"{at}.name", problem, text(quota, "name"))
                yield from _quota_problems(quota, at, cohort=cohort, lending_below_nominal=lending_below_nominal)
        if entries > MOST_ENTRIES:
            yield FieldError(path, f"has {entries} quotas; at most {MOST_ENTRIES} are allowed in one group")
    for what, counted, most in (("resource", resources, MOST_RESOURCES), ("flavor", flavors, MOST_FLAVORS)):
        for name, times in sorted(counted.items()):
            if times > 1:
                problem = f"{what} {name} stands in {times} places; keep one of them"
                yield FieldError("spec.resourceGroups", problem, name)
        if sum(counted.values()) > most:
            yield FieldError("spec.resourceGroups", f"more than {most} {what}s in all; use fewer")


def _quota_problems(quota: Object, path: str, *, cohort: bool, lending_below_nominal: bool) -> Iterator[FieldError]:
    amounts: dict[str, int] = {}
    for field in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        written = quota.get(field)
        if written is None:
            continue
        try:
            amounts[field] = parse_quantity(written, text(quota, "name"))
        except ValueError as e:
            yield FieldError(f"{path}.{field}", str(e), written)
            continue
        if amounts[field] < 0:
            yield FieldError(f"{path}.{field}", "must not be negative; write 0 or more", written)
        if field != "nominalQuota" and not cohort:
            yield FieldError(f"{path}.{field}", "needs a cohort: there is nobody to lend to or borrow from", written)
    lending, nominal = amounts.get("lendingLimit"), amounts.get("nominalQuota")
    if lending_below_nominal and lending is not None and nominal is not None and lending > nominal:
        problem = "must not be above nominalQuota: only what is there can be lent"
        yield FieldError(f"{path}.lendingLimit", problem, quota["lendingLimit"])


def _selector_problems(spec: Object) -> Iterator[FieldError]:
    path = "spec.namespaceSelector"
    yield from syntax.check_labels(mapping(spec, "namespaceSelector", "matchLabels"), f"{path}.matchLabels")
    for i, rule in enumerate(objects(spec, "namespaceSelector", "matchExpressions")):
        at = f"{path}.matchExpressions[{i}]"
        yield from syntax.check(syntax.label_key, text(rule, "key"), f"{at}.key")
        operator, values = text(rule, "operator"), sequence(rule, "values")
        if operator in ("In", "NotIn"):
            if not values:
                yield FieldError(f"{at}.values", f"must have at least one value with operator {operator}")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                yield FieldError(f"{at}.values", f"must be empty with operator {operator}")
        else:
            yield FieldError(f"{at}.operator", "must be In, NotIn, Exists or DoesNotExist", operator)


def _weight_problems(spec: Object) -> Iterator[FieldError]:
    weight = mapping(spec, "fairSharing").get("weight")
    if weight is None:
        return
    try:
        thousandths = parse_quantity(weight, "cpu")
        whole = parse_quantity(weight, "")
    except ValueError as e:
        yield FieldError("spec.fairSharing.weight", str(e), weight)
        return
    if whole < 0 or thousandths < 0:
        yield FieldError("spec.fairSharing.weight", "must not be negative; write 0 or more", weight)
    elif str(weight) == "1n":
        yield FieldError("spec.fairSharing.weight", "is too small; write 0, 2n or more", weight)


def _check_problems(spec: Object) -> Iterator[FieldError]:
    flavors = {text(f, "name") for group in objects(spec, "resourceGroups") for f in objects(group, "flavors")}
    for i, check in enumerate(objects(spec, "admissionChecksStrategy", "admissionChecks")):
        for f, flavor in enumerate(sequence(check, "onFlavors")):
            if flavor not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{f}]"
                yield FieldError(path, "is not a flavor of this ClusterQueue; name one of its resourceGroups", flavor)
