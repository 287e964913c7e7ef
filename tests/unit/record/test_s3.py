"""The client of S3-compatible storage: what is sent, which answers count as final, and where credentials come from."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kqueue.record.s3
from kqueue.errors import ConfigError
from kqueue.record.s3 import S3Settings, S3Store, problem_with_package
from kqueue.record.store import StoreError
from tests.unit.record.storage import S3Double, s3_double


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials of the environment, and nothing of the machine that runs the tests."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 10_000)
    return path


def make_store(url: str, *, prefix: str = "clusters/east/", timeout: float = 5.0, region: str = "eu-west-1") -> S3Store:
    """A store with the bucket in the path."""
    return S3Store(
        S3Settings(bucket="records", prefix=prefix, endpoint=url, region=region, path_style=True, timeout=timeout)
    )


def test_a_file_is_sent_whole_signed_and_with_its_digest(double: S3Double, file: Path) -> None:
    store = make_store(double.url)
    store.put("a.kqrecord", file)
    store.put("b.kqrecord", file)
    assert double.bodies == {f"/records/clusters/east/{name}.kqrecord": file.read_bytes() for name in "ab"}
    (first, _) = double.headers
    assert first["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKTEST/")
    assert "/eu-west-1/s3/aws4_request" in first["authorization"]
    assert "content-md5" in first["authorization"].partition("SignedHeaders=")[2]
    assert "secret-of-the-test" not in str(double.headers)
    assert [name for name in first if "checksum" in name or name == "x-amz-trailer"] == []  # old storage refuses these
    assert first["content-length"] == str(file.stat().st_size)


def test_nothing_but_objects_is_put(double: S3Double, file: Path) -> None:
    """The right to put objects is enough, also after a failure."""
    store = make_store(double.url)
    double.answers = [(500, "InternalError"), (403, "AccessDenied")]
    for _ in range(2):
        with pytest.raises(StoreError):
            store.put("a.kqrecord", file)
    store.put("a.kqrecord", file)
    assert double.others == []
    assert len(double.headers) == 3


@pytest.mark.parametrize(
    ("status", "code", "is_final", "remedy"),
    [
        pytest.param(403, "AccessDenied", True, "s3:PutObject", id="no-rights"),
        pytest.param(404, "NoSuchBucket", True, "create the bucket", id="no-bucket"),
        pytest.param(400, "BadDigest", True, "log of the storage", id="changed-on-the-way"),
        pytest.param(429, "TooManyRequests", False, "kqueue tries again", id="too-often"),
        pytest.param(503, "SlowDown", False, "kqueue tries again", id="slow-down"),
        pytest.param(500, "InternalError", False, "kqueue tries again", id="a-fault-of-the-storage"),
    ],
)
def test_refusals(double: S3Double, file: Path, status: int, code: str, is_final: bool, remedy: str) -> None:
    double.answers = [(status, code)]
    store = make_store(double.url)
    with pytest.raises(StoreError, match=rf"{code} \({status}\)") as raised:
        store.put("a.kqrecord", file)
    assert raised.value.is_final == is_final
    assert "\u202e" not in str(raised.value)
    assert remedy in str(raised.value)
    assert len(double.headers) == 1, "the uploader tries again, not the client"
    store.put("a.kqrecord", file)
    assert len(double.bodies) == 1


def test_a_storage_that_is_away_is_no_final_answer(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(StoreError, match="EndpointConnectionError") as raised:
        make_store(f"http://127.0.0.1:{port}").put("a.kqrecord", file)
    assert not raised.value.is_final


def test_a_storage_that_never_answers_is_left(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = make_store(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.2)
        with pytest.raises(StoreError, match="Timeout") as raised:
            store.put("a.kqrecord", file)
    assert not raised.value.is_final


def test_one_file_has_a_limit_of_time(double: S3Double, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kqueue.record.s3, "_TIMES_LONGER", -1)
    with pytest.raises(StoreError, match="too slowly") as raised:
        make_store(double.url).put("a.kqrecord", file)
    assert not raised.value.is_final
    assert double.bodies == {}


def test_without_credentials_nothing_is_sent_until_there_are_some(
    double: S3Double, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = make_store(double.url)
    with pytest.raises(StoreError, match="NoCredentialsError") as raised:
        store.put("a.kqrecord", file)
    assert raised.value.is_final
    assert double.headers == []
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKLATER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    store.put("a.kqrecord", file)
    assert "Credential=AKLATER/" in double.headers[0]["authorization"]


def test_a_region_and_an_endpoint_of_the_environment_count(
    double: S3Double, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", double.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    make_store("", prefix="", region="").put("a.kqrecord", file)
    assert list(double.bodies) == ["/records/a.kqrecord"]
    assert "/ap-south-1/s3/" in double.headers[0]["authorization"]


def test_a_file_that_is_gone_is_told_apart(double: S3Double, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_store(double.url).put("a.kqrecord", tmp_path / "gone")
    assert double.headers == []


def test_the_place_tells_storage_bucket_and_prefix() -> None:
    assert make_store("https://minio:9000").place == "https://minio:9000/records/clusters/east/"
    assert make_store("", prefix="").place == "AWS/records/"


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_with_package() == ""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigError, match=r"decisionRecord\.upload: .*pip install 'kqueue\[s3\]'"):
        make_store("https://minio:9000")
