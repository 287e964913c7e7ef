"""Bearer tokens that people bring: their form, and where a request has them."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

LONGEST: Final = 8000
"""Characters of a token; a header is no longer either."""
_FORM = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750.  Nothing else may become a part of the header with which questions are sent."""


def token_in(text: str) -> str | None:
    """Return the token in a pasted text, without the blanks around it; None: this is no token."""
    token = text.strip()
    return token if len(token) <= LONGEST and _FORM.fullmatch(token) else None


def bearer_of(request: web.BaseRequest) -> str | None:
    """Return the text behind `Authorization: Bearer`; empty for another or a second such header; None without any."""
    given = request.headers.getall("Authorization", [])
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if len(given) == 1 and scheme.lower() == "bearer" else ""
