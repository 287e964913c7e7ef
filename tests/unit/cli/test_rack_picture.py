"""Racks as text: who holds each host now, after the moves of a plan, and after gangs that start one by one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.cli.defrag_page import print_racks
from kqueue.cli.rack_picture import MOST_DOMAINS, as_text, draw, print_picture
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.errors import NotFoundError
from kqueue.operations.defrag.reading import state_of
from kqueue.runtime.client import Client
from kqueue.sandbox import Sandbox
from kqueue.state.defrag.document import plan_object
from kqueue.state.defrag.hosts import FREE, NO_ROOM, SEVERAL, Cells, Hosts, name_of, plan_picture
from kqueue.state.defrag.planning import AskedGoal
from tests.unit.cli.defrag_cluster import GPU, NOW, answered, cluster, workload
from tests.unit.cli.test_defrag import write

U, V1, V2, BIG = "team-b/u", "team-a/v1", "team-a/v2", "team-a/big"


def lines_of(*tables: tuple[str, Cells], names: dict[str, str] | None = None, width: int = 80) -> list[str]:
    """A picture without styles."""
    return ["".join(text for text, _ in line) for line in draw(tables, names or {}, width=width)]


# --- the state


def test_a_plan_is_drawn_before_and_after_its_moves() -> None:
    """The workload that moves is on the free hosts of its target, and the gang in the domain that it leaves."""
    objects = cluster()
    picture = plan_picture(state_of(objects, NOW), plan_object(answered(objects)))

    assert picture.before == {
        ("a",): [V1] * 3 + [V2] * 3 + [FREE] * 10,
        ("b",): [U] * 10 + [FREE] * 6,
    }
    assert picture.after == {("a",): [V1] * 3 + [V2] * 3 + [U] * 10, ("b",): [BIG] * 16}
    assert list(picture.names)[:2] == [BIG, U]


def test_a_goal_of_nodes_leaves_them_empty() -> None:
    objects = cluster()
    made = plan_object(answered(objects, AskedGoal(flavor="gpu", level="rack", nodes=16)))
    after = plan_picture(state_of(objects, NOW), made).after

    assert after is not None
    assert after[("b",)] == [FREE] * 16


def test_several_moves_are_drawn_in_their_order() -> None:
    """Without the consent of one workload the two others move, each to the domain that the plan names."""
    objects = cluster(u="Never")
    made = plan_object(answered(objects))
    after = plan_picture(state_of(objects, NOW), made).after

    assert after is not None
    for move in made["status"]["moves"]:
        assert after[tuple(move["to"])].count(move["workload"]) == move["pods"]
    assert after[("a",)] == [BIG] * 16


def test_moves_that_are_not_possible_any_more_are_not_drawn() -> None:
    """Meanwhile another workload has taken a host of the target."""
    objects = cluster()
    made = plan_object(answered(objects))
    changed = replace(objects, workloads=[*objects.workloads, workload("late", "a", 6, 1)])
    picture = plan_picture(state_of(changed, NOW), made)

    assert picture.after is None
    assert picture.before[("a",)].count("team-a/late") == 1
    assert list(picture.before) == [("a",), ("b",)]


@pytest.mark.parametrize(
    "moves", [[("team-a/nobody", ("a",))], [(U, ("c",))]], ids=["unknown-workload", "another-target"]
)
def test_a_move_without_room_changes_nothing(moves: list[tuple[str, tuple[str, ...]]]) -> None:
    hosts = Hosts(state_of(cluster(), NOW), "gpu")
    before = hosts.cells(1)

    assert not hosts.move(moves, out_of=("b",))
    assert not hosts.move([(U, ("a",))], out_of=("nowhere",))
    assert hosts.cells(1) == before
    assert hosts.move([(U, ("a",))], out_of=("b",))


def test_gangs_start_one_by_one_in_the_tightest_rack() -> None:
    """5 and 5 take half of each of two racks of 10 and 9, and 9 have no room then."""
    racks = [workload("x", "a", 0, 6), workload("y", "b", 0, 7), workload("z", "c", 0, 16)]
    gangs = [workload(name, None, 0, pods) for name, pods in (("five", 5), ("other", 5), ("nine", 9))]
    hosts = Hosts(state_of(replace(cluster(), workloads=[*racks, *gangs]), NOW), "gpu")

    assert [hosts.start(f"team-a/{name}") for name in ("five", "other", "nine", "nobody")] == [
        True,
        True,
        False,
        False,
    ]
    cells = hosts.cells(1)
    assert (cells[("a",)].count("team-a/other"), cells[("b",)].count("team-a/five")) == (5, 5)


def test_a_host_may_have_several_workloads_or_other_pods() -> None:
    """Pods without quota have the room of one host; two workloads share another one."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "x", "uid": "p"},
        "spec": {"nodeName": "a15", "containers": [{"name": "c", "resources": {"requests": {GPU: "8"}}}]},
        "status": {"phase": "Running"},
    }
    objects = replace(cluster(), workloads=[workload("x", "a", 0, 1), workload("y", "a", 0, 2)], pods=[pod])

    assert Hosts(state_of(objects, NOW), "gpu").cells(1)[("a",)] == [
        SEVERAL,
        "team-a/y",
        *[FREE] * 13,
        NO_ROOM,
    ]


def test_an_unknown_flavor_is_refused() -> None:
    with pytest.raises(NotFoundError, match="no ResourceFlavor cpu"):
        Hosts(state_of(cluster(), NOW), "cpu")


def test_a_workload_is_named_by_its_job() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    obj = workload("job-train-1b3a7", None, 0, 1)
    obj["metadata"]["ownerReferences"] = [owner]
    state = state_of(replace(cluster(), workloads=[obj]), NOW)

    assert name_of(state, "team-a/job-train-1b3a7") == "team-a/train"
    assert name_of(state, "team-a/gone") == "team-a/gone"


# --- the text


def test_tables_stand_beside_each_other_with_a_legend() -> None:
    """A letter of the name for each workload, another one where the first is taken."""
    now: Cells = {("a",): ["n/train", "n/train", FREE], ("b",): ["n/test", SEVERAL, NO_ROOM]}
    then: Cells = {("a",): [FREE] * 3, ("b",): ["n/test", "n/train", "n/train"]}

    assert lines_of(("now", now), ("then", then), names={"n/train": "train"}) == [
        "      now   then",
        "  a   TT.   ...",
        "  b   E+#   ETT",
        "",
        "  T train   E n/test   . free   + several workloads   # no room",
    ]


def test_a_narrow_terminal_has_the_tables_one_after_the_other_and_long_racks_in_pieces() -> None:
    cells: Cells = {("a",): ["n/x"] * 20 + [FREE] * 6}

    lines = lines_of(("now", cells), ("then", cells), width=26)
    assert lines[:4] == ["  now", "  a   " + "X" * 20, "      ......", "  then"]
    assert all(len(line) <= 26 for line in lines)


def test_a_picture_of_two_racks_of_sixteen_fits_into_eighty_columns() -> None:
    objects = cluster()
    picture = plan_picture(state_of(objects, NOW), plan_object(answered(objects)))
    assert picture.after is not None

    lines = lines_of(("now", picture.before), ("after the moves", picture.after), names=dict(picture.names))
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


def test_many_workloads_and_domains_have_limits() -> None:
    """No two workloads have the same letter, until none is left."""
    cells: Cells = {(f"r{n:02}",): [f"n/w{n}"] for n in range(80)}

    lines = lines_of(("", cells))
    letters = [line.split()[1] for line in lines[:MOST_DOMAINS]]
    assert len(set(letters)) == MOST_DOMAINS
    assert lines[MOST_DOMAINS] == f"  and {80 - MOST_DOMAINS} more domains"
    many: Cells = {(f"r{n}",): [f"n/w{10 * n + m}" for m in range(10)] for n in range(8)}
    rows = "".join(lines_of(("", many))[:8]).replace(" ", "")
    assert rows.count("*") == 80 - 62


def test_racks_of_one_name_in_two_blocks_have_their_whole_path() -> None:
    lines = lines_of(("", {("b0", "r0"): [FREE], ("b1", "r0"): [FREE], ("b1", "r1"): [FREE]}))

    assert [line.split()[0] for line in lines[:3]] == ["b0/r0", "b1/r0", "b1/r1"]


def test_names_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_picture(draw([("", {("a\x1b[2J",): ["n/\x1b[31mx"]})], {}))

    assert "\x1b" not in capsys.readouterr().out


def test_colours_repeat_what_the_letters_say() -> None:
    """A piece of each workload has a style of its own."""
    (line, *_) = draw([("", {("a",): ["n/x", "n/y", FREE]})], {})

    assert as_text(line).plain == "  a   XY."
    assert len({style for text, style in line if text.strip()}) == 4


@pytest.mark.parametrize(
    ("phase", "then"), [("Proposed", True), ("Approved", True), ("Running", False), ("Done", False)]
)
def test_the_racks_after_the_moves_are_drawn_before_the_first_one(
    phase: str, then: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = cluster()
    picture = plan_picture(state_of(objects, NOW), plan_object(answered(objects)))
    print_racks(picture, phase)
    text = capsys.readouterr().out

    assert ("after the moves" in text, "has changed" in text) == (then, False)
    print_racks(replace(picture, after=None), phase)
    assert ("has changed" in capsys.readouterr().out) is then


# --- the command


async def test_the_command_draws_a_plan(
    sandbox: Sandbox, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new plan and a stored one, and never in the output for programs."""
    kubeconfig = tmp_path / "kubeconfig"
    sandbox.write_kubeconfig(kubeconfig)
    await write(client, cluster())

    async def call(*words: str) -> str:
        code = await asyncio.to_thread(run, ["defrag", *words, "--kubeconfig", str(kubeconfig)])
        assert code == 0
        return capsys.readouterr().out

    drawn = "  a   VVV222..........   VVV222UUUUUUUUUU\n  b   UUUUUUUUUU......   BBBBBBBBBBBBBBBB\n"
    assert drawn in await call("plan", "--for", "team-a/big", "--save", "--picture")
    assert drawn not in await call("plan", "--for", "team-a/big")
    assert "UUUU" not in await call("plan", "--for", "team-a/big", "--picture", "-o", "yaml")
    (plan,) = await _plans(client)
    assert drawn in await call("show", plan, "--picture")
    assert "UUUU" not in await call("show", plan)


async def _plans(client: Client) -> list[Any]:
    return [plan["metadata"]["name"] for plan in await client.list_json(DEFRAGMENTATION_PLANS)]
