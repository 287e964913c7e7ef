"""`kqueue explain`: what it is asked for, what it prints, and what it says where no controller answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.cli.explain import _target
from kqueue.cli.explain_page import page, print_page
from kqueue.cli.status_alone import from_status
from kqueue.errors import ConfigError
from tests.unit.controllers.builders import condition, make_workload, reserved

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "evil\x1b[31m\nname"


@pytest.mark.parametrize(
    ("words", "target"),
    [
        pytest.param(["train"], ("workload", "train"), id="a name alone is a Workload's"),
        pytest.param(["workload", "train"], ("workload", "train"), id="kind and name"),
        pytest.param(["wl/train"], ("wl", "train"), id="kind slash name"),
        pytest.param(["Job/train"], ("job", "train"), id="a job, in whatever case"),
        pytest.param(["job.batch/train"], ("job.batch", "train"), id="a kind with its group"),
    ],
)
def test_what_is_asked_for(words: list[str], target: tuple[str, str]) -> None:
    """Kind and name."""
    assert _target(words) == target


@pytest.mark.parametrize("words", [["job/"], ["/train"], ["job", "a", "b"], ["a/b/c"], ["job/a", "b"]])
def test_what_cannot_be_read_is_refused_with_the_usage(words: list[str]) -> None:
    """Too few words, or too many."""
    with pytest.raises(ConfigError, match="workload NAME"):
        _target(words)


def text(answer: dict[str, Any]) -> str:
    return "\n".join("  " * line.depth + line.text for line in page(answer))


def make_answer(**pending: Any) -> dict[str, Any]:
    """One that waits for quota, with all that can be said of it."""
    column = {"resource": "cpu", "asked": "5", "free": "4", "most": "10", "nominal": "10", "used": "6", "lacking": "1"}
    holder = {"namespace": "ns", "name": "b", "clusterQueue": "team", "priority": 3, "amount": "6", "leaving": True}
    held = {"resource": "cpu", "workloads": [holder, {"hidden": True, "amount": "2"}], "others": 4, "foreign": "7"}
    domain = {"domain": ["b0", "r1"], "fit": 3, "total": 4, "short": {"resource": "cpu", "asked": "4", "free": "3"}}
    level = {"level": "rack", "asked": True, "unit": "pod", "domains": 9, "fit": 12, "total": 4, "best": [domain]}
    then = {"clusterQueue": "team", "flavors": {"main": ["gpu"]}, "placement": [[{"level": "rack", "domains": 1}]]}
    return {
        "metadata": {"namespace": "ns", "name": "a"},
        "owner": "job/train",
        "state": "Pending",
        "summary": "It waits: for a reason",
        "asOf": {"time": "T", "generation": 9, "leading": True},
        "localQueue": "main",
        "told": {"reason": "WaitingForQuota", "message": "said before", "secondsAgo": 8},
        "pending": {
            "clusterQueue": "team",
            "heldBackBy": [{"kind": "BackOff", "message": "not before noon"}],
            "position": {
                "clusterQueue": "team",
                "place": 3,
                "of": 12,
                "placeInLocalQueue": 1,
                "ofInLocalQueue": 2,
                "order": "priority and age",
                "budgets": [{"of": "ns", "message": "4 of 10 h of cpu are left until T"}],
                "line": "to be tried",
            },
            "lastTried": {
                "known": True,
                "secondsAgo": 7,
                "generation": 8,
                "changesSince": 2,
                "reason": "R",
                "byEqual": True,
            },
            "now": {
                "outcome": "Preempt",
                "targets": [{**holder, "reason": "InClusterQueue"}],
                "targetCount": 1,
                "lost": {"podSeconds": 9, "pods": 3, "message": "3s of 3 pods"},
                "at": "T3",
            },
            "blockers": [{"kind": "Quota", "message": "the first blocker"}],
            "flavors": [
                {
                    "podSets": ["main"],
                    "flavor": "gpu",
                    "fits": False,
                    "quota": [{**column, "heldBy": held}],
                    "levels": [level],
                },
                {"podSets": ["main"], "flavor": "spot", "fits": False, "problem": "a taint"},
            ],
            "wouldStartIf": [{"if": "node n was uncordoned", "then": then}],
            "search": {"complete": False, "message": "the search was stopped"},
            **pending,
        },
    }


def test_everything_that_is_known_is_on_the_page() -> None:
    """Each part, in words."""
    shown = text(make_answer())

    for fact in (
        "Workload ns/a of job/train: Pending",
        "LocalQueue main, of ClusterQueue team",
        "number 3 of 12 by priority and age; to be tried (number 1 of 2 in its LocalQueue)",
        "tried 7 s ago, by an equal workload: R; 2 changes since",
        "its status says 8 s ago: WaitingForQuota: said before",
        "BackOff: not before noon",
        "budget of ns: 4 of 10 h of cpu are left until T",
        "it would preempt 1, losing 3s of 3 pods:",
        "a workload that is safe from preemption now may be preempted for it from T3 on",
        "ns/b (ClusterQueue team, priority 3, leaving) (InClusterQueue)",
        "1. the first blocker",
        "gpu for pod set main: does not fit",
        "quota of cpu: asked 5, free 4; the queue uses 6 of its own 10, and could get 10 at most",
        "held by ns/b (ClusterQueue team, priority 3, leaving) 6, a workload of another namespace 2, 4 more, "
        "pods that are not placed by topology 7",
        "level rack (asked for): room for 12 pods in all 9 domains together, 4 are asked for; the best are",
        "b0/r1: room for 3; short of cpu: asked 4, free 3",
        "spot for pod set main: does not fit\n    a taint",
        "1. node n was uncordoned\n      then: ClusterQueue team, main on gpu, in 1 of rack",
        "the search was stopped",
        "as of T, answered by the replica that decides",
    ):
        assert fact in shown, fact


def test_nothing_is_on_the_page_three_times() -> None:
    """A blocker of a flavor stands with its flavor, and the status only where it gives another reason."""
    blockers = [
        {"kind": "Quota", "flavor": "gpu", "podSet": "main", "message": "pod set main: asks for 5 cpu"},
        {
            "kind": "Topology",
            "flavor": "gpu",
            "podSet": "main",
            "message": "4 pods do not fit",
            "excluded": "2 by taint a:NoSchedule",
            "unusable": ["n1", "n2"],
            "unusableCount": 3,
            "never": True,
        },
        {"kind": "NoCandidates", "message": "no workload may be preempted"},
    ]
    now = {"outcome": "NoCandidates", "reason": "WaitingForQuota", "message": "5 cpu asked"}
    shown = text(make_answer(blockers=blockers, now=now))

    assert "asks for 5 cpu" not in shown
    assert "4 pods do not fit" not in shown
    assert "its status says" not in shown
    assert "1. no workload may be preempted" in shown
    for fact in (
        "it would not fit with no workload running either",
        "nodes that cannot hold one pod: 2 by taint a:NoSchedule",
        "cordoned or not ready: n1, n2 and 1 more",
    ):
        assert shown.count(fact) == 1, fact


def test_a_stop_stands_with_the_command_that_ends_it() -> None:
    held = {
        "kind": "Suspended",
        "message": "ClusterQueue team is stopped",
        "command": "kqueue resume clusterqueue team",
    }
    shown = text(make_answer(heldBackBy=[held]))

    assert "  Suspended: ClusterQueue team is stopped\n    run: kqueue resume clusterqueue team" in shown


def test_a_former_eviction_is_not_said_to_be_of_now() -> None:
    answer = make_answer()
    answer["evictions"] = {"current": False, "message": "Makes room for ns/b", "reservedAgainSecondsAgo": 5}

    assert "evicted before it got quota again 5 s ago: Makes room for ns/b" in text(answer)


def test_where_no_change_helps_that_is_said() -> None:
    """An empty list would leave its reader in doubt."""
    assert "no change was found" in text(make_answer(wouldStartIf=[], search={"complete": True}))


def test_what_comes_from_the_cluster_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes and line ends in names are shown, not obeyed."""
    answer = make_answer(blockers=[{"kind": "Quota", "message": HOSTILE}])
    answer["metadata"]["name"] = HOSTILE
    print_page(answer)
    out = capsys.readouterr().out

    assert "\x1b" not in out
    assert "evil\\x1b[31m\\nname" in out


def test_one_that_runs_tells_how_good_its_places_are() -> None:
    """Two racks where one would do."""
    answer = make_answer()
    del answer["pending"], answer["told"]
    placement = {
        "levels": [
            {"level": "rack", "domains": 2, "fewestPossible": 1},
            {"level": "host", "domains": 2, "fewestPossible": 2},
        ],
        "domains": [{"domain": ["r1"], "pods": 1}],
        "moreDomains": 1,
        "lost": 1,
        "lostHosts": ["h9"],
    }
    pod_set = {"name": "main", "count": 2, "flavors": {"cpu": "gpu"}, "usage": {}, "placement": placement}
    borrows = {
        "usedByQueue": "12",
        "resource": "cpu",
        "flavor": "gpu",
        "borrowedByQueue": "2",
        "nominal": "10",
        "from": "cohort all",
    }
    answer |= {
        "state": "Running",
        "running": {"clusterQueue": "team", "podSets": [pod_set], "borrows": [borrows], "podsReady": False},
        "evictions": {"counts": [{"reason": "Preempted", "count": 2}]},
    }
    answer["running"]["podsNotRunning"] = {
        "count": 3,
        "time": "2026-01-01T00:00:00Z",
        "secondsAgo": 90,
        "pods": ["a", "b"],
        "sentences": [{"message": "0/4 nodes are available", "pods": 3}],
    }
    shown = text(answer)

    for fact in (
        "pod set main: 2 pods on gpu",
        "level rack: 2 domains, 1 would do now",
        "level host: 2 domains, as few as possible",
        "r1: 1",
        "and 1 more domains",
        "1 pod is on a host that is no part of the topology now: h9",
        "borrows: its queue uses 12 cpu of gpu, 2 more than its own 10, from cohort all",
        "its pods are not all ready",
        "3 pods do not run since 2026-01-01T00:00:00Z: a, b, ...",
        "the scheduler says of 3: 0/4 nodes are available",
        "Preempted 2 times",
    ):
        assert fact in shown, fact


@pytest.mark.parametrize(
    ("workload", "facts"),
    [
        pytest.param(
            make_workload(
                status={"conditions": [condition("QuotaReserved", "False", "WaitingForQuota", "too little")]}
            ),
            ["It waits: too little", "WaitingForQuota: too little"],
            id="one that waits",
        ),
        pytest.param(make_workload(), ["nothing more is known of it yet"], id="one of which nothing is said"),
        pytest.param(make_workload(status=reserved()), ["admitted by ClusterQueue team"], id="one that runs"),
        pytest.param(
            make_workload(status=reserved(condition("Evicted", reason="Preempted", message="for ns/x"))),
            ["It was evicted (Preempted)", "it comes back when its pods have ended"],
            id="one that leaves",
        ),
        pytest.param(
            make_workload(status={"conditions": [condition("Finished", reason="Succeeded", message="all done")]}),
            ["It has finished: all done"],
            id="one that has finished",
        ),
    ],
)
def test_without_a_controller_the_status_is_told_and_that_is_said(workload: dict[str, Any], facts: list[str]) -> None:
    """Less, and never empty."""
    answer = from_status(workload, why="nobody is there", now=NOW)
    shown = text(answer)

    for fact in facts:
        assert fact in shown, fact
    assert "no controller was asked" in shown
    assert "nobody is there" in answer["asOf"]["notes"][0]


def test_a_parent_shows_its_variants() -> None:
    """One line for each flavor, with the name and the reason where there are any."""
    waits = {"flavor": "reserved", "name": "v", "state": "Pending", "reason": "WaitingForQuota", "message": "no room"}
    shown = text(make_answer() | {"variants": [waits, {"flavor": "spot", "state": "Missing"}]})

    assert "Variants\n  reserved (v): Pending: WaitingForQuota: no room\n  spot: Missing" in shown
