"""Signing in and out as people do it: by TLS, with the form, in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Page

from kqueue.clock import SystemClock
from kqueue.config.address import Address
from kqueue.page.askers import OpenedViews
from kqueue.page.shared_server import COOKIE, SharedPageServer
from kqueue.page.views import ClusterViews
from kqueue.runtime.client import Client
from kqueue.runtime.served_certificate import served_certificate
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Rights
from tests.browser.answers import queues
from tests.browser.conftest import LIMIT_MILLISECONDS
from tests.browser.desk import Answers, on_thread
from tools import browser as needed

pytestmark = pytest.mark.browser


class OneToken:
    """An API server that knows one token."""

    async def create(self, _: Any, review: dict[str, Any], **__: Any) -> dict[str, Any]:
        """Review a token."""
        known = review["spec"]["token"] == "token-of-ann"
        return {"status": {"authenticated": known, "user": {"username": "<i>ann" if known else ""}}}


@pytest.fixture
def address() -> Iterator[str]:
    """Where the server for many people is."""
    answers, servers = Answers(), list[SharedPageServer]()
    answers.feeds["queues"] = queues()

    async def close() -> None:
        """Close nothing."""

    async def opened(_: str, __: User) -> OpenedViews:
        return OpenedViews(cast("ClusterViews", answers), close)

    @asynccontextmanager
    async def listening() -> AsyncIterator[None]:
        clock = SystemClock()
        async with served_certificate(None, ["localhost"], clock=clock) as tls:
            rights = Rights(cast("Client", OneToken()), clock=clock)
            servers.append(SharedPageServer(rights, opened, clock=clock, tls=tls))
            async with servers[0].listening(Address("127.0.0.1", 0)):
                yield

    with on_thread(listening):
        yield f"https://localhost:{servers[0].port}"


@pytest.fixture
def window(chromium: Browser) -> Iterator[Page]:
    """An empty window that believes the server's own certificate."""
    context = chromium.new_context(ignore_https_errors=True, bypass_csp=False)
    context.set_default_timeout(LIMIT_MILLISECONDS)
    yield context.new_page()
    context.close()


def test_a_person_signs_in_and_out(address: str, window: Page) -> None:
    """The page names a wrong token, a good token opens the page with the user's name as text, and the button ends the session."""
    window.goto(f"{address}/#/queues")
    window.get_by_label("Token").fill("junk")
    window.get_by_role("button", name="Sign in").click()
    window.get_by_role("alert").filter(has_text="does not know this token").wait_for()
    window.evaluate(needed.AXE.path().read_text())
    violations = window.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    assert [violation["id"] for violation in violations] == []

    window.get_by_label("Token").fill(" token-of-ann\n")
    window.get_by_role("button", name="Sign in").click()
    window.get_by_text("<i>ann").wait_for()
    window.get_by_text("live", exact=True).wait_for()
    (cookie,) = window.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (COOKIE, True, True, "Strict")

    window.get_by_role("button", name="Sign out").click()
    window.get_by_label("Token").wait_for()
    window.goto(address)
    assert window.url == f"{address}/sign-in"
