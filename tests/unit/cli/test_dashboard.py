"""Summaries as people see them: rows, bars, pages that fit a terminal, and a screen that follows."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import signal
from typing import Any

import pytest
from rich.console import Console

from kqueue.cli import top
from kqueue.cli.dashboard import domains, queues
from kqueue.cli.dashboard.amounts import bar, chosen, short
from kqueue.cli.dashboard.live import follow
from kqueue.cli.dashboard.printing import print_queues, print_topologies
from kqueue.cli.dashboard.queues import Order
from kqueue.cli.dashboard.screen import queue_page, topology_page
from kqueue.clock import SystemClock
from kqueue.errors import NotServedError, UnreachableError
from kqueue.operations.grants import SUMMARIES
from kqueue.visibility.queue_summaries import QueueSummaries
from kqueue.visibility.topology_summaries import TopologySummaries
from tests.unit.visibility.worlds import GPU, Place, asked, hosts, local_queue, node

JSON = dict[str, Any]
NASTY = "ns/w\x1b[31m[red]"


@pytest.mark.parametrize(
    ("value", "resource", "text"),
    [
        (1536_000, "cpu", "1536"),
        (500, "cpu", "0.5"),
        (24_576_000_000, "cpu", "24.6M"),
        (200 * 2**40, "memory", "200Ti"),
        (200 * 2**40 - 1, "memory", "200Ti"),
        (3 * 2**29, "memory", "1.5Gi"),
        (0, "memory", "0"),
        (-3 * 2**30, "memory", "-3Gi"),
        (2000, GPU, "2000"),
        (250_000, GPU, "250k"),
    ],
)
def test_amounts_are_short(value: int, resource: str, text: str) -> None:
    assert short(value, resource) == text


@pytest.mark.parametrize(
    ("parts", "total", "drawn"),
    [
        pytest.param([(4, "#")], 8, "####····", id="half"),
        pytest.param([(1, "#"), (1, "+")], 1000, "#+······", id="what is there shows, however small"),
        pytest.param([(12, "#"), (4, "+")], 8, "########", id="more than there is"),
        pytest.param([(0, "#")], 0, "········", id="nothing of nothing"),
        pytest.param([(-5, "#")], 8, "········", id="less than nothing"),
    ],
)
def test_bars(parts: list[tuple[int, str]], total: int, drawn: str) -> None:
    assert bar(parts, total, 8) == drawn


@pytest.mark.parametrize(
    ("there", "wanted", "shown"),
    [
        (["cpu", GPU, "pods"], [], [GPU]),
        (["pods", "memory", "cpu"], [], ["cpu", "memory"]),
        (["pods", "tokens"], [], ["tokens"]),
        (["cpu", GPU], ["memory", "cpu"], ["cpu"]),
    ],
)
def test_devices_are_shown_where_there_are_some(there: list[str], wanted: list[str], shown: list[str]) -> None:
    assert chosen(there, wanted) == shown


async def queue_answer(*, waiting: str = "ns/w") -> JSON:
    """`team` has borrowed and somebody waits there, `stopped` is on hold, `idle` is full to a half."""
    place = Place(gpus=16, cohortName="company")
    place.add_queue("idle", gpus=16, cohortName="company")
    place.add_queue("stopped", gpus=8, stopPolicy="Hold")
    place.hold("a", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0")
    place.hold("b", "b1-r0-h0", queue="idle")
    place.queues.set_local_queue("ns/main", "team")
    place.wait(waiting, local_queue="ns/main", since=400)
    summaries = QueueSummaries(
        cache=place.cache,
        queues=place.queues,
        local_queues=lambda: [local_queue("ns/main", "team")],
        clock=place.clock,
    )
    return await summaries.view(asked())


async def topology_answer(*, broken: str = "b1-r1-h1", **params: Any) -> JSON:
    place = Place([*hosts(), broken])
    place.hold("a", "b0-r0-h0")
    place.foreign("b1-r0-h0", 4)
    place.cache.on_node(broken, node(broken, unschedulable=True))
    return await TopologySummaries(cache=place.cache, clock=place.clock).view(asked("dc", **params))


async def test_queues_as_rows() -> None:
    """Queues with most waiting workloads come first; gangs that do not run yet count as waiting."""
    answer = await queue_answer()
    team = next(item for item in answer["items"] if item["metadata"]["name"] == "team")
    team["gangs"] |= {"gathering": 1, "waiting": 1, "starting": 1, "running": 2}
    rows = queues.rows(answer)
    assert [row.cells() for row in rows] == [
        ("team", "company", "Active", "1", "0", "1", "6m40s", "3", "2", "gpu", GPU, "24", "16", "8"),
        ("idle", "company", "Active", "0", "0", "1", "-", "0", "0", "gpu", GPU, "8", "16", ""),
        ("stopped", "-", "Stopped", "0", "0", "0", "-", "0", "0", "gpu", GPU, "0", "8", ""),
    ]


async def test_gangs_are_shown_where_there_are_some() -> None:
    """A cluster without gangs gets no columns of zeros on the screen."""
    answer = await queue_answer()
    without = drawn(queue_page(answer, [], Order.NAME))
    answer["items"][0]["gangs"] |= {"starting": 1, "running": 2}
    shown = drawn(queue_page(answer, [], Order.NAME))
    assert "gangs" not in without.lower()
    assert "gangs: 1 starting, 2 running" in shown
    assert "GANGS RUN" in shown


def test_cohorts_as_a_tree() -> None:
    """Children under their parents, wherever these stand in the answer."""

    def cohort(name: str, parent: str = "", **amounts: str) -> JSON:
        columns = [{"flavor": "gpu", "resource": GPU, "nominal": "0", **amounts}] if amounts else []
        return {"name": name, "parent": parent, "clusterQueues": 2, "resources": columns}

    cohorts = [cohort("b"), cohort("a", reserved="8", quota="24"), cohort("c", "b", reserved="0", quota="8")]
    assert queues.cohort_rows({"cohorts": cohorts}) == [
        ("a", "2", "gpu", GPU, "8", "24"),
        ("b", "2", "", "", "", ""),
        ("  c", "2", "gpu", GPU, "0", "8"),
    ]


async def test_who_holds_a_domain_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the user may not see are counted."""
    summary = await topology_answer(domain="b0")
    summary["flavors"][0]["holders"]["others"] = {"workloads": 2, "pods": 5}
    print_topologies([summary], [])
    out = capsys.readouterr().out
    assert re.search(r"HELD BY +CLUSTERQUEUE +PODS\nns/a +team +1\nand 2 other workloads +5\n", out)
    assert "and 2 other workloads" in plain(drawn(topology_page(summary, [])))


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (Order.PENDING, ["team", "idle", "stopped"]),
        (Order.WAIT, ["team", "idle", "stopped"]),
        (Order.USED, ["team", "idle", "stopped"]),
        (Order.NAME, ["idle", "stopped", "team"]),
    ],
)
async def test_the_order_of_queues(order: Order, names: list[str]) -> None:
    assert [row.name for row in queues.rows(await queue_answer(), order=order)] == names


async def test_domains_as_a_tree() -> None:
    """With lines that lead from parents to children, or indented for programs."""
    (flavor,) = (await topology_answer(level="3", domain="b1"))["flavors"]
    assert [row.domain for row in domains.rows(flavor, guides=True)] == [
        "b1", "├─ r0", "│  ├─ b1-r0-h0", "│  └─ b1-r0-h1", "└─ r1", "   └─ b1-r1-h0",
    ]  # fmt: skip
    rows = domains.rows(flavor)
    assert [row.domain for row in rows][:3] == ["b1", "  r0", "    b1-r0-h0"]
    assert rows[0].cells() == ("b1", "3", "2", "1", GPU, "20", "0", "4", "24")
    assert rows[0].bar == "▒▒▒·············"


async def test_several_resources_take_a_row_each() -> None:
    (flavor,) = (await topology_answer(level="1"))["flavors"]
    rows = domains.rows(flavor, ["cpu", GPU])
    assert [(row.domain, row.resource) for row in rows] == [("b0", "cpu"), ("", GPU), ("b1", "cpu"), ("", GPU)]


def drawn(page: Any, *, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, highlight=False, emoji=False).print(page)
    return out.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize("most", [4, 5, 6, 40])
async def test_pages_are_cut_to_the_screen(most: int) -> None:
    """And say how much there is besides."""
    answer = await queue_answer()
    page = plain(drawn(queue_page(answer, [], Order.PENDING, most=most)))
    assert len(page.splitlines()) <= most
    assert ("more ClusterQueues" in page) == (most < 5)
    tree = plain(drawn(topology_page(await topology_answer(), [], most=most, whole=False)))
    assert len(tree.rstrip().splitlines()) <= most
    assert ("more domains" in tree) == (most < 8)


@pytest.mark.parametrize(
    ("width", "has", "has_not"),
    [
        pytest.param(160, ["COHORT", "BORROWED", "IN USE", "FOREIGN"], [], id="room for all"),
        pytest.param(80, ["STATUS", "PENDING", "WAIT", "RESOURCE", "HELD", "FREE", "TOTAL"], ["COHORT  ", "IN USE"], id="80 columns"),
        pytest.param(50, ["PENDING", "WAIT", "HELD", "FREE"], ["STATUS", "IN USE", "FOREIGN"], id="50 columns"),
    ],
)  # fmt: skip
async def test_a_narrow_terminal_does_without_columns(width: int, has: list[str], has_not: list[str]) -> None:
    """Those that are left can be read, and no line is longer than the terminal."""
    answer = await queue_answer()
    answer["cohorts"] = []
    pages = queue_page(answer, [], Order.PENDING), topology_page(await topology_answer(), [], whole=False)
    texts = [plain(drawn(page, width=width)) for page in pages]
    tables = "\n".join(text.split("\n", 1)[1] for text in texts)
    assert [word for word in has if word not in tables] == []
    assert [word for word in has_not if word in tables] == []
    assert "…" not in tables
    assert max(len(line) for line in tables.splitlines()) <= width


@pytest.mark.parametrize("height", [16, 40])
async def test_a_refusal_stands_whole_below_the_queues(height: int) -> None:
    """What an administrator would have to run is not cut off the screen."""
    answer = await queue_answer()
    answer["items"] *= 20
    refusal = "\n".join(["no", SUMMARIES.words("ann")])
    page = top._pages(top._Order.PENDING, [])({"queues": answer, "refused": [refusal]}, height)
    lines = plain(drawn(page, width=240)).rstrip().splitlines()
    assert len(lines) <= height
    assert [line.strip() for line in lines[-len(refusal.splitlines()) :]] == [s.strip() for s in refusal.splitlines()]


async def test_a_page_names_what_is_wrong() -> None:
    """Why a queue admits nothing, and which nodes get no pods."""
    assert "stopped: its stopPolicy is Hold" in plain(drawn(queue_page(await queue_answer(), [], Order.PENDING)))
    page = plain(drawn(topology_page(await topology_answer(), [])))
    assert re.search(r"b1-r1-h1 +b1/r1 +it is cordoned", page)
    assert re.search(r"ROOM INSIDE ONE +1 NODE +2 NODES\n", page)


async def test_names_can_neither_drive_a_terminal_nor_be_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "b1-r1\x1b[2J-[bold]h9"
    summary, answer = await topology_answer(broken=nasty), await queue_answer()
    answer["items"][0]["metadata"]["name"] = answer["items"][0]["message"] = NASTY
    answer["items"][0]["active"], answer["items"][0]["reason"] = False, NASTY
    pages = drawn(topology_page(summary, [])), drawn(queue_page(answer, [], Order.PENDING))
    print_topologies([summary], [])
    print_queues(answer, [], Order.PENDING)
    for text in (*pages, capsys.readouterr().out):
        assert "\\x1b" in text
        assert "\x1b[2J" not in text
        assert "\x1b[31m[red]" not in text


async def test_plain_columns_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """As kubectl's: capitals, one line per row, no bars."""
    print_queues(await queue_answer(), [], Order.NAME)
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:4] == ["NAME", "COHORT", "STATUS", "PENDING"]
    assert "\x1b" not in out
    assert re.search(r"ns +main +team +1 +1\n", out)
    print_topologies([await topology_answer()], [])
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Topology dc, flavor gpu: 7 nodes, 1 more left out (2 blocks, 4 racks)"
    assert re.search(r"\n  r1 +1 +1 +1 +nvidia.com/gpu +8 +0 +0 +8\n", out)


# --- the screen that follows -------------------------------------------------------------------------------------


class Answers:
    """Counts, and fails when it is told to."""

    def __init__(self, *fails: int) -> None:
        self.count, self._fails = 0, fails
        self.asked = asyncio.Event()

    async def __call__(self) -> int:
        self.count += 1
        self.asked.set()
        if self.count in self._fails:
            raise UnreachableError("no \x1b[31manswer")
        return self.count

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.count < count:
                self.asked.clear()
                await self.asked.wait()


async def following(answers: Answers, out: io.StringIO) -> asyncio.Task[None]:
    console = Console(file=out, width=60, height=20, force_terminal=True)
    call = follow(
        answers, lambda n, height: f"answer {n} on {height}", console=console, clock=SystemClock(), seconds=0.02
    )
    return asyncio.create_task(call)


async def test_the_screen_follows_until_ctrl_c() -> None:
    """An answer that does not come leaves the last one, and says so; the next one is shown again."""
    answers, out = Answers(2), io.StringIO()
    task = await following(answers, out)
    await answers.until(4)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(task, 10)

    shown = plain(out.getvalue())
    assert "answer 1 on 18" in shown
    assert re.search(r"no answer since [0-9:]{8}: no .x1b\[31manswer", shown)
    assert "answer 3 on 18" in shown
    assert "\x1b[?1049l" in out.getvalue()  # the terminal's own screen is back


async def test_q_ends_it_and_the_terminal_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are read one by one meanwhile."""
    import termios

    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with os.fdopen(slave, "r") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        answers = Answers()
        task = await following(answers, io.StringIO())
        await answers.until(2)
        assert not termios.tcgetattr(terminal.fileno())[3] & termios.ICANON
        os.write(master, b"xq")
        await asyncio.wait_for(task, 10)
        assert termios.tcgetattr(terminal.fileno()) == before
    os.close(master)


async def test_without_a_first_answer_there_is_no_screen() -> None:
    """The user gets the error, on a terminal that was not touched."""

    async def nobody() -> Any:
        raise NotServedError("nobody answers")

    out = io.StringIO()
    console = Console(file=out, force_terminal=True)
    with pytest.raises(NotServedError):
        await follow(nobody, lambda *_: "", console=console, clock=SystemClock(), seconds=0.02)
    assert out.getvalue() == ""
