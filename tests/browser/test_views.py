"""The tables, plots, planned starts and questions of the page, as a person uses them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.answers import GPU, life, queues, start, starts, topology_list, topology_map, trends, workload
from tests.browser.desk import Desk

pytestmark = pytest.mark.browser

MANY = 20_000


def test_a_table_of_twenty_thousand_rows_has_the_visible_ones(desk: Desk, page: Page) -> None:
    """The last row is reached by scrolling; rows may have several lines; a row keeps the focus when news arrive."""
    items = [
        workload(f"job-{n:05}", created=f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z")
        for n in range(MANY)
    ]
    items[2]["message"] = "many words " * 60
    desk.answers.feeds["workloads"] = {"items": items, "left": 0}
    desk.open(page, "#/workloads")

    table = page.get_by_role("table", name="Workloads")
    expect(table).to_contain_text("20000 of 20000 workloads")
    assert table.get_attribute("aria-rowcount") == str(MANY + 1)
    assert page.locator("tbody tr").count() < 100
    page.evaluate("document.querySelector('tbody a').focus()")
    desk.answers.feeds["workloads"] = {"items": [{**items[0], "message": "news"}, *items[1:]], "left": 0}
    expect(page.locator("tbody")).to_contain_text("news", timeout=20_000)  # workloads are asked for every 5 s
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "ns/Job/job-00001"

    for _ in range(3):  # heights beyond the visible rows are guesses
        page.keyboard.press("End")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
    last = page.get_by_role("link", name="ns/Job/job-19999")
    expect(last).to_be_in_viewport()
    assert page.locator(f"tr[aria-rowindex='{MANY + 1}']").count() == 1
    assert page.locator("tbody tr").count() < 100


def test_a_search_of_a_long_table_shows_what_it_finds(desk: Desk, page: Page) -> None:
    """From far below, too."""
    desk.answers.feeds["workloads"] = {"items": [workload(f"job-{n:05}") for n in range(5_000)], "left": 0}
    desk.open(page, "#/workloads")
    expect(page.locator("tbody tr").nth(3)).to_be_visible()
    page.evaluate("scrollTo(0, 90000)")

    page.keyboard.press("/")
    page.keyboard.type("job-00042")

    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="ns/Job/job-00042")).to_be_in_viewport()


def test_planned_starts_are_bars_on_one_axis(desk: Desk, page: Page) -> None:
    """The next one first; a bar begins at p50 and ends at p90, and a start that is not known has its reason instead."""
    where: dict[str, Any] = {"domains": [{"domain": ["b0", "r1"], "pods": 4}], "moreDomains": 2}
    after = {"after": {"workloads": ["ns/old"], "others": 1}}
    desk.answers.feeds["starts"] = starts(
        start("unknown", None, message="it is held back"),
        start("late", 600, 1200, **where, **after),
        start("open", 300, message="it does not start within 24 h"),
    )
    desk.open(page, "#/starts")

    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    assert [rows.nth(n).locator("a").inner_text() for n in range(3)] == ["ns/open", "ns/late", "ns/unknown"]
    expect(rows.nth(0)).to_contain_text("5 min at the earliest")
    expect(rows.nth(1)).to_contain_text("10 min to 20 min")
    expect(rows.nth(1)).to_contain_text("in b0/r1 (4) and 2 more; after ns/old, 1 other")
    expect(rows.nth(2)).to_contain_text("it is held back")
    bars = page.evaluate(
        "[...document.querySelectorAll('svg.span')].map((one) => [...one.querySelectorAll('rect')].map((r) => [+r.getAttribute('x'), +r.getAttribute('width')])[1])"
    )
    assert bars == [[100, 300], [200, 200]]


def test_start_times_that_are_not_known_yet_say_so(desk: Desk, page: Page) -> None:
    """The controller computes them when somebody asks."""
    desk.answers.feeds["starts"] = {"items": [], "message": "start times are being computed; ask again in some seconds"}
    desk.open(page, "#/starts")

    expect(page.locator("main")).to_have_text("start times are being computed; ask again in some seconds")


def test_trends_are_curves_with_their_last_values(desk: Desk, page: Page) -> None:
    """A plot for each kind of number, with eight curves at most; a search finds the others."""
    desk.answers.feeds["trends"] = trends(queues=12)
    desk.open(page, "#/trends")

    plots = page.get_by_role("img", name="Now")
    expect(plots).to_have_count(5)
    waiting = page.locator("section").filter(has_text="Waiting workloads by ClusterQueue")
    expect(waiting).to_contain_text("queue-11: 360")
    expect(waiting).to_contain_text("and 4 more")
    expect(page.locator("section").last).to_contain_text("dc/gpu: 125.0 %")
    pixels = page.evaluate(INK, "section:nth-of-type(1) .plot canvas")
    assert min(pixels) > 20, pixels

    page.keyboard.press("/")
    page.keyboard.type("serving")
    expect(waiting).to_contain_text("serving: 60")
    expect(waiting).not_to_contain_text("queue-11")


INK = """(selector) => {
  const canvas = document.querySelector(selector);
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const style = getComputedStyle(document.documentElement);
  const wanted = [1, 2, 3, 4].map((n) => style.getPropertyValue(`--curve${n}`).trim());
  return wanted.map((hex) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    let count = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255) count++;
    return count;
  });
}"""
"""Count the pixels of the first four curves."""


def test_a_workload_has_its_life_below_its_explanation(desk: Desk, page: Page) -> None:
    """States are bars in proportion to their time; events say what happened."""
    desk.answers.explanations["ns/job"] = {"lines": [["it waits", 0, ""]]}
    desk.answers.lives["ns/job"] = {**life(), "problem": "events are not shown: forbidden"}
    desk.open(page, "#/workload/ns/job")

    expect(page.locator("main")).to_contain_text("it waits")
    image = page.get_by_role("img", name="Pending 10 min, then Reserved 10 min, then Finished at")
    expect(image).to_be_visible()
    widths = page.evaluate("[...document.querySelectorAll('svg.life rect')].map((one) => one.getBBox().width)")
    assert widths == [450, 450, 2]
    expect(page.get_by_role("row").nth(3)).to_contain_text("preempted")
    expect(page.get_by_role("alert")).to_have_text("events are not shown: forbidden")


def test_a_rack_is_drained_in_thought_by_keys_alone(desk: Desk, page: Page) -> None:
    """The answer is a dialog, which Escape closes; the focus is where it was."""
    desk.answers.feeds |= {"topologies": topology_list("dc"), "map/dc": topology_map()}
    desk.answers.what_if_lines = [["1 would start, 2 would be evicted", 0, "bold"]]
    desk.open(page, "#/topology/dc")
    page.get_by_role("img", name="Map of flavor gpu").focus()
    page.keyboard.press("End")
    expect(page.locator(".picked")).to_contain_text("b1/r1/b1-r1-h3")

    for _ in range(2):  # the block's button, then the rack's
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    dialog = page.get_by_role("dialog", name="What if: b1/r1 is drained?")
    expect(dialog).to_contain_text("1 would start, 2 would be evicted")
    assert desk.answers.questions == [{"drains": ["b1/r1"]}]
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent") == "What if b1/r1 were drained?"


def test_another_quota_is_asked_about_in_a_dialog(desk: Desk, page: Page) -> None:
    """The field begins with the present amount, the dialog shows an error in words, and new data do not close it."""
    desk.answers.feeds["queues"] = queues()
    desk.open(page)
    page.get_by_role("button", name="What if research had another quota of gpu nvidia.com/gpu?").click()
    amount = page.get_by_label("Quota of gpu.nvidia.com/gpu in research")
    assert amount.input_value() == "64"

    amount.fill("128")
    page.keyboard.press("Enter")

    expect(page.get_by_role("dialog")).to_contain_text("gpu.nvidia.com/gpu of research is 128")
    column = {"clusterQueue": "research", "column": "gpu.nvidia.com/gpu", "value": "128"}
    expect(page.get_by_role("dialog").get_by_role("button", name="Close")).to_be_focused()
    assert desk.answers.questions == [{"quotas": [column]}]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_of_5000_hosts_has_the_colours_of_its_state(desk: Desk, page: Page, theme: str) -> None:
    """Region by region of the picture, against the data from which it was drawn, in both themes."""
    shown = topology_map(10, 25, 20)
    leaves = shown["flavors"][0]["leaves"]
    leaves["unbound"] = [int(holder >= 0 and number % 3 == 0) for number, holder in enumerate(leaves["holder"])]
    desk.answers.feeds |= {"topologies": topology_list("dc"), "map/dc": shown}
    page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
    desk.open(page, "#/topology/dc")
    expect(page.locator("h2")).to_contain_text(f"5000 hosts; {GPU}: 37500 free, 2000 held and 500 foreign of 40000")
    expect(page.locator("h2")).to_contain_text(f"{sum(leaves['unbound'])} reserved and not running")

    found = page.evaluate(REGIONS, shown["flavors"][0])

    wanted = ["foreign free" if foreign else "free" for foreign in leaves["foreign"]]
    for number, held in enumerate(leaves["held"]):
        if held:
            wanted[number] = "ground reserved" if leaves["unbound"][number] else "held"
    assert len(found) == 5_000
    assert [(leaves["name"][n], one) for n, one in enumerate(found) if one != wanted[n]][:5] == []


REGIONS = """async (flavor) => {
  const { layout } = await import('/static/modules/layout.js');
  const made = layout(flavor, document.querySelector('main').clientWidth - 32, Math.max(320, innerHeight - 260));
  const canvas = document.querySelector('canvas[role=img]');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const style = getComputedStyle(document.documentElement);
  const names = ['free', 'held', 'reserved', 'foreign', 'ground'];
  const colours = names.map((name) => style.getPropertyValue(`--${name}`).trim());
  const part = (value) => value.toString(16).padStart(2, '0');
  return Array.from(made.x, (x, host) => {
    const found = new Set();
    for (let y = made.y[host]; y < made.y[host] + made.cell - 1; y++) {
      const at = (y * canvas.width + x + 2) * 4;
      found.add(names[colours.indexOf(`#${part(data[at])}${part(data[at + 1])}${part(data[at + 2])}`)]);
    }
    return [...found].sort().join(' ');
  });
}"""
"""Return the names of the colours on a line through each host's cell."""


def test_a_running_workload_can_be_asked_away(desk: Desk, page: Page) -> None:
    """A waiting one cannot; the question names the Workload, and its answer is shown."""
    desk.answers.what_if_lines = [["1 would start", 0, ""]]
    for name, explanation in (("runs", {"running": {"pods": 4}}), ("waits", {})):
        desk.answers.explanations[f"ns/{name}"] = {"lines": [["a line", 0, ""]], "explanation": explanation}
    desk.open(page, "#/workload/ns/waits")
    expect(page.get_by_text("a line")).to_be_visible()
    expect(page.get_by_role("button", name="What if it ended now")).to_have_count(0)

    desk.open(page, "#/workload/ns/runs")
    page.get_by_role("button", name="What if it ended now").click()

    expect(page.get_by_role("dialog")).to_contain_text("1 would start")
    assert desk.answers.questions == [{"ends": ["ns/runs"]}]
