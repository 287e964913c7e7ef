"""The page in a real browser: its views, its keys, hostile names, and who can read it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.answers import GPU, life, queues, start, starts, topology_list, topology_map, trends, workload
from tests.browser.desk import Desk
from tools import browser as needed

pytestmark = pytest.mark.browser

SHOWN = {"#/starts": "svg.span", "#/trends": ".u-wrap", "#/workload/ns/job-b": "svg.life"}
"""What a view has when it is drawn, beside any element."""
HOSTILE = '<img src=x onerror="document.title=1">\u202e\u0007{{1}}'


def filled(desk: Desk) -> None:
    answers = desk.answers
    answers.feeds["queues"] = queues()
    answers.feeds["workloads"] = {"items": [workload("job-a", state="Running"), workload("job-b")], "left": 0}
    answers.feeds["topologies"] = topology_list("dc", "other")
    answers.feeds["map/dc"] = answers.feeds["map/other"] = topology_map()
    lines = [["Workload ns/job-b: Pending", 0, "bold"], ["it waits", 1, ""]]
    answers.explanations["ns/job-b"] = {"lines": lines}
    answers.lives["ns/job-b"] = life()
    answers.feeds["starts"] = starts(start("job-b", 60, 600), start("job-c", None, message="not in sight"))
    answers.feeds["trends"] = trends()


def test_queues_are_a_tree_with_what_is_borrowed(desk: Desk, page: Page) -> None:
    """A stopped queue says so in words."""
    filled(desk)
    desk.open(page)

    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    assert [rows.nth(n).locator("td").first.inner_text().strip().split("\n")[0] for n in range(3)] == [
        "company cohort",
        "research",
        "serving",
    ]
    expect(rows.nth(2)).to_contain_text("Stopped: it is stopped")
    expect(rows.nth(1)).to_contain_text("32")


def test_news_arrive_without_a_click(desk: Desk, page: Page) -> None:
    """An answer that changes is drawn, and an answer that fails is a message."""
    filled(desk)
    desk.open(page)
    expect(page.locator("tbody tr")).to_have_count(3)

    changed = copy.deepcopy(queues())
    changed["items"][0]["metadata"]["name"] = "renamed"
    desk.answers.feeds["queues"] = changed
    expect(page.locator("tbody")).to_contain_text("renamed")
    del desk.answers.feeds["queues"]
    expect(page.get_by_role("alert")).to_have_text("no queues")


def test_keys_lead_everywhere(desk: Desk, page: Page) -> None:
    """Views by number, search by slash, the theme by t; an address can be shared."""
    filled(desk)
    desk.open(page)
    page.keyboard.press("3")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.keyboard.press("/")
    page.keyboard.type("job-b")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith("#/workloads?search=job-b")
    page.keyboard.press("Escape")
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before

    page.get_by_role("link", name="ns/Job/job-b").click()
    expect(page.locator(".lines")).to_contain_text("it waits")
    page.reload()
    expect(page.locator(".lines")).to_contain_text("it waits")


def test_a_host_is_picked_by_mouse_and_by_keys(desk: Desk, page: Page) -> None:
    """The page names the picked host and its holder in words, and the address has the host."""
    filled(desk)
    desk.open(page, "#/topology/dc")
    canvas = page.get_by_role("img", name="Map of flavor gpu")
    expect(canvas).to_be_visible()

    canvas.click(position={"x": 26, "y": 6})
    picked = page.locator(".picked")
    expect(picked).to_contain_text("b0/r0/b0-r0-h0")
    expect(picked).to_contain_text(f"{GPU}: 0 free, 8 held, 0 foreign, 8 total")
    expect(picked).to_contain_text("held by ns/job-a")
    page.keyboard.press("ArrowRight")
    expect(picked).to_contain_text("b0-r0-h1")
    assert page.url.endswith("#/topology?host=b0-r0-h1") or page.url.endswith("#/topology/dc?host=b0-r0-h1")


def test_the_map_shows_states_by_place_and_colour(desk: Desk, page: Page) -> None:
    """A held host is filled from below, one with foreign pods from above, a free one not at all."""
    filled(desk)
    desk.open(page, "#/topology/dc")
    expect(page.get_by_role("img", name="Map of flavor gpu")).to_be_visible()

    colours = page.evaluate(
        """() => {
          const canvas = document.querySelector('canvas[role=img]');
          const pen = canvas.getContext('2d');
          const at = (x, y) => [...pen.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data].join();
          const cell = 22, left = 21, top = 1;
          return [0, 1, 2].map((n) => [at(left + n * cell + 10, top + 2), at(left + n * cell + 10, top + 18)]);
        }"""
    )

    (held_top, held_bottom), (foreign_top, foreign_bottom), (free_top, free_bottom) = colours
    assert held_top == held_bottom != free_top
    assert foreign_top not in (free_top, held_top)
    assert foreign_bottom == free_top == free_bottom


def test_changes_of_a_map_arrive(desk: Desk, page: Page) -> None:
    """The summary counts what has changed."""
    filled(desk)
    desk.open(page, "#/topology/dc")
    expect(page.locator("h2")).to_contain_text("88 free, 32 held and 8 foreign of 128")

    changed = topology_map()
    changed["flavors"][0]["leaves"]["free"][3], changed["flavors"][0]["leaves"]["held"][3] = 0, 8
    desk.answers.feeds["map/dc"] = changed

    expect(page.locator("h2")).to_contain_text("80 free, 40 held and 8 foreign of 128")


def test_names_are_never_markup(desk: Desk, page: Page) -> None:
    """Tenants choose names and messages."""
    filled(desk)
    hostile: dict[str, Any] = workload("x", owner=HOSTILE, message=HOSTILE, queue=HOSTILE, state=HOSTILE)
    desk.answers.feeds["workloads"] = {"items": [hostile], "left": 0}
    changed = topology_map()
    changed["flavors"][0]["leaves"]["name"][0] = HOSTILE
    changed["flavors"][0]["holders"] = [{"workload": f"ns/{HOSTILE}", "clusterQueue": HOSTILE}]
    desk.answers.feeds["map/dc"] = changed
    desk.answers.explanations["ns/x"] = {"lines": [[HOSTILE, 0, "bold"]]}
    desk.answers.lives["ns/x"] = {
        **life(),
        "moments": [{"time": HOSTILE, "what": HOSTILE, "message": HOSTILE, "kind": ""}],
    }
    desk.answers.feeds["starts"] = starts(
        start(HOSTILE, 60, 600, domains=[{"domain": [HOSTILE], "pods": 1}], after={"workloads": [HOSTILE], "others": 0})
    )
    curves = trends()
    curves["series"][0]["name"] = HOSTILE
    desk.answers.feeds["trends"] = curves
    desk.answers.what_if_lines = [[HOSTILE, 0, "bold"]]

    desk.open(page, "#/workloads")
    expect(page.locator("tbody tr")).to_contain_text("\\u202e\\u0007")
    page.get_by_role("link", name="ns/").click()
    expect(page.locator(".lines")).to_contain_text("onerror")
    expect(page.get_by_role("cell", name="onerror").first).to_be_visible()
    for key in "45":
        page.keyboard.press(key)
        expect(page.locator("main")).to_contain_text("\\u202e\\u0007")
    page.keyboard.press("2")
    expect(page.get_by_role("img", name="Map of flavor gpu")).to_be_visible()
    page.locator("canvas[role=img]").click(position={"x": 26, "y": 6})
    expect(page.locator(".picked")).to_contain_text("onerror")
    page.get_by_role("button", name="What if b0/r0/").click()
    expect(page.get_by_role("dialog")).to_contain_text("onerror")

    assert page.locator("img").count() == 0
    assert page.title() != "1"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_rules_of_accessibility_hold(desk: Desk, page: Page, theme: str) -> None:
    """Names of controls, contrast, headers of tables: by the rules of axe-core, in each view."""
    filled(desk)
    page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
    desk.open(page)
    page.evaluate(needed.AXE.path().read_text())

    routes = ("#/queues", "#/topology/dc", "#/workloads", "#/starts", "#/trends", "#/workload/ns/job-b", "#/nothing")
    for route in (*routes, "#/queues?dialog"):
        page.evaluate(f"location.hash = '{route}'")
        page.wait_for_selector(SHOWN.get(route, "main *:not(.quiet)"))
        if "dialog" in route:
            page.get_by_role("button", name="What if research").click()
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        wrong = [(rule["id"], [node["html"] for node in rule["nodes"][:3]]) for rule in found["violations"]]
        assert wrong == [], route
