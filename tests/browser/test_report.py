"""The page of a report in a real browser: it is readable in light and dark, and its policy allows its style alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from kqueue.cli.report_page import report_page
from kqueue.operations.report.reading import read_report
from kqueue.record.records import Record
from kqueue.record.told import ToldInterval
from tests.unit.operations.small_records import SmallRecord, admits, at, head, held, preempts, waits
from tools import browser as needed

pytestmark = pytest.mark.browser

HOSTILE = '<script>document.title="taken"</script>'


def write_page(folder: Path) -> Path:
    """A page with lines in all of its tables, and a hostile ClusterQueue."""
    record = SmallRecord(folder / "record", names=("a", HOSTILE))
    runs = held("w8", HOSTILE)
    record.cycle(0, waits(head("w1")), preempts(head("p"), runs), holds=[runs])
    told = [ToldInterval("w1", at(0), 5, 20)]
    record.cycle(10, admits(head("w1"), levels=[("rack", 2, 1)]), holds=[runs], told=told)
    record.cycle(70, holds=[held("w1")])
    page = folder / "report.html"
    page.write_text(report_page(read_report(Record(record.closed()))))
    return page


def test_the_report_is_readable_by_all(tmp_path: Path, page: Page) -> None:
    """By the rules of axe-core; a style that the policy refused would be an error of the console, and fail the test."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    address = write_page(tmp_path).as_uri()
    seen = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(address)
        page.evaluate(needed.AXE.path().read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(rule["id"], [node["html"] for node in rule["nodes"][:3]]) for rule in found["violations"]] == []
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(seen) == 2
    assert page.title().startswith("kqueue report")
    assert page.locator("svg[role=img]").count() == 6
    assert set(asked) == {address}
