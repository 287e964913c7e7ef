"""A Chromium, and the page's server on answers that a test sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.desk import Answers, Desk, serving
from tools import browser as needed

LIMIT_MILLISECONDS = 15_000


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a Chromium its tests are skipped from this one place, or fail where it is required."""
    if item.get_closest_marker("browser") is None or (missing := needed.why_missing()) is None:
        return
    if needed.is_required():
        pytest.fail(f"{missing} ({needed.REQUIRE} is set)", pytrace=False)
    pytest.skip(f"!!!! THE BROWSER IS LEFT OUT: {missing}")


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A page with no answers yet."""
    answers = Answers()
    with serving(answers) as server:
        yield Desk(server, answers)


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """A browser of its own for each test: between the tests of a longer life the driver's event loop would be the running
    one, and asynchronous tests of the same process would fail.
    """
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=needed.chromium(), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty window, whose errors fail the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(LIMIT_MILLISECONDS)
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield made
    context.close()
    assert [problem for problem in problems if "404" not in problem] == []
