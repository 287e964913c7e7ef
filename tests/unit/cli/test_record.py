"""`kqueue record`: decisions are listed, shown, copied and replayed from files alone."""

from __future__ import annotations

import json
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import kqueue.record.replay
from kqueue.cli.app import run
from kqueue.core.decision import Decision
from kqueue.manager.plugins import PLUGINS_GROUP
from kqueue.record.answer import answer
from tests.builders import START
from tests.unit.record.storage import MemoryStore
from tests.unit.record.test_files import recorded
from tests.unit.record.test_plugin_answers import record as record_with_plugins
from tests.unit.record.test_uploads import Desk

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recorded(tmp_path / "ring", seed=8, number=8).parent


def listed(capsys: Captured, *arguments: str) -> list[dict[str, str]]:
    assert run(["record", "list", *arguments, "-o", "json"]) == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)["decisions"]
    return rows


def test_decisions_are_listed_with_their_cause(folder: Path, capsys: Captured) -> None:
    rows = listed(capsys, str(folder))
    assert {row["decision"] for row in rows} == {"Admit", "Preempt", "Wait"}
    assert all(row["cause"] for row in rows)

    one = rows[0]
    assert {row["workload"] for row in listed(capsys, str(folder), "--workload", one["workload"])} == {one["workload"]}
    assert {row["queue"] for row in listed(capsys, str(folder), "--queue", one["queue"])} == {one["queue"]}
    assert {row["decision"] for row in listed(capsys, str(folder), "--decision", "wait")} == {"Wait"}
    assert listed(capsys, str(folder), "--until", one["time"]) == []
    assert listed(capsys, str(folder), "--since", one["time"]) == rows

    assert run(["record", "list", str(folder)]) == 0
    assert one["workload"] in capsys.readouterr().out


def test_a_decision_is_shown_with_what_it_was_made_on(folder: Path, capsys: Captured) -> None:
    row = next(row for row in listed(capsys, str(folder)) if row["decision"] == "Preempt")
    assert run(["record", "show", str(folder), row["cycle"], "--workload", row["workload"]]) == 0
    shown = capsys.readouterr().out
    assert row["workload"] in shown
    assert "Preempt: preempts ns/" in shown
    assert "pod set main: " in shown
    assert f"ClusterQueue {row['queue']}: " in shown
    assert " in use" in shown

    assert run(["record", "show", str(folder), "9:9"]) == 2
    assert "no such decision" in capsys.readouterr().err


def test_all_decisions_are_replayed_equally(folder: Path, capsys: Captured) -> None:
    assert run(["record", "replay", str(folder)]) == 0
    assert capsys.readouterr().out == "8 cycles are decided as recorded, 0 differently\n"


def test_another_planner_is_told_apart(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause and decision are compared: the planner of this version says another message, or decides otherwise."""

    def otherwise(decision: Decision) -> bytes:
        return answer(decision).replace(b'"reason":"WaitingForQuota"', b'"reason":"WaitingForDomains"')

    monkeypatch.setattr(kqueue.record.replay, "answer", otherwise)
    assert run(["record", "replay", str(folder)]) == 1
    told = capsys.readouterr().out
    assert '- reason: "WaitingForQuota"' in told
    assert '+ reason: "WaitingForDomains"' in told
    assert "recorded by v9.9.9" in told


def test_one_workload_is_saved_and_replayed(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    rows = listed(capsys, str(folder))
    key = rows[-1]["workload"]
    target = tmp_path / "one.kqrecord"
    assert run(["record", "save", str(folder), "--workload", key, "--to", str(target)]) == 0
    capsys.readouterr()

    assert [row for row in listed(capsys, str(target)) if row["workload"] == key]
    assert run(["record", "replay", str(target)]) == 0
    assert "0 differently" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.kqrecord", "ring"]

    assert run(["record", "save", str(folder), "--to", str(target)]) == 2
    assert "the file exists" in capsys.readouterr().err
    assert run(["record", "save", str(folder), "--workload", "ns/none", "--to", str(tmp_path / "no")]) == 2
    assert "nothing was written" in capsys.readouterr().err


def test_a_changed_record_is_refused_with_the_place(folder: Path, capsys: Captured) -> None:
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:900] + b"?" + whole[901:])
    for command in ("list", "replay"):
        assert run(["record", command, str(path)]) == 2
        assert "at byte" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["--since", "yesterday"], "--since yesterday: must be a time", id="no-time"),
        pytest.param(["--decision", "maybe"], "must be Admit, Preempt or Wait", id="no-decision"),
    ],
)
def test_a_wrong_call_is_refused(folder: Path, capsys: Captured, arguments: list[str], problem: str) -> None:
    assert run(["record", "list", str(folder), *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_folder_that_was_uploaded_and_downloaded_serves_all_commands(tmp_path: Path, capsys: Captured) -> None:
    """The files of two leaders, each with a disk of its own, are one record."""
    store = MemoryStore()
    for leader in ("first", "second"):
        desk = Desk(tmp_path / leader, store)
        desk.record(2, at=START + timedelta(hours=len(store.objects)))
        desk.look(2)
    folder = str(store.download(tmp_path / "downloaded"))

    rows = listed(capsys, folder)
    assert len({row["cycle"] for row in rows}) == len(store.objects) == 4
    for row in rows:
        assert run(["record", "show", folder, row["cycle"], "--workload", row["workload"]]) == 0
        assert f"cycle {row['cycle']} at" in capsys.readouterr().out
    assert run(["record", "replay", folder]) == 0
    assert capsys.readouterr().out == "4 cycles are decided as recorded, 0 differently\n"
    page = tmp_path / "report.json"
    assert run(["report", folder, "-o", str(page)]) == 0
    assert json.loads(page.read_text())


PLUGINS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
plugins:
  enabled: [{name: opinions}]
  profiles: [{name: picky, screen: [opinions], filter: [opinions], victims: [opinions], score: [opinions]}]
"""


def test_plugins_answer_as_recorded_or_by_their_code(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package the replay is equal; other code of the plugin shows its answers and what follows."""
    folder, config = str(record_with_plugins(tmp_path / "ring", number=4)), tmp_path / "config.yaml"
    assert run(["record", "replay", folder]) == 0
    assert capsys.readouterr().out == "4 cycles are decided as recorded, 0 differently\n"

    config.write_text(PLUGINS)
    assert run(["record", "replay", folder, "--config", str(config)]) == 2
    assert "no installed package has this entry point" in capsys.readouterr().err

    for factory, code in (("Opinions", 0), ("OtherOpinions", 1)):
        entry = EntryPoint(name="opinions", value=f"tests.unit.record.opinions:{factory}", group=PLUGINS_GROUP)
        monkeypatch.setattr("kqueue.manager.plugins.entry_points", lambda group, entry=entry: [entry])
        assert run(["record", "replay", folder, "--config", str(config)]) == code
        told = capsys.readouterr().out
        assert ("plugin: the answer of profile picky to screened about w" in told) == bool(code)
        assert ("0 differently" in told) == (not code)
