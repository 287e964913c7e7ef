"""What the schema cannot say about ClusterQueues, Cohorts and ResourceFlavors."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.switches import JobFeatures
from webhooks import quota

Object = dict[str, Any]
ON = JobFeatures()
CONCURRENT = JobFeatures(concurrent_admission=True)


def queue(*resources: Object, covered: list[str] | None = None, **spec: Any) -> Object:
    """A ClusterQueue of one group with one flavor, `default`."""
    names = covered if covered is not None else [r["name"] for r in resources]
    groups = [{"coveredResources": names, "flavors": [{"name": "default", "resources": list(resources)}]}]
    return {"metadata": {"name": "team"}, "spec": {"resourceGroups": groups, **spec}}


def paths(obj: Object, *, old: Object | None = None, switches: JobFeatures = ON) -> list[str]:
    return [problem.path for problem in quota.cluster_queue_problems(obj, old, switches)]


def selector(key: str = "team", operator: str = "In", values: tuple[str, ...] = ("a",)) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


CPU = {"name": "cpu", "nominalQuota": "10"}
MEMORY = {"name": "memory", "nominalQuota": "1Gi"}
AT = "spec.resourceGroups[0].flavors[0].resources"
EXPRESSION = "spec.namespaceSelector.matchExpressions[0]"
WEIGHT = "spec.fairSharing.weight"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(queue(CPU, MEMORY), [], id="sound"),
        pytest.param(queue(CPU, MEMORY, covered=["memory", "cpu"]), [f"{AT}[0].name", f"{AT}[1].name"], id="order"),
        pytest.param(queue({"name": "cpu", "nominalQuota": "-1"}), [f"{AT}[0].nominalQuota"], id="negative"),
        pytest.param(queue({"name": "cpu", "nominalQuota": "ten"}), [f"{AT}[0].nominalQuota"], id="malformed"),
        pytest.param(queue({"name": "cpu", "nominalQuota": 1.5}), [f"{AT}[0].nominalQuota"], id="a-fraction-unquoted"),
        pytest.param(queue(CPU | {"lendingLimit": "5"}), [f"{AT}[0].lendingLimit"], id="lending-to-nobody"),
        pytest.param(queue(CPU | {"borrowingLimit": "5"}), [f"{AT}[0].borrowingLimit"], id="borrowing-from-nobody"),
        pytest.param(
            queue(CPU | {"lendingLimit": "11"}, cohortName="all"),
            [f"{AT}[0].lendingLimit"],
            id="lending-what-is-not-there",
        ),
        pytest.param(queue(CPU | {"lendingLimit": "10000m"}, cohortName="all"), [], id="lending-everything"),
        pytest.param(
            queue(CPU | {"lendingLimit": "-2", "borrowingLimit": "-1"}, cohortName="all"),
            [f"{AT}[0].borrowingLimit", f"{AT}[0].lendingLimit"],
            id="negative-limits",
        ),
        pytest.param(
            queue(CPU, covered=["not a name"]),
            ["spec.resourceGroups[0].coveredResources[0]", f"{AT}[0].name"],
            id="bad-resource-name",
        ),
        pytest.param(queue(CPU, namespaceSelector={}), [], id="every-namespace"),
        pytest.param(queue(CPU, namespaceSelector=selector()), [], id="some-namespaces"),
        pytest.param(
            queue(CPU, namespaceSelector={"matchLabels": {"a b": "!"}}),
            ["spec.namespaceSelector.matchLabels[a b]"] * 2,
            id="selector-labels",
        ),
        pytest.param(
            queue(CPU, namespaceSelector=selector(operator="Equals")), [f"{EXPRESSION}.operator"], id="unknown-operator"
        ),
        pytest.param(queue(CPU, namespaceSelector=selector(values=())), [f"{EXPRESSION}.values"], id="in-nothing"),
        pytest.param(
            queue(CPU, namespaceSelector=selector(operator="Exists")), [f"{EXPRESSION}.values"], id="exists-with-values"
        ),
        pytest.param(queue(CPU, namespaceSelector=selector(key="/")), [f"{EXPRESSION}.key"], id="selector-key"),
        pytest.param(
            queue(CPU, namespaceSelector=selector(values=("!",))), [f"{EXPRESSION}.values[0]"], id="selector-value"
        ),
        pytest.param(
            queue(CPU, admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["default", "other"]}]}),
            ["spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]"],
            id="check-on-a-foreign-flavor",
        ),
    ],
)
def test_a_cluster_queue_is_checked_where_the_schema_cannot(obj: Object, expected: list[str]) -> None:
    """Each mistake is named by its path."""
    assert paths(obj) == expected


@pytest.mark.parametrize(
    ("weight", "sound"),
    [
        *((weight, True) for weight in ("0", 0, "1", 2, "2n", "1.5n", "1m", "0.5", "1e-8", "0n", "1001e-12")),
        *(
            (weight, False)
            for weight in ("-1", "-1n", "1n", "0.5n", "1e-9", "0.001u", "0.000001m", "1e-999999", "x", 0.5)
        ),
    ],
)
def test_a_weight_is_zero_or_above_a_nano(weight: object, sound: bool) -> None:
    """Whatever the way of writing it."""
    obj = queue(CPU, fairSharing={"weight": weight})

    assert paths(obj) == ([] if sound else [WEIGHT])
    assert [p.path for p in quota.cohort_problems(obj)] == ([] if sound else [WEIGHT])


def test_a_resource_and_a_flavor_belong_to_one_group() -> None:
    """The second place is named, and says where the first is."""
    obj = queue(CPU)
    obj["spec"]["resourceGroups"] *= 2
    resource, flavor = quota.cluster_queue_problems(obj, None, ON)

    assert resource.path == "spec.resourceGroups[1].coveredResources[0]"
    assert "spec.resourceGroups[0].coveredResources[0]" in resource.problem
    assert flavor.path == "spec.resourceGroups[1].flavors[0].name"


def in_two_groups() -> Object:
    obj = queue(CPU)
    obj["spec"]["resourceGroups"].append({**obj["spec"]["resourceGroups"][0], "coveredResources": []})
    return obj


@pytest.mark.parametrize(
    ("obj", "sentence"),
    [
        pytest.param(
            queue({"name": "cpu", "nominalQuota": "ten"}),
            f"{AT}[0].nominalQuota: 'ten' is not a quantity: write a number with an optional suffix, such as 500m, 2, ",
            id="a-quota-that-cannot-be-read",
        ),
        pytest.param(
            queue({"name": "cpu", "nominalQuota": "-1"}),
            f"{AT}[0].nominalQuota: must not be negative; write 0 or more (found '-1')",
            id="a-negative-quota",
        ),
        pytest.param(
            queue(CPU | {"borrowingLimit": "5"}),
            f"{AT}[0].borrowingLimit: needs spec.cohortName: without it there is no queue to lend to or borrow from",
            id="a-borrowing-limit-without-a-cohort",
        ),
        pytest.param(
            queue(CPU | {"lendingLimit": "11"}, cohortName="all"),
            f"{AT}[0].lendingLimit: must not be above nominalQuota: only what is there can be lent (found '11')",
            id="lending-more-than-there-is",
        ),
        pytest.param(
            in_two_groups(),
            "spec.resourceGroups[1].flavors[0].name: flavor is listed at spec.resourceGroups[0].flavors[0].name already; "
            "keep one of them (found 'default')",
            id="a-flavor-in-two-groups",
        ),
        pytest.param(
            queue(CPU, MEMORY, covered=["cpu", "cpu"]),
            "spec.resourceGroups[0].coveredResources[1]: resource is listed at spec.resourceGroups[0].coveredResources[0] "
            "already; keep one of them (found 'cpu')",
            id="a-resource-twice",
        ),
        pytest.param(
            queue(CPU, fairSharing={"weight": "-1"}),
            f"{WEIGHT}: must not be negative; write 0 or more (found '-1')",
            id="a-negative-weight",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_write(obj: Object, sentence: str) -> None:
    """Where it is, what stands there, and the remedy."""
    first = next(
        str(p) for p in quota.cluster_queue_problems(obj, None, ON) if not p.path.endswith("resources[1].name")
    )

    assert first.startswith(sentence)


def group(resources: int, flavors: int, start: int = 0) -> Object:
    names = [f"example.com/r{start}-{i}" for i in range(resources)]
    quotas = [{"name": name, "nominalQuota": 1} for name in names]
    return {
        "coveredResources": names,
        "flavors": [{"name": f"f{start}-{i}", "resources": quotas} for i in range(flavors)],
    }


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        pytest.param([group(8, 64)], [], id="as-many-quotas-as-allowed"),
        pytest.param([group(9, 64)], ["spec.resourceGroups[0]"], id="too-many-quotas-in-one-group"),
        pytest.param([group(1, 64, g) for g in range(4)], [], id="as-many-flavors-as-allowed"),
        pytest.param([group(1, 64, g) for g in range(5)], ["spec.resourceGroups"], id="too-many-flavors"),
        pytest.param([group(64, 1, g) for g in range(5)], ["spec.resourceGroups"], id="too-many-resources"),
    ],
)
def test_a_cluster_queue_has_limits_of_size(groups: list[Object], expected: list[str]) -> None:
    """Over all groups, and of quotas in one."""
    assert paths({"spec": {"resourceGroups": groups}}) == expected


def with_check(*on_flavors: str, flavor: str = "default") -> Object:
    obj = queue(CPU, admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": list(on_flavors)}]})
    obj["spec"]["resourceGroups"][0]["flavors"][0]["name"] = flavor
    return obj


@pytest.mark.parametrize(
    ("old", "new", "switches", "refused"),
    [
        pytest.param(with_check("gone"), with_check("gone"), ON, False, id="an-old-mistake-may-stay"),
        pytest.param(
            with_check("gone"), with_check("gone"), JobFeatures(strict_on_flavors=True), True, id="not-when-strict"
        ),
        pytest.param(with_check("gone"), with_check("gone", "default"), ON, True, id="not-when-the-check-changes"),
        pytest.param(with_check("gone"), with_check("gone", flavor="b"), ON, True, id="not-when-the-flavors-change"),
        pytest.param(
            with_check("default", "gone"), with_check("gone", "default"), ON, False, id="order-does-not-matter"
        ),
    ],
)
def test_flavors_of_checks_on_update(old: Object, new: Object, switches: JobFeatures, refused: bool) -> None:
    """An old queue can still be edited elsewhere."""
    assert bool(paths(new, old=old, switches=switches)) is refused


def concurrent(mode: str = "TryPreferredFlavors", last: str | None = None, **spec: Any) -> Object:
    migration: Object = {"mode": mode}
    if last is not None:
        migration["constraints"] = {"lastAcceptableFlavorName": last}
    return queue(CPU, concurrentAdmissionPolicy={"migration": migration}, **spec)


POLICY = "spec.concurrentAdmissionPolicy"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(concurrent(), [], id="sound"),
        pytest.param(concurrent(last="default"), [], id="a-last-flavor"),
        pytest.param(concurrent(queueingStrategy="StrictFIFO"), [POLICY], id="strict-fifo"),
        pytest.param(concurrent(resourceGroups=[]), [POLICY], id="no-group"),
        pytest.param(concurrent(resourceGroups=[group(1, 17)]), [POLICY], id="too-many-flavors"),
        pytest.param(
            concurrent(last="other"),
            [f"{POLICY}.migration.constraints.lastAcceptableFlavorName"],
            id="a-foreign-flavor",
        ),
        pytest.param(
            concurrent("RetainFirstAdmission", last="default"), [f"{POLICY}.migration.constraints"], id="another-mode"
        ),
    ],
)
def test_concurrent_admission_has_its_bounds(obj: Object, expected: list[str]) -> None:
    """Only while its gate is on."""
    assert paths(obj, switches=CONCURRENT) == expected
    assert paths(obj) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kqueue.dev/minimum-runtime", "soon", "'soon' must be a duration such as 300ms, 5m or 1h30m"),
        ("kqueue.dev/quota-from-capacity", "h100/cpu=1001", "'h100/cpu=1001' is no share from 0 to 1000 per mille;"),
        ("kqueue.dev/budgets", "cpu=1h/year", "'cpu=1h/year' is no budget;"),
        ("kqueue.dev/longest-minimum-runtime", "-1s", "'-1s' must not be negative; write 0 or more"),
        ("kqueue.dev/most-lost-pod-seconds", "1h", "'1h' must be a whole number of pod-seconds such as 360000"),
        ("kqueue.dev/most-lost-pod-seconds", "9" * 19, f"'{'9' * 19}' must be a whole number of pod-seconds such as"),
    ],
)
def test_new_mistakes_in_annotations_are_refused(key: str, value: str, said: str) -> None:
    """A mistake of before the upgrade keeps no other change out."""
    wrong = {"metadata": {"annotations": {key: value}}, "spec": {}}
    (problem,) = quota.cluster_queue_problems(wrong, None, ON)

    assert problem.path == f"metadata.annotations[{key}]"
    assert problem.problem.startswith(said)
    assert quota.cluster_queue_problems(wrong, wrong, ON) == []


def test_right_annotations_are_taken() -> None:
    right = {"minimum-runtime": "10m", "longest-minimum-runtime": "1h", "most-lost-pod-seconds": "360000"}
    right |= {"quota-from-capacity": "h100/cpu=50%", "budgets": "a:cpu=1h/day"}
    notes = {f"kqueue.dev/{key}": value for key, value in right.items()}
    assert quota.cluster_queue_problems({"metadata": {"annotations": notes}, "spec": OF_H100}, None, ON) == []


OF_H100 = {
    "resourceGroups": [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
        }
    ]
}


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("quota-from-capacity", "h100/cpu=50%, a100/cpu=50%", "a100/cpu"),
        ("quota-from-capacity", "h100/cpu=50%, h100/memory=50%", "h100/memory"),
        ("budgets", "cpu=1h/day, team-a:nvidia.com/gp=1h/day", "nvidia.com/gp"),
    ],
)
def test_annotations_about_what_no_resource_group_has_are_refused(key: str, value: str, named: str) -> None:
    """Also when the group goes away under the annotation; a mistake of before keeps no other change out."""
    obj = {"metadata": {"annotations": {f"kqueue.dev/{key}": value}}, "spec": OF_H100}
    (problem,) = quota.cluster_queue_problems(obj, None, ON)
    assert problem.path == f"metadata.annotations[kqueue.dev/{key}]"
    assert problem.problem.startswith(f"{named} is not in spec.resourceGroups;")
    assert quota.cluster_queue_problems(obj, obj, ON) == []
    assert len(quota.cluster_queue_problems({**obj, "spec": {}}, obj, ON)) == 1


def test_the_concurrent_admission_policy_is_for_ever() -> None:
    """It may neither change nor come nor go, whatever the gate says."""
    assert paths(concurrent(), old=concurrent()) == []
    assert paths(concurrent("RetainFirstAdmission"), old=concurrent()) == [POLICY]
    assert paths(queue(CPU), old=concurrent()) == [POLICY]
    assert paths(concurrent(), old=queue(CPU)) == [POLICY]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"parentName": "root"}, [], id="quota-of-its-own-is-optional"),
        pytest.param(
            queue(CPU | {"lendingLimit": "20"}, parentName="root")["spec"], [], id="may-lend-more-than-its-own"
        ),
        pytest.param(
            queue(CPU | {"lendingLimit": "1", "borrowingLimit": "1"})["spec"],
            [f"{AT}[0].borrowingLimit", f"{AT}[0].lendingLimit"],
            id="limits-need-a-parent",
        ),
    ],
)
def test_a_cohort_is_checked_where_the_schema_cannot(spec: Object, expected: list[str]) -> None:
    """As a ClusterQueue, with a parent for a cohort."""
    assert [problem.path for problem in quota.cohort_problems({"spec": spec})] == expected


def test_a_cohort_that_is_its_own_parent_is_warned_about() -> None:
    """Cycles are accepted, and stop everything."""
    (warning,) = quota.cohort_warnings({"metadata": {"name": "a"}, "spec": {"parentName": "a"}})

    assert "nothing in Cohort a is admitted" in warning
    assert quota.cohort_warnings({"metadata": {"name": "a"}, "spec": {"parentName": "b"}}) == []


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [], id="empty"),
        pytest.param(
            {"nodeLabels": {"pool": ""}, "nodeTaints": [TAINT], "tolerations": [{"operator": "Exists"}]}, [], id="sound"
        ),
        pytest.param({"nodeLabels": {"a b": "x"}}, ["spec.nodeLabels[a b]"], id="label-key"),
        pytest.param({"nodeLabels": {"a": "x y"}}, ["spec.nodeLabels[a]"], id="label-value"),
        pytest.param({"nodeTaints": [TAINT | {"key": ""}]}, ["spec.nodeTaints[0].key"], id="taint-key"),
        pytest.param({"nodeTaints": [TAINT | {"value": "x y"}]}, ["spec.nodeTaints[0].value"], id="taint-value"),
        pytest.param({"nodeTaints": [TAINT, TAINT | {"value": "no"}]}, ["spec.nodeTaints[1]"], id="taint-twice"),
        pytest.param({"nodeTaints": [TAINT, TAINT | {"effect": "NoExecute"}]}, [], id="two-effects-of-one-key"),
        pytest.param(
            {"tolerations": [{"key": "a b", "operator": "Exists"}]}, ["spec.tolerations[0].key"], id="toleration"
        ),
    ],
)
def test_a_flavor_is_checked_where_the_schema_cannot(spec: Object, expected: list[str]) -> None:
    """Labels and taints must be such as nodes can have."""
    assert [problem.path for problem in quota.flavor_problems({"spec": spec})] == expected


def test_nothing_stands_in_the_way_of_a_deletion() -> None:
    """A bad object can lose its finalizer."""
    bad = queue({"name": "!", "nominalQuota": "x"}) | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    bad["spec"]["nodeLabels"] = {"!": "!"}

    assert (paths(bad), quota.cohort_problems(bad), quota.flavor_problems(bad)) == ([], [], [])


def test_the_finalizer_is_added_once() -> None:
    """Beside those of others."""
    own = "kueue.x-k8s.io/resource-in-use"

    assert quota.finalizer({"metadata": {"finalizers": ["a"]}}) == {"metadata": {"finalizers": ["a", own]}}
    assert quota.finalizer({"metadata": {"finalizers": [own]}}) == {}
