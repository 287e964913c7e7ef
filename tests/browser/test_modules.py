"""The page's modules: types hold without a build step, and pure parts compute what they promise."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from playwright.sync_api import Page

from kqueue.page.changes import map_change, workloads_change
from kqueue.page.replies import STATIC
from kqueue.page.trends import Trends, trends_change
from tests.browser.answers import topology_map, workload
from tests.browser.desk import Desk
from tools import browser as needed

pytestmark = pytest.mark.browser
STRICT = (
    "--noEmit",
    "--allowJs",
    "--checkJs",
    "--strict",
    "--moduleResolution",
    "bundler",
    "--module",
    "es2022",
    "--skipLibCheck",
)
LIBRARIES = ("--target", "es2023", "--lib", "es2023,dom,dom.iterable")


def test_types_hold() -> None:
    """Each module says `@ts-check`, and the strictest check of their JSDoc types finds nothing."""
    modules = sorted((STATIC / "modules").glob("*.js"))
    assert [module.name for module in modules if not module.read_text().startswith("// @ts-check\n")] == []
    node = shutil.which("node")
    assert node is not None, "npm, which has fetched TypeScript, comes with node"

    command = [node, str(needed.TYPESCRIPT.path()), *STRICT, *LIBRARIES, *map(str, modules)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_changes_of_answers_are_merged_as_the_server_means_them(desk: Desk, page: Page) -> None:
    """The answer before and the change make the answer after: for maps, tables and trends."""
    names = [f"job-{n}" for n in range(16)]
    table = {"items": [workload(name) for name in names], "left": 0}
    items = [workload(name, state="Running" if name == "job-5" else "Pending") for name in [*names[1:], "new"]]
    other_table = {"items": items, "left": 3}
    other_map = topology_map()
    other_map["flavors"][0]["leaves"]["held"][3] = 5
    short, memory = Trends(points=3), []
    for time in (1, 2, 3, 4):
        short.add(time, {"items": []}, {"dc": topology_map()})
        memory.append(short.answer())
    cases = [
        ("withRows", table, other_table, workloads_change(table, other_table)),
        ("patched", topology_map(), other_map, map_change(topology_map(), other_map)),
        ("lengthened", memory[2], memory[3], trends_change(memory[2], memory[3])),
    ]
    desk.open(page)

    for merge, before, after, change in cases:
        assert change is not None, merge
        found = page.evaluate(
            """async ([merge, before, change]) => {
              const live = await import('/static/modules/live.js');
              const merged = live[merge](before, change);
              for (const flavor of merged.flavors ?? []) delete flavor.changed;
              return merged;
            }""",
            [merge, before, change],
        )
        assert found == after, merge


def test_no_two_hosts_share_a_place(desk: Desk, page: Page) -> None:
    """Each host has a cell inside the map and inside its rack, for maps of any size."""
    desk.open(page)
    for shape in ((1, 1, 1), (2, 3, 5), (8, 16, 40), (40, 25, 20)):
        found = page.evaluate(
            """async (flavor) => {
              const { layout } = await import('/static/modules/layout.js');
              const made = layout(flavor, 1200, 600);
              const places = new Set(Array.from(made.x, (x, leaf) => `${x} ${made.y[leaf]}`));
              const inside = Array.from(made.x).every((x, leaf) => made.racks.some((rack) =>
                x >= rack.x && x + made.cell <= rack.x + rack.width &&
                made.y[leaf] >= rack.y && made.y[leaf] + made.cell <= rack.y + rack.height));
              const fits = Array.from(made.x).every((x) => x + made.cell <= made.width);
              return [places.size, inside, fits, made.leftOut.length];
            }""",
            topology_map(*shape)["flavors"][0],
        )
        assert found == [shape[0] * shape[1] * shape[2], True, True, 1], shape


def test_quantities_are_lengths_of_bars(desk: Desk, page: Page) -> None:
    """Every form that the API server writes; a text that is none has no length."""
    numbers = {"1500m": 1.5, "2k": 2000, "3Gi": 3 * 2**30, "7": 7, "1e3": 1000, "": 0, "x": 0}
    desk.open(page)

    found = page.evaluate(
        "async (texts) => { const { amount } = await import('/static/modules/queues.js'); return texts.map(amount); }",
        list(numbers),
    )

    assert dict(zip(numbers, found, strict=True)) == numbers
