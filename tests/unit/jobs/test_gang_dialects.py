"""The seam of gangs: a dialect of one file and one line is read, gated and composed like Kueue's own groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.errors import FieldError
from kqueue.jobs.gang import registry
from kqueue.jobs.gang.compose import Composition, compose
from kqueue.jobs.gang.dialect import GroupProblem, ScheduleTimeouts
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key, is_of_kueue
from kqueue.jobs.gang.members import base_of, in_order, shortage
from kqueue.jobs.gang.naming import (
    gang_annotation,
    gang_of_workload,
    workload_key_of_gang,
    workload_of_gang,
)
from kqueue.jobs.gang.pods import group_name, managed_pod
from kqueue.jobs.gang.registry import dialect_of, dialects, membership, register, switched_on
from kqueue.jobs.gang.value import GangRef, GangRole, GangSpec
from kqueue.jobs.kind import JobContext
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from kqueue.runtime.store import split_key
from tests.unit.jobs.builders import prefixed
from tests.unit.jobs.pods import failed, make_pod, member
from tests.unit.toys.toy_dialect import FRAMEWORK, GANG, RANK, SIZE, ToyGangs

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
AROUND = JobContext(switches=ON)


@pytest.fixture(autouse=True)
def toy() -> Iterator[ToyGangs]:
    """The dialect is registered with one line, for one test."""
    dialect = ToyGangs()
    register(dialect)
    yield dialect
    del registry._dialects[FRAMEWORK]


def of_toy(name: str, *, size: str = "2", **more: Any) -> dict[str, Any]:
    """A member of gang `g`."""
    pod: dict[str, Any] = make_pod(name, role="r", **more)
    pod["metadata"]["labels"] |= {GANG: "g", SIZE: size, RANK: name[-1]}
    return pod


def unmarked(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as its user makes it."""
    pod["metadata"]["labels"].pop(names.MANAGED_LABEL)
    pod["metadata"]["annotations"].pop(names.ROLE_HASH_ANNOTATION)
    return pod


# --- identity


@pytest.mark.parametrize(
    ("ref", "key"),
    [
        (GangRef(framework=KUEUE_GROUPS, namespace="team", name="g"), "team/g"),
        (GangRef(framework=KUEUE_GROUPS, namespace="team", name=f"{FRAMEWORK}:g"), f"team/pod:{FRAMEWORK}:g"),
        (GangRef(framework=FRAMEWORK, namespace="team", name="g"), f"team/{FRAMEWORK}:g"),
        (GangRef(framework=FRAMEWORK, namespace="team", name="pod:g"), f"team/{FRAMEWORK}:pod:g"),
    ],
)
def test_a_key_tells_the_gang(ref: GangRef, key: str) -> None:
    """G1.10: there and back, also where the framework has a slash; whatever the name is, keys do not meet."""
    assert (ref.key, gang_key(ref.framework, "team", ref.name), GangRef.of_key(key)) == (key, key, ref)
    assert is_of_kueue(key) is (ref.framework == KUEUE_GROUPS)


def test_a_member_has_the_key_of_its_dialect() -> None:
    """The same name in two dialects is two gangs."""
    assert managed_pod(of_toy("p0"), ON).group == f"team/{FRAMEWORK}:g"
    assert managed_pod(make_pod("p1", group="g", total=2), ON).group == "team/g"
    assert managed_pod(make_pod("alone"), ON).group == ""


def test_a_workload_names_its_gang_and_a_gang_its_workload() -> None:
    """G1.11: Kueue's groups by their name, all others by a name that is made, and an annotation."""
    kueue = GangRef(framework=KUEUE_GROUPS, namespace="team", name="g")
    other = GangRef(framework=FRAMEWORK, namespace="team", name="g")
    assert (workload_of_gang(kueue, ON), gang_annotation(kueue)) == ("g", {})
    assert workload_of_gang(other, ON) == workload_name(ToyGangs.names_workloads, "g", "")
    assert workload_of_gang(other, ON, uid="u") == workload_name(ToyGangs.names_workloads, "g", "u")
    assert gang_annotation(other) == {"kqueue.dev/gang": f"{FRAMEWORK}:g"}
    for ref in (kueue, other):
        namespace, name = split_key(workload_key_of_gang(ref.key, ON))
        assert gang_of_workload(namespace, name, gang_annotation(ref)) == ref.key


@pytest.mark.parametrize("framework", [KUEUE_GROUPS, FRAMEWORK])
def test_a_dialect_agrees_with_itself(framework: str) -> None:
    """Its framework is its own; a status is written to a kind, which has a plural; a member matches the selection."""
    dialect = dialect_of(framework)
    assert dialect.framework == framework
    assert bool(dialect.kinds) == bool(dialect.plural)
    assert dialect.kinds or not dialect.writes_status
    selection = dialect.selection()
    if selection is not None:
        assert dialect.membership(of_toy("p0"), ON) is not None
        assert selection.label in of_toy("p0")["metadata"]["labels"]


# --- which dialects count


def test_a_dialect_that_is_off_means_nothing() -> None:
    """G2.3: its labels are not read, and its mistakes are none."""
    off = JobFeatures()
    assert membership(of_toy("p0"), off) is None
    assert group_name(of_toy("p0"), off) == ""
    assert PlainPod().problems(of_toy("p0", size="many"), None, JobContext(switches=off)) == []


def test_dialects_are_switched_on_by_framework(toy: ToyGangs) -> None:
    """Kueue's groups are always there, and first; names of other kinds are no dialects."""
    assert switched_on(["batch/job"]) == (KUEUE_GROUPS,)
    assert switched_on([FRAMEWORK, "batch/job", "pod"]) == (KUEUE_GROUPS, FRAMEWORK)
    assert dialects(ON) == (dialect_of(KUEUE_GROUPS), toy)


def _of_batch(pod: dict[str, Any]) -> None:
    owner = {"apiVersion": "kqueue.dev/v1alpha1", "kind": "BatchProcess", "name": "g", "controller": True}
    pod["metadata"] |= {"labels": {gang_names.BATCH_PROCESS_LABEL: "g"}, "ownerReferences": [owner]}


def _with(part: str, key: str) -> Callable[[dict[str, Any]], None]:
    return lambda pod: pod["metadata"].update({part: {key: "g"}})


@pytest.mark.parametrize(
    ("framework", "join"),
    [
        ("pod", _with("labels", names.POD_GROUP_NAME_LABEL)),
        ("pod", _with("annotations", names.POD_GROUP_NAME_ANNOTATION)),
        ("scheduling.k8s.io/podgroup", lambda pod: pod["spec"].update(schedulingGroup={"podGroupName": "g"})),
        ("scheduling.x-k8s.io/podgroup", _with("labels", gang_names.POD_GROUP_X_K8S_LABEL)),
        ("kqueue.dev/coscheduling-labels", _with("labels", gang_names.COSCHEDULING_NAME_LABEL)),
        *(("scheduling.volcano.sh/podgroup", _with("annotations", k)) for k in gang_names.VOLCANO_GROUP_ANNOTATIONS),
        ("kqueue.dev/batchprocess", _of_batch),
    ],
)
def test_each_mark_of_a_dialect_is_seen(framework: str, join: Callable[[dict[str, Any]], None]) -> None:
    """Pods without any mark are passed over at one look, so no mark may be missing among those of its dialect."""
    pod: dict[str, Any] = {"metadata": {"name": "p", "namespace": "team"}, "spec": {}}
    on = JobFeatures(gangs=tuple(name for name in registry.frameworks() if name != FRAMEWORK))
    before = membership(pod, on)
    join(pod)
    found = membership(pod, on)

    assert before is None
    assert found is not None
    assert (found.framework, found.name) == (framework, "g")


def test_a_pod_of_two_dialects_is_refused_and_else_the_first_counts() -> None:
    """G2.19, G2.21: on creation; a pod that exists is read by the first dialect in order."""
    both = of_toy("p0", group="k", total=2)
    found = PlainPod().problems(both, None, AROUND)
    assert found == [FieldError(ToyGangs.joined_by, f"names two groups: team/k and team/{FRAMEWORK}:g; keep one", "g")]
    assert PlainPod().problems(both, both, AROUND) == []
    assert group_name(both, ON) == "k"


def test_a_dialect_is_registered_once(toy: ToyGangs) -> None:
    with pytest.raises(ValueError, match="registered already"):
        register(toy)


# --- webhooks


def test_its_webhook_gates_a_member_and_notes_its_rank() -> None:
    """The ungater places members by the label of the rank."""
    patch = PlainPod().defaults(unmarked(of_toy("p1", gated=False)), AROUND)
    assert [gate["name"] for gate in patch["spec"]["schedulingGates"]] == [names.ADMISSION_GATE, names.TOPOLOGY_GATE]
    assert patch["metadata"]["labels"][names.POD_GROUP_POD_INDEX_LABEL] == "1"


def test_the_users_rank_counts_before_that_of_the_dialect() -> None:
    """The annotation that names a label means the same beside every dialect."""
    pod = of_toy("p1", gated=False, labels={"mine": "7"}, annotations=prefixed(pod_group_pod_index_label="mine"))
    assert PlainPod().defaults(unmarked(pod), AROUND)["metadata"]["labels"][names.POD_GROUP_POD_INDEX_LABEL] == "7"


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({SIZE: "many"}, f"metadata.labels[{SIZE}]"),
        ({GANG: "other"}, f"metadata.labels[{GANG}]"),
        ({GANG: ""}, f"metadata.labels[{GANG}]"),
    ],
)
def test_its_mistakes_are_refused(changed: dict[str, str], path: str) -> None:
    """G2.25: also a change of the group, at the field by which the pod joined."""
    old, new = of_toy("p1"), of_toy("p1")
    new["metadata"]["labels"] |= changed
    assert [problem.path for problem in PlainPod().problems(new, old, AROUND)] == [path]


def test_a_prebuilt_workload_is_for_kueues_groups_alone() -> None:
    """G2.22."""
    pod = of_toy("p1", annotations=prefixed(prebuilt_workload_name="g"))
    assert [problem.problem for problem in PlainPod().problems(pod, None, AROUND)] == [
        "cannot use a prebuilt Workload; remove it"
    ]


# --- the base and the members beyond it


def made_of(*pods: dict[str, Any]) -> Composition | GroupProblem:
    return compose(in_order(managed_pod(pod, ON) for pod in pods), ON)


def test_the_workload_counts_the_quorum_and_younger_members_are_extras() -> None:
    """G1.2, G1.9: the oldest members are the base, whatever their names; nobody is deleted."""
    found = made_of(of_toy("p0", born=2), of_toy("p1", born=1), of_toy("p2"))
    assert isinstance(found, Composition)
    assert [pod_set["count"] for pod_set in found.pod_sets] == [2]
    assert [pod.name for pod in found.kept] == ["p2", "p1"]
    assert [pod.name for pod in found.extras] == ["p0"]
    assert found.excess == ()


def test_a_quorum_has_a_bound() -> None:
    """G3.28: a number is compared, and no list of that length is made."""
    found = made_of(of_toy("p0", size="10001"))
    assert found == GroupProblem("the quorum is 10001, at most 10000 are possible")


def test_role_minima_are_met_by_the_oldest_of_each_role() -> None:
    """G1.9: first the minima, then the oldest of all others."""
    pods = in_order(member(f"p{i}", role=role, born=i) for i, role in enumerate("aaabb"))
    minima = (GangRole(name="b", minimum=1), GangRole(name="a", minimum=1))
    assert [pod.name for pod in base_of(pods, 3, minima)] == ["p0", "p1", "p3"]
    assert base_of(pods, 5, minima) == pods


def test_a_missing_role_is_told_after_missing_members() -> None:
    """G3.10."""
    pods, minima = [member("p0", role="a"), member("p1", role="a")], (GangRole(name="b", minimum=2),)
    assert shortage(pods, 3, roles=minima) == GroupProblem(
        "the group has 2 of 3 pods; it waits for 1 more", incomplete=True
    )
    assert shortage(pods, 2, roles=minima) == GroupProblem(
        "the group has 2 pods, and of role b 0 of 2; it waits for 2 more", incomplete=True
    )
    assert shortage(pods, 2) is None


def test_a_wish_contradicts_itself_in_no_way() -> None:
    """A dialect corrects a quorum below the sum of its roles; to let it through is a bug."""
    wish = GangSpec(quorum=2, roles=(GangRole(name="a", minimum=2),))
    for wrong in ({"quorum": 0, "roles": ()}, {"quorum": 1}):
        with pytest.raises(ValueError, match="the quorum is"):
            replace(wish, **wrong)


def test_kueues_groups_have_a_quorum_of_all_pods_and_no_extras() -> None:
    """The case quorum = total: what is beyond the total is excess."""
    pods = in_order([member("a", born=1), member("b"), member("c", born=2), failed("d")])
    found = compose(pods, ON)
    assert isinstance(found, Composition)
    assert (found.wish.quorum, found.wish.desired, found.extras) == (2, 2, ())
    assert [pod.name for pod in found.excess] == ["c"]


@pytest.mark.parametrize(("quorum", "seconds"), [(2, 62), (5, 65), (100, 160), (1000, 1060), (5000, 1800)])
def test_the_deadline_of_a_gang_that_names_none(quorum: int, seconds: float) -> None:
    """G3.41."""
    assert ScheduleTimeouts().seconds(quorum) == seconds
