"""Files of the record reach a real S3-compatible storage, whatever happens on the way; each error says what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kqueue.record.records import Record
from kqueue.record.ring import files_in
from kqueue.record.store import StoreError, stored_name
from tests.integration.controlplane.processes import leashed
from tests.integration.storage_server import (
    KEY,
    Storage,
    environment,
    relay,
    storage,
    store_at,
    why_missing,
)
from tests.unit.record.test_uploads import Desk

pytestmark = [pytest.mark.seldom, pytest.mark.skipif(bool(why_missing()), reason=why_missing() or "there is one")]

PREFIX = "clusters/east/"
_SECONDS = 20.0


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right credentials, and nothing else of the machine that runs the tests."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Storage]:
    with storage(tmp_path) as found:
        yield found


def desk(tmp_path: Path, url: str, files: int = 1, **settings: object) -> tuple[Desk, dict[str, bytes]]:
    """An uploader with complete files, and the objects that they become."""
    made = Desk(tmp_path / "ring", store_at(url, **settings))  # type: ignore[arg-type]
    made.record(files)
    return made, {f"{PREFIX}{stored_name(path.name)}": path.read_bytes() for path in files_in(made.folder)}


def test_files_are_uploaded_and_their_download_is_a_record(tmp_path: Path, server: Storage) -> None:
    uploader, wanted = desk(tmp_path, server.url, files=3)
    uploader.look(2)
    assert server.objects() == wanted
    assert uploader.counts.files == {"uploaded": 3}
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name, data in server.objects().items():
        (folder / name.rpartition("/")[2]).write_bytes(data)
    assert len(list(Record(folder).cycles())) == 3


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        pytest.param("AWS_SECRET_ACCESS_KEY", "wrong", "SignatureDoesNotMatch (403)", id="secret"),
        pytest.param("AWS_ACCESS_KEY_ID", "AKWRONG", "XAdminUserNotFound (404)", id="key"),
    ],
)
def test_wrong_credentials_are_named_until_they_are_right(
    tmp_path: Path, server: Storage, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, code: str
) -> None:
    monkeypatch.setenv(variable, value)
    uploader, wanted = desk(tmp_path, server.url)
    (path,) = files_in(uploader.folder)
    with pytest.raises(StoreError) as raised:
        store_at(server.url).put("a", path)
    assert str(raised.value).startswith(code)
    assert str(raised.value).endswith("correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the controller, or the "
                                      "account of its web identity")  # fmt: skip
    assert raised.value.is_final
    uploader.look(2)
    assert server.objects() == {}
    for name, right in environment().items():
        monkeypatch.setenv(name, right)
    again = Desk(uploader.folder, store_at(server.url))  # type: ignore[arg-type]
    again.look(2)
    assert server.objects() == wanted


def test_a_bucket_that_does_not_exist_is_named_and_used_as_soon_as_it_does(tmp_path: Path, server: Storage) -> None:
    uploader, wanted = desk(tmp_path, server.url, bucket="later")
    (path,) = files_in(uploader.folder)
    with pytest.raises(StoreError, match=r"NoSuchBucket \(404\).*; create the bucket, or correct .*\.bucket") as raised:
        store_at(server.url, bucket="later").put("a", path)
    assert raised.value.is_final
    uploader.look(2)
    server.client().create_bucket(Bucket="later")
    uploader.look()
    found = server.client().list_objects_v2(Bucket="later")["Contents"]
    assert [one["Key"] for one in found] == list(wanted)


_UPLOADING = """
import sys, random
from datetime import UTC, datetime
from pathlib import Path
from kqueue.record.uploads import Uploads
from tests.integration.storage_server import store_at
from tests.unit.record.storage import UploadCounts
uploads = Uploads(Path(sys.argv[1]), store_at(sys.argv[2]), count=UploadCounts(), now=lambda: datetime.now(UTC),
                  wait=lambda _: False, chance=random.Random(1))
uploads.look(is_last=True)
"""


def test_a_process_that_is_killed_within_a_file_leaves_no_part_of_it(tmp_path: Path, server: Storage) -> None:
    """The next process with the folder sends the file whole."""
    uploader, wanted = desk(tmp_path, server.url, files=2)
    with relay(server.port, hold_after=2048) as on_the_way:
        argv = leashed([sys.executable, "-c", _UPLOADING, uploader.folder, on_the_way.url])
        process = subprocess.Popen(argv)
        try:
            assert on_the_way.is_holding.wait(_SECONDS), "nothing is sent"
        finally:
            process.kill()
            process.wait(_SECONDS)
        assert server.objects() == {}
    again = Desk(uploader.folder, store_at(server.url))  # type: ignore[arg-type]
    again.look(2)
    assert server.objects() == wanted


def test_a_slow_storage_is_left_and_tried_again(tmp_path: Path, server: Storage) -> None:
    uploader, wanted = desk(tmp_path, server.url)
    (path,) = files_in(uploader.folder)
    with relay(server.port, hold_after=2048) as on_the_way:
        with pytest.raises(StoreError, match=r"Timeout.*; raise decisionRecord\.upload\.timeout") as raised:
            store_at(on_the_way.url, timeout=0.3).put("a", path)
        assert not raised.value.is_final
    with relay(server.port, hold_after=2048) as on_the_way:
        on_the_way.go_on.set()
        again = Desk(uploader.folder, store_at(on_the_way.url))  # type: ignore[arg-type]
        again.look(2)
    assert {name: data for name, data in server.objects().items() if name in wanted} == wanted


def test_a_storage_at_its_limit_is_tried_again(tmp_path: Path) -> None:
    """The storage serves one connection at a time and answers 503 to others."""
    with storage(tmp_path, "--max-connections", "1") as server:
        uploader, wanted = desk(tmp_path, server.url)
        (path,) = files_in(uploader.folder)
        with socket.create_connection(("127.0.0.1", server.port)) as other:
            other.sendall(b"PUT /records/slow HTTP/1.1\r\n")
            with pytest.raises(StoreError, match=r"\(503\).*; kqueue tries again; if it lasts") as raised:
                store_at(server.url).put("a", path)
            assert not raised.value.is_final
        for _ in range(50):  # the storage needs a moment to see the end of the other connection
            uploader.look()
            if uploader.counts.files["uploaded"]:
                break
        assert server.objects() == wanted


def test_the_secret_is_in_no_error(tmp_path: Path, server: Storage) -> None:
    uploader, _ = desk(tmp_path, server.url, bucket="none")
    (path,) = files_in(uploader.folder)
    with pytest.raises(StoreError) as raised:
        store_at(server.url, bucket="none").put("a", path)
    assert "secret" not in str(raised.value)
    assert KEY not in str(raised.value)
