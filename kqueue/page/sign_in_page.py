"""The form in which people paste their token."""

from __future__ import annotations

from html import escape

from aiohttp import web

from kqueue.page.replies import HEADERS, STATIC

_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace("form-action 'none'", "form-action 'self'"),
    "Referrer-Policy": "same-origin",  # without a referrer, browsers would hide the origin of the form
}
_PLACE = "<!-- message -->"


def sign_in_page(message: str = "", *, status: int = 200, wait: int = 0) -> web.Response:
    """Return the form, with a message about the last attempt; `wait`: seconds before the next one.

    Nothing that a request brings is ever part of it.
    """
    text = (STATIC / "sign_in.html").read_text(encoding="utf-8")
    shown = f'<p class="notice" role="alert">{escape(message)}</p>' if message else ""
    headers = {**_HEADERS, "Retry-After": str(wait)} if wait else _HEADERS
    return web.Response(text=text.replace(_PLACE, shown), status=status, content_type="text/html", headers=headers)
