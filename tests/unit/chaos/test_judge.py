"""The judge of the fault campaign: each breach is found in a small history, and a clean history has none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import Journal, main, table
from tests.chaos.campaign import judged_again, write_history
from tests.chaos.judge import FAILED, HOST, PARTIAL, PHANTOM, QUOTA, STUCK, TWICE, Judge
from tests.chaos.world import Change

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
HOST_LABEL = "kubernetes.io/hostname"
PATIENCE = 60.0


def meta(name: str, *, of: str = "", **more: Any) -> Object:
    """Metadata; the UID is the name."""
    owners = {"ownerReferences": [{"uid": of, "name": of, "controller": True}]} if of else {}
    return {"name": name, "uid": name, "namespace": "ns", **owners, **more}


def conditions(*true: str) -> list[Object]:
    """Conditions that are True."""
    return [{"type": each, "status": "True"} for each in true]


def node(name: str, *, gpus: int = 8) -> Object:
    status = {"allocatable": {GPU: str(gpus), "pods": "110"}, "conditions": conditions("Ready")}
    return {"metadata": meta(name, labels={HOST_LABEL: name}), "spec": {}, "status": status}


def queue(name: str, *, gpus: int = 8, told: int = 0, **spec: Any) -> Object:
    quota = [{"name": GPU, "nominalQuota": str(gpus)}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "gpu", "resources": quota}]}]
    return {
        "metadata": meta(name),
        "spec": {"resourceGroups": groups, **spec},
        "status": {"reservingWorkloads": told},
    }


def local_queue(name: str = "team") -> Object:
    return {"metadata": meta(name), "spec": {"clusterQueue": name}}


def job(name: str = "a", *, pods: int = 2, done: int = 0, state: str = "") -> Object:
    status = {"conditions": conditions(state), "succeeded": done}
    return {"metadata": meta(name), "spec": {"completions": pods}, "status": status}


def workload(
    name: str,
    *true: str,
    of: str = "a",
    pods: int = 2,
    gpus: int = 4,
    hosts: str = "n1",
    to: str = "team",
    required: str = HOST_LABEL,
    count: int | None = None,
) -> Object:
    """A Workload; without `hosts` it has no admission, else one pod on each host that is named, the last has the rest.

    `count` is how many pods are admitted; None: all.
    """
    count = pods if count is None else count
    asked = {"containers": [{"resources": {"requests": {GPU: str(gpus)}}}]}
    pod_set = {"name": "main", "count": pods, "template": {"spec": asked}, "topologyRequest": {"required": required}}
    names = hosts.split()
    status: Object = {"conditions": conditions(*true)}
    if names:
        counts = [*[1] * (len(names) - 1), count - len(names) + 1]
        slices = [
            {
                "domainCount": len(names),
                "valuesPerLevel": [{"individual": {"roots": names}}],
                "podCounts": {"individual": counts},
            }
        ]
        assigned = {"name": "main", "flavors": {GPU: "gpu"}, "resourceUsage": {GPU: str(count * gpus)}, "count": count}
        given = {**assigned, "topologyAssignment": {"levels": [HOST_LABEL], "slices": slices}}
        status["admission"] = {"clusterQueue": to, "podSetAssignments": [given]}
    return {"metadata": meta(name, of=of), "spec": {"queueName": "team", "podSets": [pod_set]}, "status": status}


def pod(name: str, phase: str = "Running", *, of: str = "a", on: str = "n1", tracked: bool = True) -> Object:
    finalizers = ["batch.kubernetes.io/job-tracking"] if tracked else []
    return {
        "metadata": meta(name, of=of, finalizers=finalizers),
        "spec": {"nodeName": on} if on else {},
        "status": {"phase": phase},
    }


KIND_OF = {"n": "Node", "q": "ClusterQueue", "l": "LocalQueue", "j": "Job", "w": "Workload", "p": "Pod"}
WORLD: list[tuple[str, Object]] = [("n", node("n1")), ("n", node("n2")), ("q", queue("team")), ("l", local_queue())]


def judged(history: Iterable[tuple[str, Object]], *, lasts: float = 0.0, rest: bool = False) -> Judge:
    """The judge, when it has read the history, one change a second, and the end has lasted for so many seconds."""
    judge = Judge(PATIENCE)
    now = 0.0
    for revision, (kind, obj) in enumerate(history, start=1):
        now = float(revision)
        deleted = kind.startswith("-")
        judge.take(Change(revision=revision, at=now, kind=KIND_OF[kind[-1]], obj=obj, deleted=deleted))
    judge.look(now + lasts)
    if rest:
        judge.at_rest(now + lasts)
    return judge


CLEAN: list[tuple[str, Object]] = [
    *WORLD,
    ("j", job()),
    ("w", workload("w1", hosts="")),
    ("w", workload("w1")),
    ("q", queue("team", told=1)),
    ("p", pod("p1", on="")),
    ("p", pod("p1")),
    ("p", pod("p2")),
    ("p", pod("p1", "Succeeded")),
    ("p", pod("p2", "Succeeded")),
    ("j", job(done=2, state="Complete")),
    ("w", workload("w1", "Finished")),
    ("q", queue("team")),
]


def test_a_job_that_ran_once_and_gave_all_back_is_no_breach() -> None:
    """The whole life of a Job, with a rest that lasts, is clean, and it is counted."""
    judge = judged(CLEAN, lasts=2 * PATIENCE, rest=True)
    assert judge.breaches == []
    assert (judge.totals.admissions, judge.totals.completed, judge.totals.changes) == (1, 1, len(CLEAN))


def test_a_job_that_was_preempted_and_ran_later_is_no_breach() -> None:
    """Evicted, pods stopped, quota given back, admitted again elsewhere, done."""
    history = [
        *WORLD,
        ("j", job()),
        ("w", workload("w1")),
        *(("p", pod(name)) for name in ("p1", "p2")),
        ("w", workload("w1", "Evicted")),
        *(("p", pod(name, "Failed")) for name in ("p1", "p2")),
        *(("-p", pod(name, "Failed")) for name in ("p1", "p2")),
        ("w", workload("w1", "Evicted", hosts="")),
        ("w", workload("w1", hosts="n2")),
        *(("p", pod(name, on="n2")) for name in ("p3", "p4")),
        *(("p", pod(name, "Succeeded", on="n2")) for name in ("p3", "p4")),
        ("j", job(done=2, state="Complete")),
        ("w", workload("w1", "Finished", hosts="n2")),
    ]
    judge = judged(history, lasts=2 * PATIENCE, rest=True)
    assert judge.breaches == []
    assert (judge.totals.admissions, judge.totals.evictions) == (2, 1)


def test_a_job_of_which_a_part_is_done_is_admitted_for_the_rest() -> None:
    """One of two pods succeeds, the job is preempted, and comes back for one pod: no breach, and nothing is missing."""
    history = [
        *WORLD,
        ("j", job()),
        ("w", workload("w1")),
        *(("p", pod(name)) for name in ("p1", "p2")),
        ("p", pod("p1", "Succeeded")),
        ("j", job(done=1)),
        ("w", workload("w1", "Evicted")),
        ("p", pod("p2", "Failed")),
        ("w", workload("w1", "Evicted", hosts="")),
        ("w", workload("w1", count=1)),
        ("p", pod("p3")),
    ]
    judge = judged(history, lasts=PATIENCE)
    judge.look(3 * PATIENCE)
    assert judge.breaches == []


def test_a_stopped_pod_that_succeeds_late_counts_for_nobody() -> None:
    """The Job has given it up, so the job runs with all of its pods again: no breach."""
    history = [
        *WORLD,
        ("j", job()),
        ("w", workload("w1", "Evicted")),
        ("p", pod("p1")),
        ("p", pod("p1", "Succeeded")),
        ("w", workload("w1", "Evicted", hosts="")),
        ("w", workload("w1")),
        *(("p", pod(name)) for name in ("p2", "p3")),
        *(("p", pod(name, "Succeeded")) for name in ("p2", "p3")),
        ("j", job(done=2, state="Complete")),
        ("w", workload("w1", "Finished")),
    ]
    assert judged(history, rest=True).breaches == []


OTHER = workload("w2", of="b", hosts="n2")
IN_COHORT: Any = {"cohortName": "all"}

BREACHES = [
    pytest.param(
        [("w", workload("w1")), ("w", OTHER)], QUOTA, "team", id="two-reservations-exceed-the-quota-of-a-queue"
    ),
    pytest.param(
        [
            ("q", queue("team", gpus=8, **IN_COHORT)),
            ("q", queue("other", gpus=4, **IN_COHORT)),
            ("w", workload("w1")),
            ("w", workload("w2", of="b", hosts="n2", to="other")),
        ],
        QUOTA,
        "other",
        id="two-queues-exceed-the-quota-of-their-cohort",
    ),
    pytest.param([("p", pod("p1"))], QUOTA, "ns/p1", id="a-pod-runs-without-an-admission"),
    pytest.param(
        [("w", workload("w1")), ("p", pod("p1")), ("w", workload("w1", "Evicted", hosts=""))],
        QUOTA,
        "ns/p1",
        id="quota-is-given-back-while-a-pod-runs",
    ),
    pytest.param(
        [("q", queue("team", gpus=64)), ("w", workload("w1")), ("w", workload("w2", of="b"))],
        HOST,
        "n1",
        id="two-gangs-are-given-one-host",
    ),
    pytest.param(
        [
            ("q", queue("team", gpus=64)),
            ("w", workload("w1", gpus=8, pods=2, hosts="n1 n2")),
            *(("p", pod(name)) for name in ("p1", "p2")),
        ],
        HOST,
        "n1",
        id="pods-run-beyond-what-their-host-has",
    ),
    pytest.param(
        [("w", workload("w1", gpus=1)), ("w", workload("w1b", gpus=1))],
        TWICE,
        "ns/w1b",
        id="two-workloads-of-one-job-hold-quota",
    ),
    pytest.param(
        [("w", workload("w1")), ("w", workload("w1", hosts="n2"))], TWICE, "ns/w1", id="an-admission-replaces-another"
    ),
    pytest.param(
        [("w", workload("w1", "Finished")), ("w", workload("w1", hosts=""))], TWICE, "ns/w1", id="an-end-is-taken-back"
    ),
    pytest.param(
        [("w", workload("w1", gpus=1)), *(("p", pod(name)) for name in ("p1", "p2", "p3"))],
        TWICE,
        "ns/w1",
        id="more-pods-run-than-were-admitted",
    ),
    pytest.param(
        [("j", job(done=1)), ("w", workload("w1", gpus=1)), *(("p", pod(name)) for name in ("p1", "p2"))],
        TWICE,
        "ns/w1",
        id="a-pod-that-the-job-has-counted-runs-again",
    ),
    pytest.param([("j", job(state="Failed"))], FAILED, "ns/a", id="a-job-fails"),
]


@pytest.mark.parametrize(("history", "rule", "subject"), BREACHES)
def test_what_must_never_be_is_found_at_once(history: list[tuple[str, Object]], rule: str, subject: str) -> None:
    """The breach is named with its rule and subject, and no other rule is."""
    found = {(breach.rule, breach.subject) for breach in judged([*WORLD, *history]).breaches}
    assert (rule, subject) in found
    assert {each for each, _ in found} == {rule}


LASTING = [
    pytest.param([("w", workload("w1", hosts=""))], STUCK, "ns/w1", id="a-job-waits-with-quota-and-hosts-free"),
    pytest.param([("w", workload("w1"))], STUCK, "ns/w1", id="an-admitted-job-has-no-pods"),
    pytest.param([("w", workload("w1", "Evicted"))], STUCK, "ns/w1", id="an-evicted-job-keeps-its-quota"),
    pytest.param([("w", workload("w1")), ("p", pod("p1"))], PARTIAL, "ns/w1", id="half-a-gang-runs"),
    pytest.param([("q", queue("team", told=1))], PHANTOM, "team", id="a-reservation-without-a-workload"),
]


@pytest.mark.parametrize(("history", "rule", "subject"), LASTING)
def test_what_may_be_for_a_while_is_found_when_it_lasts(
    history: list[tuple[str, Object]], rule: str, subject: str
) -> None:
    """Within the patience it is no breach, afterwards it is."""
    assert judged([*WORLD, *history], lasts=PATIENCE - 5).breaches == []
    patient = Judge(PATIENCE)
    for revision, (kind, obj) in enumerate([*WORLD, *history], start=1):
        patient.take(Change(revision=revision, at=1.0, kind=KIND_OF[kind], obj=obj))
    for now in (1.0, PATIENCE, PATIENCE + 2):
        patient.look(now)
    assert [(breach.rule, breach.subject) for breach in patient.breaches] == [(rule, subject)]


WAITS_RIGHTLY = [
    pytest.param(
        [("w", OTHER), ("p", pod("p3", of="b", on="n2")), ("p", pod("p4", of="b", on="n2"))], id="quota-is-taken"
    ),
    pytest.param([("n", node("n1", gpus=7)), ("n", node("n2", gpus=7))], id="no-host-has-room"),
    pytest.param([("-l", local_queue())], id="its-local-queue-does-not-exist"),
]


@pytest.mark.parametrize("history", WAITS_RIGHTLY)
def test_a_job_that_cannot_start_may_wait(history: list[tuple[str, Object]]) -> None:
    """However long it waits."""
    judge = judged([*WORLD, *history, ("w", workload("w1", hosts=""))])
    for now in range(100, 1000, 50):
        judge.look(float(now))
    assert judge.breaches == []


AT_REST = [
    pytest.param([("j", job())], STUCK, "ns/a", id="a-job-has-no-end"),
    pytest.param([("q", queue("team", told=1))], PHANTOM, "team", id="a-status-reports-a-reservation"),
    pytest.param([("j", job(done=3, state="Complete"))], TWICE, "ns/a", id="a-job-counts-more-pods-than-it-wants"),
]


@pytest.mark.parametrize(("history", "rule", "subject"), AT_REST)
def test_at_rest_nothing_is_left(history: list[tuple[str, Object]], rule: str, subject: str) -> None:
    """What is left when all could end is a breach, without further patience."""
    assert judged([*WORLD, *history]).breaches == []
    found = judged([*WORLD, *history], rest=True).breaches
    assert [(breach.rule, breach.subject) for breach in found] == [(rule, subject)]


def test_a_history_that_goes_back_is_refused() -> None:
    """An event of an older revision means that the order is lost; a verdict on it would be worth nothing."""
    judge = Judge()
    judge.take(Change(revision=5, at=0, kind="Node", obj=node("n1")))
    with pytest.raises(ValueError, match="revision 4 comes after 5"):
        judge.take(Change(revision=4, at=0, kind="Node", obj=node("n2")))


def test_a_journal_goes_on_after_the_last_loss(tmp_path: Path) -> None:
    """Losses of an earlier process count, a line that was cut off does not, and faults that were survived do not."""
    path = tmp_path / "campaign.jsonl"
    first = Journal(path)
    loss = {"kind": "kill", "seconds": 4.5, "jobs": 3}
    first.write("loss", {"number": 1, "lost": True, **loss})
    first.write("loss", {"number": 2, "lost": False, **loss})
    with path.open("a") as file:
        file.write('{"what": "loss", "lo')
    assert Journal(path).losses == 1


def test_the_table_tells_losses_by_kind_and_what_was_found() -> None:
    """Hand-overs by kind, sums over all processes of the campaign, and each rule with its count."""
    entries = [
        {"what": "loss", "number": 1, "kind": "kill", "lost": True, "seconds": 4.0, "jobs": 1},
        {"what": "loss", "number": 2, "kind": "kill", "lost": True, "seconds": 6.0, "jobs": 1},
        {"what": "breach", "rule": STUCK, "subject": "a", "sentence": "waits", "revision": 1},
        *({"what": "end", "changes": 10, "admissions": 2, "evictions": 1, "completed": 2} for _ in range(2)),
    ]
    lines = table(entries).splitlines()
    assert lines[1].split() == ["kill", "2", "5.00", "6.00", "0"]
    assert lines[2].startswith("4 jobs finished, 4 admissions and 2 evictions judged from 20 changes")
    assert lines[-1] == "1 stuck jobs, 0 breaches"


def test_a_history_that_was_kept_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is the same as on the way, also over several files, and the exit code tells it."""
    changes = [
        Change(revision=number, at=float(number), kind=KIND_OF[kind], obj=obj)
        for number, (kind, obj) in enumerate(CLEAN, start=1)
    ]
    write_history(tmp_path, 1, changes)
    assert judged_again(tmp_path).totals.completed == 1
    assert main(["--judge", str(tmp_path)]) == 0
    late = Change(revision=len(CLEAN) + 1, at=100.0, kind="Job", obj=job("b"))
    write_history(tmp_path, 2, [late])
    assert main(["--judge", str(tmp_path)]) == 1
    assert "stuck: ns/b: at rest: the Job has not come to its end" in capsys.readouterr().out


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the kinds that there are."""
    with pytest.raises(SystemExit):
        main(["--kinds", "kill,earthquake"])
    assert "earthquake is unknown; choose from kill, stop, cut, regain, starve" in capsys.readouterr().err
