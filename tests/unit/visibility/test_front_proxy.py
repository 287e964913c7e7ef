"""Whom the aggregation layer speaks for, and when it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
from multidict import CIMultiDict

from kqueue.errors import ConfigError
from kqueue.visibility.front_proxy import FrontProxy, User, front_proxy_of, proves, spoken_for

NOW = datetime(2026, 6, 1, tzinfo=UTC)
PEM = trustme.CA().cert_pem.bytes().decode()
WHOLE = {
    "client-ca-file": "of no use here",
    "requestheader-client-ca-file": PEM,
    "requestheader-allowed-names": '["front", "back"]',
    "requestheader-username-headers": '["X-User", "X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
PROXY = front_proxy_of(WHOLE)
assert PROXY is not None


def test_the_config_map_says_whom_to_believe() -> None:
    """Each key is a list as JSON, but the authority."""
    assert (
        FrontProxy(
            authorities=PEM,
            names=frozenset({"front", "back"}),
            user_headers=("X-User", "X-Remote-User"),
            group_headers=("X-Remote-Group",),
            extra_prefixes=("X-Remote-Extra-",),
        )
        == PROXY
    )


@pytest.mark.parametrize("data", [{}, {**WHOLE, "requestheader-client-ca-file": " \n"}])
def test_without_an_authority_there_is_no_front_proxy(data: Mapping[str, str]) -> None:
    """The API server was started without an aggregation layer."""
    assert front_proxy_of(data) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("requestheader-client-ca-file", "junk", id="no-certificate"),
        pytest.param("requestheader-allowed-names", "front", id="no-json"),
        pytest.param("requestheader-allowed-names", '{"a": 1}', id="no-list"),
        pytest.param("requestheader-username-headers", "[1]", id="no-strings"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_its_key(key: str, value: str) -> None:
    """Never a front proxy of which a part is left out: a list of names that is not read would let everybody in."""
    with pytest.raises(ConfigError, match=key):
        front_proxy_of({**WHOLE, key: value})


def certificate(name: str = "front", until: str = "Jan  1 00:00:00 2027 GMT", **more: Any) -> dict[str, Any]:
    return {"subject": ((("organizationName", "front"),), (("commonName", name),)), "notAfter": until, **more}


@pytest.mark.parametrize(
    ("shown", "names", "want"),
    [
        pytest.param(certificate(), {"front"}, True, id="allowed-name"),
        pytest.param(certificate("admin"), {"front"}, False, id="another-name"),
        pytest.param(certificate("admin"), set(), True, id="any-name-when-none-is-listed"),
        pytest.param(certificate(until="May 31 23:59:59 2026 GMT"), {"front"}, False, id="expired-since"),
        pytest.param({}, set(), False, id="none-shown"),
        pytest.param(
            {"subject": (), "notAfter": "Jan  1 00:00:00 2027 GMT", "subjectAltName": (("DNS", "front"),)},
            {"front"},
            False,
            id="a-host-name-is-no-common-name",
        ),
    ],
)
def test_a_certificate_proves_the_front_proxy(shown: dict[str, Any], names: set[str], want: bool) -> None:
    """Signed it is already, or there was no connection; its name and its end are looked at for each request."""
    assert proves(shown, FrontProxy(authorities=PEM, names=frozenset(names)), NOW) is want


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param([], None, id="nobody"),
        pytest.param([("X-Remote-User", "")], None, id="an-empty-name"),
        pytest.param([("X-Remote-Group", "system:masters")], None, id="groups-without-a-name"),
        pytest.param(
            [("x-remote-user", "b"), ("X-USER", "a")],
            User(name="a", groups=("system:authenticated",)),
            id="the-header-that-is-listed-first",
        ),
        pytest.param(
            [("X-Remote-User", "a"), ("X-Remote-Group", "g"), ("X-Remote-Group", "h, i")],
            User(name="a", groups=("g", "h, i", "system:authenticated")),
            id="each-group-has-a-header",
        ),
        pytest.param(
            [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")],
            User(name="system:anonymous", groups=("system:unauthenticated",)),
            id="nobody-in-particular-is-not-authenticated",
        ),
        pytest.param(
            [("X-Remote-User", "a"), ("X-Remote-Uid", "u"), ("X-Remote-Extra-A%2fb", "1"), ("x-remote-extra-a%2Fb", "2")],
            User(name="a", groups=("system:authenticated",), extra=(("a/b", ("1", "2")),)),
            id="extras-are-joined-and-a-uid-nobody-asked-for-is-not-read",
        ),
    ],
)  # fmt: skip
def test_headers_name_the_user(headers: list[tuple[str, str]], want: User | None) -> None:
    """As the aggregation layer writes them."""
    assert PROXY is not None
    assert spoken_for(CIMultiDict(headers), PROXY) == want
