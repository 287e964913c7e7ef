"""Whether a request that changes something comes from the page itself, and not from another site in the same browser.

A browser adds the cookie of a session, and a proxy in front adds a token, to requests of other sites, too.  Browsers
say where a request comes from, in headers that scripts cannot set.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_from_page(headers: Mapping[str, str], host: str) -> bool:
    """Whether a browser says that a page of `host` has sent the request.

    `Sec-Fetch-Site` decides; browsers without it send the origin, whose host must be that of the request.  A request
    without both is refused: it is from no browser, or an old one.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    try:
        origin = urlsplit(headers.get("Origin", ""))
    except ValueError:
        return False
    return origin.scheme in ("https", "http") and bool(host) and origin.netloc.lower() == host.lower()
