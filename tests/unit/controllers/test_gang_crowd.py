"""A crowd: a look at a huge gang has the members that decide, and the numbers of all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kqueue.controllers import gang_crowd
from kqueue.controllers.gang_crowd import Crowd, Crowds, Need, need_of
from kqueue.jobs.gang.counts import member_counts
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.value import GangRole, GangSpec, GroupProblem, MemberCounts
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.store import Store
from tests.unit.controllers.test_gang_extras import KEY, NAME, ON, QUORUM
from tests.unit.jobs.pods import make_pod


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test reaches with few pods."""
    monkeypatch.setattr(gang_crowd, "MARGIN", 2)
    monkeypatch.setattr(gang_crowd, "CROWD", 4)


def member(name: str, *, mark: str = "", group: str = "g", role: str = "r", **more: Any) -> ManagedPod:
    pod = make_pod(name, role=role, **more)
    pod["metadata"]["labels"] |= {NAME: group, QUORUM: "2"}
    if mark:
        pod["metadata"].setdefault("annotations", {})["kqueue.dev/extra"] = mark
    return managed_pod(pod, ON)


def many(prefix: str, number: int, **more: Any) -> list[ManagedPod]:
    return [member(f"{prefix}{each}", born=each, **more) for each in range(number)]


def chosen(pods: list[ManagedPod], quorum: int = 0, **roles: int) -> set[str]:
    found = Crowd(pods).chosen(Need(quorum=quorum, roles=roles))
    return {key.removeprefix("team/") for key in found}


def test_the_oldest_that_wait_are_looked_at_as_many_as_the_quorum_and_a_margin() -> None:
    assert chosen(many("w", 9), quorum=3) == {"w0", "w1", "w2", "w3", "w4"}


def test_a_young_member_of_a_needed_role_is_looked_at() -> None:
    """A launcher that was created after all workers belongs to the quorum, and so does one that replaces a lost one."""
    pods = [*many("w", 9), member("launcher", role="l", born=99)]

    assert "launcher" not in chosen(pods, quorum=3)
    assert "launcher" in chosen(pods, quorum=3, l=1, r=2)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(member("x", gated=False, node="n", phase="Running", born=99), id="runs"),
        pytest.param(member("x", deleted=0, born=99), id="is-deleted-while-it-waits"),
        pytest.param(member("x", phase="Failed", born=99), id="has-failed"),
        pytest.param(member("x", mark="true", born=99), id="extra-that-waits"),
        pytest.param(member("x", mark="true", gated=False, phase="Running", node="n", born=99), id="extra-that-runs"),
        pytest.param(member("x", phase="Succeeded", gated=False, finalizer=False, born=99), id="has-ended"),
    ],
)
def test_members_that_wait_hide_no_member_in_another_state(pod: ManagedPod) -> None:
    assert "x" in chosen([*many("w", 9), pod], quorum=1)


def test_extras_that_wait_are_looked_at_before_those_that_run() -> None:
    """The number of extras that wait decides whether more are marked."""
    runs = many("e", 5, mark="true", gated=False, phase="Running", node="n")
    waits = [member("x0", mark="true", born=50), member("x1", mark="early", born=51)]

    assert chosen([*runs, *waits]) == {"x0", "x1"}


def test_extras_that_a_stop_has_reached_make_room_for_the_others() -> None:
    stopped = many("s", 5, mark="true", gated=False, phase="Running", node="n", deleted=0)
    runs = [member(f"e{each}", mark="true", gated=False, phase="Running", node="n", born=50) for each in range(2)]

    assert chosen([*stopped, *runs]) == {"e0", "e1"}


def test_members_that_have_ended_are_let_go_before_those_that_end() -> None:
    ending = many("s", 5, gated=False, phase="Running", node="n", deleted=0)
    ended = [member(f"f{each}", phase="Failed", gated=False, node="n", born=50) for each in range(2)]

    assert chosen([*ending, *ended]) == {"f0", "f1"}


STATES: Mapping[str, dict[str, Any]] = {
    "waits": {},
    "runs": {"gated": False, "phase": "Running", "node": "n"},
    "succeeded": {"gated": False, "phase": "Succeeded", "node": "n"},
    "failed": {"gated": False, "phase": "Failed", "node": "n"},
    "deleted": {"deleted": 0},
}


def test_seen_and_unseen_members_are_all_members() -> None:
    """After any change of state the numbers are those of a new crowd, and sum to those of all members."""
    crowd, pods = Crowd([]), dict[str, ManagedPod]()
    for number in range(12):
        for state, settings in STATES.items():
            new = member(f"p{number}", born=number, **settings)
            crowd.change(pods.get(new.key), new)
            pods[new.key] = new
            if state == list(STATES)[number % len(STATES)]:
                break
    seen = [pods[key] for key in crowd.chosen(Need(quorum=1))]
    others = [pod for pod in pods.values() if pod not in seen]

    assert crowd.unseen(seen) == Crowd(pods.values()).unseen(seen)
    assert crowd.unseen(seen).counts == member_counts(others) != MemberCounts()
    for pod in pods.values():
        crowd.change(pod, None)
    assert (crowd.chosen(Need(quorum=99)), crowd.unseen([]).counts) == ([], MemberCounts())


def test_a_gang_is_a_crowd_while_it_has_many_members() -> None:
    pods: Store[ManagedPod] = Store("pods")
    pods.add_index("group", lambda pod: [pod.group])
    crowds = Crowds(pods, "group")
    for pod in many("w", 4):
        pods.put(pod.key, pod)
    assert crowds.get(KEY) is None

    for pod in [*many("v", 3), member("other", group="h")]:
        pods.put(pod.key, pod)
    crowd = crowds.get(KEY)
    assert crowd is not None
    assert len(crowd.chosen(Need(quorum=99))) == 7

    left = member("w0", group="h")  # a pod may get another label
    pods.put(left.key, left)
    assert left.key not in crowd.chosen(Need(quorum=99))

    for each in range(1, 4):
        pods.remove(f"team/w{each}")
    assert crowds.get(KEY) is crowd
    pods.remove("team/v0")
    pods.remove("team/v1")
    assert crowds.get(KEY) is None


ROLES = (GangRole(name="l", minimum=1), GangRole(name="w", minimum=2, desired=5))


@pytest.mark.parametrize(
    ("wish", "counts", "total", "needed"),
    [
        pytest.param(None, {}, None, Need(), id="nothing-is-known"),
        pytest.param(GroupProblem("no"), {}, 7, Need(quorum=7), id="the-total-of-kueues-groups"),
        pytest.param(GangSpec(quorum=3), {}, None, Need(quorum=3), id="the-quorum"),
        pytest.param(GangSpec(quorum=3), {"r": 4}, None, Need(quorum=4, roles={"r": 4}), id="the-workload"),
        pytest.param(
            GangSpec(quorum=3, desired=6, roles=ROLES),
            {"l": 2},
            None,
            Need(quorum=6, roles={"l": 2, "w": 5}),
            id="roles",
        ),
        pytest.param(GroupProblem("no"), {}, 2**31, Need(quorum=20_000), id="a-bounded-total"),
        pytest.param(GroupProblem("no"), {"r": 30_000}, None, Need(quorum=20_000), id="bounded-counts"),
    ],
)
def test_as_many_members_are_needed_as_start_together(
    wish: GangSpec | GroupProblem | None, counts: Mapping[str, int], total: int | None, needed: Need
) -> None:
    assert need_of(wish, counts, total=total) == needed
