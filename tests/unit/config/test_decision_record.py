"""The section about the record of decisions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kqueue.config import ConfigFileError, Configuration, parse

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def test_nothing_is_recorded_by_default() -> None:
    assert Configuration().decision_record.path == ""


def test_the_section_is_read() -> None:
    text = "decisionRecord: {path: /var/lib/kqueue/record, maxBytes: 2097152, maxAge: 12h}\n"
    found = parse(HEAD + text, source="test").decision_record
    assert (found.path, found.max_bytes, found.max_age) == ("/var/lib/kqueue/record", 2 << 20, timedelta(hours=12))


def test_the_section_of_the_upload_is_read() -> None:
    fields = "bucket: records, prefix: clusters/east, endpoint: 'https://minio.storage:9000', region: eu-west-1, pathStyle: true"
    text = f"decisionRecord: {{path: /record, upload: {{{fields}, interval: 5m, timeout: 10s}}}}\n"
    found = parse(HEAD + text, source="test").decision_record.upload
    assert (found.bucket, found.prefix, found.endpoint) == ("records", "clusters/east", "https://minio.storage:9000")
    assert (found.region, found.path_style) == ("eu-west-1", True)
    assert (found.interval, found.timeout) == (timedelta(minutes=5), timedelta(seconds=10))


def test_nothing_is_uploaded_by_default() -> None:
    text = "decisionRecord: {path: /record}\n"
    assert parse(HEAD + text, source="test").decision_record.upload.bucket == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param("prefix: a", "upload.bucket: must be set", id="no-bucket"),
        pytest.param("bucket: a/b", "upload.bucket: must be the name of a bucket", id="a-path-as-bucket"),
        pytest.param("bucket: abc, prefix: /a", "upload.prefix: must be a path", id="a-prefix-from-the-root"),
        pytest.param("bucket: abc, prefix: a/../b", "upload.prefix: must be a path", id="a-prefix-that-climbs"),
        pytest.param("bucket: abc, prefix: 'a b'", "upload.prefix: must be a path", id="a-prefix-with-a-space"),
        pytest.param("bucket: abc, endpoint: minio", "upload.endpoint: must be a URL", id="no-url"),
        pytest.param("bucket: abc, endpoint: 'ftp://a'", "upload.endpoint: must be a URL", id="another-scheme"),
        pytest.param("bucket: abc, endpoint: 'https://a:x'", "upload.endpoint: must be a URL", id="no-port"),
        pytest.param("bucket: abc, endpoint: 'https://a/b'", "upload.endpoint: must end with its", id="a-path"),
        pytest.param("bucket: abc, region: 'EU West'", "upload.region: must be the name", id="no-region"),
        pytest.param("bucket: abc, interval: 1s", "upload.interval: must be from 10s to 1h", id="too-often"),
        pytest.param("bucket: abc, timeout: 1h", "upload.timeout: must be from 1s to 5m", id="too-patient"),
        pytest.param("bucket: abc, accessKey: x", "upload.accessKey", id="credentials-in-the-file"),
    ],
)
def test_mistakes_of_the_upload_are_refused_with_their_path(fields: str, said: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        parse(HEAD + f"decisionRecord: {{path: /record, upload: {{{fields}}}}}\n", source="test")
    assert f"decisionRecord.{said}" in str(raised.value)


def test_an_upload_needs_a_record() -> None:
    with pytest.raises(ConfigFileError, match=r"decisionRecord\.path: must be set"):
        parse(HEAD + "decisionRecord: {upload: {bucket: abc}}\n", source="test")


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    fields = "bucket: abc, endpoint: 'https://user:hunter2@minio'"
    with pytest.raises(ConfigFileError, match=r"upload\.endpoint: must not have credentials") as raised:
        parse(HEAD + f"decisionRecord: {{path: /record, upload: {{{fields}}}}}\n", source="test")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        pytest.param("path: record", "decisionRecord.path: must be an absolute path", id="a relative path"),
        pytest.param("maxAge: 1s", "decisionRecord.maxAge: must be from 10m to", id="too short"),
        pytest.param("maxBytes: 1024", "decisionRecord.maxBytes", id="too small"),
        pytest.param("bucket: x", "decisionRecord.bucket", id="an unknown field"),
    ],
)
def test_mistakes_are_refused_with_their_path(section: str, said: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        parse(HEAD + f"decisionRecord: {{{section}}}\n", source="test")
    assert said in str(raised.value)
