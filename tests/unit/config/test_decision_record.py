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
