"""Questions of the page that are no feeds: one answer each, some with a body.

Nothing is written through the page: a posted question is answered and forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from kqueue.documents import TooMuchError, check_json
from kqueue.errors import ApiError, ConfigError, KqueueError
from kqueue.page.views import ClusterViews

JSON = dict[str, Any]
MOST_BYTES: Final = 16 * 1024
"""The largest body of a question."""
_JSON_TYPE = "application/json"


class OddQuestionError(KqueueError):
    """The body of a question cannot be read; the text says why."""


def is_posted(request: web.BaseRequest, hosts: tuple[str, ...]) -> bool:
    """Whether a request is a posted question of the page itself.

    The cookie alone does not prove that: another port of this machine is the same site for a browser.  `Origin` is the
    browser's word, and a form cannot send JSON.
    """
    origin = request.headers.get("Origin", "")
    return (
        request.method == "POST"
        and request.path == "/api/whatifs"
        and origin in {f"http://{host}" for host in hosts}
        and request.content_type == _JSON_TYPE
    )


def question(views: ClusterViews, request: web.BaseRequest) -> Callable[[], Awaitable[JSON]] | None:
    """Return what answers a request; None: it is no question."""
    match request.method, *request.path.split("/"):
        case "GET", "", "api", "explanations", namespace, name if namespace and name:
            return lambda: views.explanation(namespace, name)
        case "GET", "", "api", "lives", namespace, name if namespace and name:
            return lambda: views.life(namespace, name)
        case "POST", "", "api", "whatifs":
            return lambda: _what_if(views, request)
    return None


async def _what_if(views: ClusterViews, request: web.BaseRequest) -> JSON:
    read = bytearray()
    async for piece in request.content.iter_any():
        read += piece
        if len(read) > MOST_BYTES:
            raise OddQuestionError(f"at most {MOST_BYTES} bytes of a question are read")
    try:
        check_json(bytes(read))
        spec = msgspec.json.decode(bytes(read), type=JSON)
    except (msgspec.DecodeError, TooMuchError, RecursionError, UnicodeDecodeError) as e:
        raise OddQuestionError(f"the question cannot be read; send an object with changes: {e}") from e
    return await views.what_if(spec)


async def answered(ask: Callable[[], Awaitable[JSON]]) -> tuple[JSON, int]:
    """Return an answer and its HTTP status; an error is an answer, too."""
    try:
        return await ask(), 200
    except ApiError as e:
        return {"error": str(e), "reason": e.reason}, e.status or 502
    except (OddQuestionError, ConfigError) as e:
        return {"error": str(e), "reason": "BadRequest"}, 400
    except KqueueError as e:
        return {"error": str(e), "reason": ""}, 502
