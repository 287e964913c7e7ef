"""Answers over HTTP that all servers of the page give: files, JSON and refusals, with the same headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

STATIC = Path(__file__).with_name("static")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


def static_files() -> dict[str, Path]:
    """Return the files of the page by their path in a request.  They are small, and the same for everybody."""
    return {f"/static/{file.relative_to(STATIC)}": file for file in STATIC.rglob("*.*") if file.suffix in _KINDS}


def file_reply(path: Path) -> web.Response:
    """Return a file of the page."""
    return web.Response(body=path.read_bytes(), content_type=_KINDS[path.suffix], charset="utf-8", headers=HEADERS)


def json_reply(answer: Any, *, status: int = 200) -> web.Response:
    """Return an answer as JSON."""
    return web.Response(
        body=msgspec.json.encode(answer), status=status, content_type="application/json", headers=HEADERS
    )


def refusal(status: int, why: str, **headers: str) -> web.Response:
    """Return a refusal in words; `headers` have `_` for `-`."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(text=f"kqueue dashboard: {why}\n", status=status, headers={**HEADERS, **more})
