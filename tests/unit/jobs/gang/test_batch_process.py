"""BatchProcess objects as the dialect reads them: quorum, base counts, mistakes, changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.api.batch_process import BatchProcess
from kqueue.jobs.gang.batch_process import change_problems, plan_of, problems, warnings

JSON = dict[str, Any]


def make(*processes: JSON, name: str = "distill", group: JSON | None = None, **spec: Any) -> JSON:
    """A BatchProcess with an image; processes of one pod by default."""
    return {
        "apiVersion": "kqueue.dev/v1alpha1",
        "kind": "BatchProcess",
        "metadata": {"name": name, "namespace": "team-a", "uid": "u-1"},
        "spec": {"image": "train:1", "podGroup": group or {}, "simpleProcesses": [*processes], **spec},
    }


def process(name: str, replicas: int, minimum: int | None = None, **more: Any) -> JSON:
    return {"name": name, "replicas": replicas, **({} if minimum is None else {"minAvailable": minimum}), **more}


@pytest.mark.parametrize(
    ("group", "processes", "quorum", "base"),
    [
        pytest.param({}, [("a", 2, None), ("b", 3, None)], 5, [2, 3], id="without minima all pods"),
        pytest.param({"minAvailable": 3}, [("a", 2, 1), ("b", 2, 1)], 3, [2, 1], id="one more of each in turn"),
        pytest.param({"minAvailable": 4}, [("a", 1, 1), ("b", 9, 1)], 4, [1, 3], id="up to the replicas"),
        pytest.param({"minAvailable": 2}, [("a", 2, 1), ("b", 2, 2)], 3, [1, 2], id="the minima need more"),
        pytest.param({"minAvailable": 2}, [("a", 4, None), ("b", 4, None)], 2, [1, 1], id="no minimum is 0"),
        pytest.param({}, [("a", 4, 1), ("b", 4, 1)], 8, [4, 4], id="minima without a quorum: all"),
        pytest.param({"minAvailable": 9999}, [("a", 5000, None), ("b", 5000, None)], 9999, [5000, 4999], id="large"),
        pytest.param({"minAvailable": 1}, [("a", 0, None), ("b", 1, None)], 1, [0, 1], id="a type without pods"),
    ],
)
def test_the_base_has_the_minima_and_then_one_of_each_type(
    group: JSON, processes: list[tuple[str, int, int | None]], quorum: int, base: list[int]
) -> None:
    """G3.B3, G3.B9, G3.B20."""
    plan = plan_of(make(*(process(*p) for p in processes), group=group))

    assert plan.quorum == quorum
    assert [role.base for role in plan.roles] == base


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6).filter(
        lambda found: sum(replicas for replicas, _ in found) > 0
    ),
    st.data(),
)
def test_the_base_sums_to_the_quorum(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Each type within its minimum and its replicas; equal to adding one pod at a time."""
    processes = [process(f"p{i}", replicas, min(least, replicas)) for i, (replicas, least) in enumerate(sizes)]
    total = sum(replicas for replicas, _ in sizes)
    plan = plan_of(make(*processes, group={"minAvailable": data.draw(st.integers(1, total))}))

    assert sum(role.base for role in plan.roles) == plan.quorum
    assert all(role.minimum <= role.base <= role.replicas for role in plan.roles)
    slow = [role.minimum for role in plan.roles]
    while sum(slow) < plan.quorum:
        for i, role in enumerate(plan.roles):
            if sum(slow) < plan.quorum and slow[i] < role.replicas:
                slow[i] += 1
    assert [role.base for role in plan.roles] == slow


@pytest.mark.proves("BatchProcess", "ranks")
def test_ranks_follow_the_list() -> None:
    """G3.B24; a type without a name is called by its place."""
    plan = plan_of(make(process("teacher", 2), {"replicas": 3}, process("student", 1)))

    assert [(role.name, role.first_rank) for role in plan.roles] == [("teacher", 0), ("process-1", 2), ("student", 5)]


GOOD = (process("teacher", 2, 1), process("student", 2, 1))


@pytest.mark.parametrize(
    ("obj", "sentence"),
    [
        pytest.param(
            make(*GOOD, group={"replicas": 5}),
            "spec.podGroup.replicas: the processes have 4 replicas together; make them equal, or leave it out (found 5)",
            id="replicas",
        ),
        pytest.param(
            make(*GOOD, group={"minAvailable": 5}),
            "spec.podGroup.minAvailable: must be 1 to 4, the number of replicas (found 5)",
            id="minAvailable",
        ),
        pytest.param(
            make(process("teacher", 2, 3)),
            "spec.simpleProcesses[0].minAvailable: must be 0 to 2, the process's replicas (found 3)",
            id="minAvailable of a process",
        ),
        pytest.param(make(), "spec.simpleProcesses: needs 1 to 16 entries (found 0)", id="no process"),
        pytest.param(
            make(*(process(f"p{i}", 1) for i in range(17))),
            "spec.simpleProcesses: needs 1 to 16 entries (found 17)",
            id="too many processes",
        ),
        pytest.param(
            make(process("student", 1), process("student", 1)),
            "spec.simpleProcesses[1].name: is used twice (found 'student')",
            id="a name twice",
        ),
        pytest.param(
            make(process("a", 1), image=""),
            "spec.simpleProcesses[0].image: must be set here, in spec.image or in the template",
            id="no image",
        ),
        pytest.param(
            make(process("student", 2), name="a-very-long-name-of-an-experiment-that-nobody-reads"),
            "metadata.name: makes pod names of 61 characters with process 'student' and index 1, 57 are possible "
            "(found 'a-very-long-name-o...')",
            id="long names",
        ),
        pytest.param(
            make(*GOOD, name="1a"),
            "metadata.name: must be a DNS label that begins with a letter (found '1a')",
            id="no name of a Service",
        ),
        pytest.param(
            make(*GOOD, successPolicy={"processes": ["x"]}),
            "spec.successPolicy.processes[0]: no process has this name; there are teacher, student (found 'x')",
            id="unknown process",
        ),
        pytest.param(
            make(
                process("teacher", 1, template={"spec": {"priorityClassName": "high"}}),
                process("student", 1, template={"spec": {"priorityClassName": "low"}}),
            ),
            "spec.simpleProcesses[1].template.spec.priorityClassName: must be 'high' as in process teacher; all "
            "processes need the same (found 'low')",
            id="mixed priorities",
            marks=pytest.mark.mechanism("3.30"),
        ),
        pytest.param(
            make(*GOOD, group={"timeoutSeconds": 0}),
            "spec.podGroup.timeoutSeconds: must be 1 or more; leave it out to wait without end (found 0)",
            id="timeout",
        ),
        pytest.param(
            make(process("a", 10_001)), "spec.simpleProcesses[0].replicas: must be 0 to 10000 (found 10001)", id="size"
        ),
        pytest.param(
            make(process("a", 0)), "spec.simpleProcesses: have no replicas; give one of them at least 1 (found 0)",
            id="no pods",
        ),
    ],
)  # fmt: skip
def test_a_mistake_names_field_value_and_remedy(obj: JSON, sentence: str) -> None:
    """G3.B2 to B9, B22, B29 and the table of bad input."""
    assert sentence in map(str, problems(obj))


def test_all_mistakes_are_found_at_once() -> None:
    obj = make(process("a", 2, 3), process("a", 1), name="1a", image="", successPolicy={"processes": ["x"]})

    assert [error.path for error in problems(obj)] == [
        "spec.simpleProcesses[1].name",
        "spec.simpleProcesses[0].minAvailable",
        "spec.simpleProcesses[0].image",
        "spec.simpleProcesses[1].image",
        "spec.successPolicy.processes[0]",
    ]


@pytest.mark.parametrize("broken", [{}, {"spec": None}, {"spec": {"simpleProcesses": [None, 3, {"replicas": "x"}]}}])
def test_objects_of_a_wrong_form_raise_nothing(broken: JSON) -> None:
    problems(broken)
    warnings(broken)


def test_a_good_object_has_neither_mistakes_nor_warnings() -> None:
    obj = make(*GOOD, group={"replicas": 4, "minAvailable": 2, "timeoutSeconds": 600})

    assert problems(obj) == []
    assert warnings(obj) == []
    assert BatchProcess.read(obj).spec.simple_processes[0].name == "teacher"


def test_probable_mistakes_are_warnings() -> None:
    obj = make(
        process("a", 2, 2, resources={"limits": {"memory": 2048}}), process("b", 1, 1), group={"minAvailable": 2}
    )

    assert warnings(obj) == [
        "spec.podGroup.minAvailable is 2 and the processes need 3 together; 3 counts",
        "spec.simpleProcesses[0].resources.limits[memory] is 2048 bytes; write 2048Mi if MiB are meant",
    ]


@pytest.mark.parametrize(
    ("change", "without_quota", "with_quota"),
    [
        pytest.param({"suspend": True}, [], [], id="suspend"),
        pytest.param({"ttlSecondsAfterFinished": 9, "activeDeadlineSeconds": 9}, [], [], id="times of the end"),
        pytest.param({"podGroup": {"minAvailable": 3}}, [], ["spec.podGroup"], id="quorum"),
        pytest.param({"image": "other"}, ["spec.image"], ["spec.image"], id="image"),
        pytest.param(
            {"simpleProcesses": [process("teacher", 3, 1), process("student", 2, 1)]}, [], ["spec.simpleProcesses"],
            id="replicas",
        ),
        pytest.param(
            {"simpleProcesses": [process("teacher", 2, 1, command=["x"]), process("student", 2, 1)]},
            ["spec.simpleProcesses"], ["spec.simpleProcesses"], id="command",
        ),
    ],
)  # fmt: skip
def test_what_may_change(change: JSON, without_quota: list[str], with_quota: list[str]) -> None:
    """G3.B30."""
    old = make(*GOOD)
    new = copy.deepcopy(old)
    new["spec"] |= change

    assert [str(e) for e in change_problems(new, old, has_quota=False)] == [
        f"{path}: cannot change after creation; make another" for path in without_quota
    ]
    assert [e.path for e in change_problems(new, old, has_quota=True)] == with_quota
