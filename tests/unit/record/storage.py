"""Doubles of a storage of objects: one in memory that fails on demand, and one that speaks HTTP on loopback."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kqueue.record.store import StoreError


class UploadCounts:
    """Counts as metrics do."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.lags: list[float] = []
        self._changed = threading.Condition()

    def uploaded(self, result: str) -> None:
        """Count a file."""
        with self._changed:
            self.files[result] += 1
            self._changed.notify_all()

    def upload_lag(self, seconds: float) -> None:
        """Remember the lag."""
        self.lags.append(seconds)

    def until(self, result: str, files: int) -> None:
        """Wait until so many files came to this, at most ten seconds."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.files[result] >= files, 10), self.files


class MemoryStore:
    """Objects in memory.  `errors` are raised by the next requests, the first one first."""

    def __init__(self, place: str = "memory/bucket/") -> None:
        self.place = place
        self.objects: dict[str, bytes] = {}
        self.order: list[str] = []
        self.errors: list[Exception] = []

    def put(self, name: str, path: Path) -> None:
        """Store a file."""
        self.order.append(name)
        if self.errors:
            raise self.errors.pop(0)
        self.objects[name] = path.read_bytes()

    def download(self, folder: Path) -> Path:
        """Write all objects to a folder."""
        folder.mkdir()
        for name, data in self.objects.items():
            (folder / name).write_bytes(data)
        return folder


def away() -> StoreError:
    """The storage does not answer."""
    return StoreError("EndpointConnectionError: no route", is_final=False)


def forbidden() -> StoreError:
    """The storage refuses."""
    return StoreError("AccessDenied (403): no", is_final=True)


@dataclass
class S3Double:
    """What a storage that speaks S3 was asked."""

    url: str
    bodies: dict[str, bytes] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """First lines of requests that put no object."""
    answers: list[tuple[int, str]] = field(default_factory=list)
    """Status and code of the next answers; when there are none, a PUT is taken."""


def _refusal(double: S3Double, headers: dict[str, str], body: bytes) -> tuple[int, str] | None:
    """Return status and code of a refusal, by the rules of S3; None: the object is taken."""
    if not headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 Credential="):
        return 403, "AccessDenied"
    if headers.get("content-md5") != base64.b64encode(hashlib.md5(body).digest()).decode():
        return 400, "BadDigest"
    return double.answers.pop(0) if double.answers else None


@contextmanager
def s3_double() -> Iterator[S3Double]:
    """Serve a storage on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            double.headers.append(headers)
            refusal = _refusal(double, headers, body)
            if refusal is None:
                double.bodies[self.path] = body
            status, code = refusal or (200, "")
            text = f"<Error><Code>{code}</Code><Message>m\u202eevil</Message></Error>".encode() if refusal else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            double.others.append(self.requestline)
            self.send_error(405)

        do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double = S3Double(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
