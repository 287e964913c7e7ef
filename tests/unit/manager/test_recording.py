"""The record of a controller has the start times of answers, and its files reach the configured storage."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from kqueue.clock import FakeClock
from kqueue.config import parse
from kqueue.manager import recording
from kqueue.manager.recording import recording_answers
from kqueue.manager.start_check import mistakes_at_start
from kqueue.observe.record_metrics import RecordMetrics
from kqueue.record.records import Record
from kqueue.record.ring import files_in
from kqueue.record.store import stored_name
from kqueue.visibility.start_times import StartAnswer, StartTimesSource
from tests.unit.record.storage import s3_double
from tests.unit.record.test_recorder import Counts, make_recorder, plan_once
from tests.unit.visibility.test_start_times import FOR, Cluster


async def test_each_answer_is_recorded_with_its_interval(tmp_path: Path) -> None:
    """The third workload of the answer has no start time, and nothing was told of it."""
    cluster = Cluster()
    clock, recorder = cluster.world.clock, make_recorder(tmp_path / "ring", Counts())
    cluster.source = StartTimesSource(
        cluster.source._questions, cluster.computer, clock=clock, on_answer=recording_answers(recorder, clock)
    )
    answer = await cluster.source.current()
    assert isinstance(answer, StartAnswer)
    plan_once(recorder)
    recorder.stop()
    (found,) = Record(tmp_path / "ring").cycles()
    assert {one.uid: (one.at, one.p90 - one.p50 if one.p90 else None) for one in found.told} == {
        answer.uids[key]: (answer.at, 0) for key in ("ns/first", "other/second")
    }
    assert max(one.at + timedelta(seconds=one.p50) for one in found.told) <= clock.now() + timedelta(seconds=FOR + 60)


def test_without_a_record_nothing_follows_answers() -> None:
    assert recording_answers(None, FakeClock()) is None


UPLOAD = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
decisionRecord:
  path: {folder}
  upload: {{bucket: records, prefix: clusters/east, endpoint: "{url}", region: eu-west-1, pathStyle: true}}
"""


def test_a_recorder_of_the_configuration_uploads_with_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    registry = CollectorRegistry()
    with s3_double() as double:
        config = parse(UPLOAD.format(folder=tmp_path / "ring", url=double.url), source="test")
        metrics = SimpleNamespace(record=RecordMetrics(registry))
        manager = SimpleNamespace(config=config, metrics=metrics, clock=FakeClock(), background=[])
        recorder = recording.make_recorder(cast("Any", manager))
        assert recorder is not None
        plan_once(recorder)
        recorder.stop()
    (path,) = files_in(tmp_path / "ring")
    assert double.bodies == {f"/records/clusters/east/{stored_name(path.name)}": path.read_bytes()}
    assert registry.get_sample_value("kqueue_decision_record_uploads_total", {"result": "uploaded"}) == 1
    assert registry.get_sample_value("kqueue_decision_record_upload_lag_seconds") == 0


def test_a_missing_package_is_a_mistake_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse(UPLOAD.format(folder="/record", url="https://minio"), source="test")
    assert mistakes_at_start(config) == []
    monkeypatch.setitem(sys.modules, "boto3", None)
    (mistake,) = mistakes_at_start(config)
    assert mistake.path == "decisionRecord.upload"
    assert "pip install 'kqueue[s3]'" in mistake.problem
