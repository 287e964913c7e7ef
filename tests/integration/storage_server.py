"""A real S3-compatible storage on loopback, and a relay in front of it that holds back what a client sends."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kqueue.record.s3 import S3Settings, S3Store
from tests.integration.controlplane.processes import Process
from tools import controlplane

KEY, SECRET, REGION, BUCKET = "AKTEST", "secret-of-the-test", "eu-west-1", "records"
_SECONDS = 20.0


def why_missing() -> str:
    """Return why there is no storage, with the remedy; empty: there is one."""
    folder = controlplane.where(controlplane.STORAGE)
    lacking = controlplane.missing(folder, controlplane.STORAGE)
    return f"{folder} holds no versitygw; run `tools/controlplane.py --storage`" if lacking else ""


class Storage:
    """A running storage with one bucket."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """Return a client with the right credentials."""
        import boto3

        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        return boto3.client("s3", endpoint_url=self.url, region_name=REGION, **keys)

    def objects(self) -> dict[str, bytes]:
        """Return all objects of the bucket."""
        client = self.client()
        found = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        return {o["Key"]: client.get_object(Bucket=BUCKET, Key=o["Key"])["Body"].read() for o in found}


def store_at(url: str, *, bucket: str = BUCKET, timeout: float = 10.0) -> S3Store:
    """Return the store of an uploader."""
    settings = {"prefix": "clusters/east/", "region": REGION, "path_style": True}
    return S3Store(S3Settings(bucket=bucket, endpoint=url, timeout=timeout, **settings))  # type: ignore[arg-type]


@contextmanager
def storage(folder: Path, *flags: str) -> Iterator[Storage]:
    """Serve a storage with files in a folder."""
    root, sidecar = folder / "storage", folder / "metadata"
    for path in (root, sidecar):
        path.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = controlplane.where(controlplane.STORAGE) / "versitygw"
    argv: list[str | Path] = [
        program,
        "--port",
        f"127.0.0.1:{port}",
        "--region",
        REGION,
        "--access",
        KEY,
        "--secret",
        SECRET,
        "--quiet",
    ]
    process = Process.start([*argv, *flags, "posix", "--sidecar", sidecar, root], logs=folder)
    try:
        found = Storage(root, port)
        _await_port(process, port)
        found.client().create_bucket(Bucket=BUCKET)
        yield found
    finally:
        process.stop()


def _await_port(process: Process, port: int) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        assert process.ended() is None, process.tail()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"the storage does not listen: {process.tail()}")


class Relay:
    """Passes bytes to a storage; after so many bytes of a connection it waits for `go_on`, and tells `is_holding`."""

    def __init__(self, server: socket.socket, port: int, *, hold_after: int) -> None:
        self._server, self._port, self._hold_after = server, port, hold_after
        self.is_holding, self.go_on = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{server.getsockname()[1]}"

    def run(self) -> None:
        """Accept connections until the server is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                upstream = socket.create_connection(("127.0.0.1", self._port), _SECONDS)
                for args in ((client, upstream, self._hold_after), (upstream, client, None)):
                    threading.Thread(target=self._pass, args=args, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, hold_after: int | None) -> None:
        passed = 0
        with suppress(OSError), source, target:
            while piece := source.recv(1024):
                passed += len(piece)
                if hold_after is not None and passed > hold_after and not self.go_on.is_set():
                    self.is_holding.set()
                    self.go_on.wait(_SECONDS)
                target.sendall(piece)
            for one in (source, target):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(port: int, *, hold_after: int) -> Iterator[Relay]:
    """Run a relay on a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Relay(server, port, hold_after=hold_after)
        threading.Thread(target=found.run, daemon=True).start()
        try:
            yield found
        finally:
            found.go_on.set()
            server.shutdown(socket.SHUT_RDWR)


def environment() -> dict[str, str]:
    """Return variables of a process that may use the storage, and nothing else of this machine."""
    none = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    return {**none, **keys, "NO_PROXY": "127.0.0.1"}
