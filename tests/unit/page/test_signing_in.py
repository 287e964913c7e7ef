"""The parts of signing in that decide alone: forms of tokens, origins of requests, failures by address."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from kqueue.clock import FakeClock
from kqueue.page.bearer import LONGEST, bearer_of, token_in
from kqueue.page.failed_sign_ins import FailedSignIns
from kqueue.page.same_site import is_from_page

TOKENS = [
    ("ey.J0.x-_", "ey.J0.x-_", "a token"),
    (" \n token==\r\n", "token==", "pasted with its line end"),
    ("", None, "nothing"),
    (" ", None, "blanks"),
    ("to\nken", None, "a line break inside"),
    ("token\r\nX-Remote-User: admin", None, "a header inside"),
    ("two tokens", None, "two words"),
    ("tok\x00en", None, "a zero"),
    ("tökén", None, "letters with accents"),
    ("=token", None, "padding in front"),
    ("x" * LONGEST, "x" * LONGEST, "as long as may be"),
    ("x" * (LONGEST + 1), None, "too long"),
]


@pytest.mark.parametrize(("text", "token"), [case[:2] for case in TOKENS], ids=[case[2] for case in TOKENS])
def test_only_what_can_be_a_header_is_a_token(text: str, token: str | None) -> None:
    """What is no token never reaches the API server."""
    assert token_in(text) == token


BEARERS = [
    ([], None, "none"),
    (["Bearer abc"], "abc", "one"),
    (["bearer  abc "], "abc", "another case"),
    (["Basic abc"], "", "another scheme"),
    (["abc"], "", "no scheme"),
    ([""], "", "empty"),
    (["Bearer abc", "Bearer def"], "", "two"),
]


@pytest.mark.parametrize(("given", "bearer"), [case[:2] for case in BEARERS], ids=[case[2] for case in BEARERS])
def test_a_request_has_one_bearer_or_none(given: list[str], bearer: str | None) -> None:
    """A header that is there but no bearer is refused, and never means the cookie."""
    request = make_mocked_request("GET", "/", headers=[("Authorization", value) for value in given])

    assert bearer_of(request) == bearer


ORIGINS = [
    ({"Sec-Fetch-Site": "same-origin"}, True, "the page"),
    ({"Sec-Fetch-Site": "same-site", "Origin": "https://page.example"}, False, "a neighbour"),
    ({"Sec-Fetch-Site": "cross-site"}, False, "another site"),
    ({"Sec-Fetch-Site": "none"}, False, "the address bar"),
    ({"Sec-Fetch-Site": ""}, False, "an empty header"),
    ({"Origin": "https://page.example"}, True, "an old browser"),
    ({"Origin": "https://PAGE.example"}, True, "another case"),
    ({"Origin": "https://page.example.evil"}, False, "a longer name"),
    ({"Origin": "https://evil.example"}, False, "an old browser on another site"),
    ({"Origin": "http://page.example:8080"}, False, "another port"),
    ({"Origin": "null"}, False, "a hidden origin"),
    ({"Origin": "https://[page.example"}, False, "no address"),
    ({}, False, "no browser"),
]


@pytest.mark.parametrize(("headers", "is_page"), [case[:2] for case in ORIGINS], ids=[case[2] for case in ORIGINS])
def test_a_change_comes_from_the_page(headers: dict[str, str], is_page: bool) -> None:
    """The headers are those that scripts cannot set."""
    assert is_from_page(headers, "page.example") == is_page
    assert not is_from_page({"Origin": "https://"}, "")


async def test_an_address_that_fails_often_waits() -> None:
    """Other addresses do not wait, and the wait of the failing address ends."""
    clock = FakeClock()
    failures = FailedSignIns(clock=clock, burst=3, per_second=0.5)
    for _ in range(3):
        assert failures.wait("10.0.0.1") == 0
        failures.failed("10.0.0.1")

    assert failures.wait("10.0.0.1") == 2
    assert failures.wait("10.0.0.2") == 0
    await clock.advance(1.5)
    assert failures.wait("10.0.0.1") == 0.5
    await clock.advance(0.5)
    assert failures.wait("10.0.0.1") == 0
    failures.failed("10.0.0.1")
    assert failures.wait("10.0.0.1") == 2


ALIKE = [
    ("2001:db8::1", "2001:db8::2:3", True, "one network of 64 bits"),
    ("2001:db8::1", "2001:db8:0:1::1", False, "two networks"),
    ("::ffff:10.0.0.1", "10.0.0.1", True, "an IPv4 address in IPv6 form"),
    ("fe80::1%eth0", "fe80::1", True, "with a zone"),
    ("10.0.0.1", "10.0.0.2", False, "two IPv4 addresses"),
    ("", "10.0.0.1", False, "unknown"),
]


@pytest.mark.parametrize(("one", "other", "alike"), [case[:3] for case in ALIKE], ids=[case[3] for case in ALIKE])
def test_addresses_of_one_client_count_as_one(one: str, other: str, alike: bool) -> None:
    """An IPv6 client has 2^64 addresses."""
    failures = FailedSignIns(clock=FakeClock(), burst=1)
    failures.failed(one)

    assert (failures.wait(other) > 0) == alike


def test_addresses_are_forgotten() -> None:
    """Their number is bounded."""
    failures = FailedSignIns(clock=FakeClock(), burst=1, most=10)
    for number in range(100):
        failures.failed(f"10.0.0.{number}")

    assert len(failures) == 10
    assert failures.wait("10.0.0.99") > 0
