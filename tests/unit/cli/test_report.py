"""`kqueue report`: the page, the summary, CSV and Parquet, from files alone."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.cli.report import form_of, time_of
from kqueue.cli.report_files import as_csv, as_parquet, cell_text
from kqueue.cli.report_page import report_page
from kqueue.cli.report_plots import Bar, band, bars
from kqueue.core.future.day import Day
from kqueue.errors import ConfigError
from kqueue.operations.report.figures import QueueReport
from kqueue.operations.report.reading import read_report
from kqueue.operations.report.tables import CELL_COLUMNS, as_json, cells
from kqueue.record.records import Record
from kqueue.record.told import ToldInterval
from tests.recorded_days import make_question, record_day
from tests.unit.operations.small_records import SmallRecord, admits, at, head, held, preempts, waits

Captured = pytest.CaptureFixture[str]
HOSTILE = "<img src=x onerror=alert(1)>\u202e"
NOW = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Day]:
    """Four hours of gangs in four ClusterQueues: the record, and what happened."""
    path = tmp_path_factory.mktemp("day") / "record"
    return path, record_day(make_question(7, 60, size=(1, 4, 8), seconds=4 * 3600), path)


@pytest.fixture
def folder(day: tuple[Path, Day]) -> Path:
    return day[0]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> QueueReport:
    """A report with lines in all tables."""
    record = SmallRecord(tmp_path_factory.mktemp("small") / "record")
    runs = [held("w8"), held("w9", evicted=True)]
    record.cycle(0, waits(head("w1")), preempts(head("p", "b"), runs[0]), holds=runs[:1])
    told = [ToldInterval("w1", at(0), 5, 20)]
    record.cycle(10, admits(head("w1"), levels=[("rack", 2, 1)]), holds=runs, told=told)
    record.cycle(70, holds=[held("w1")])
    return read_report(Record(record.closed()))


class Page(HTMLParser):
    """The elements of a page: tags with attributes, the texts of headings, and the cells of each table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.tables: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)
        if tag == "tr":
            list(self.tables.values())[-1].append([])

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.open[-1] if self.open else ""
        self.texts.setdefault(where, []).append(data)
        if where == "caption":
            self.tables[data] = []
        if where in ("td", "th"):
            list(self.tables.values())[-1][-1].append(data)


def named(page: Page, tag: str) -> Iterator[dict[str, str | None]]:
    return (attributes for name, attributes in page.tags if name == tag)


def test_the_page_has_each_figure_beside_its_plot(everything: QueueReport) -> None:
    page = Page(report_page(everything))
    assert page.open == []
    assert page.texts["h2"] == [
        "Waits by queue",
        "Use by queue and flavor",
        "Packing quality",
        "Evictions by cause",
        "Coverage of start times",
        "What the record has, and what it does not have",
    ]
    assert page.tables["Waits"][1] == ["all", "1", "10s", "10s", "10s", "10s", "1", "70s"]
    assert page.tables["Packing"][1] == ["all", "rack", "1", "2", "1", "0", "0 %"]
    assert page.tables["Evictions"][1:3] == [
        ["all", "InCohortReclamation", "1"],
        ["all", "cause not in the record", "1"],
    ]
    assert page.tables["Start times"][1] == ["all", "first", "100 %", "1", "0", "0", "none", "0", "0"]
    assert ["cycles", "3"] in page.tables["The record"]
    pictures = [one["aria-label"] for one in named(page, "svg") if one.get("role") == "img"]
    assert len(pictures) == 6
    assert all(pictures)


def test_the_page_loads_nothing_and_runs_nothing(everything: QueueReport) -> None:
    """Its policy allows its own style and nothing else."""
    text = report_page(everything)
    page = Page(text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "form", "a", "base"})
    assert not any(name.startswith("on") or name in ("src", "href", "style") for _, one in page.tags for name in one)
    assert "http" not in text.replace("http-equiv", "")
    (policy,) = (one["content"] for one in named(page, "meta") if "http-equiv" in one)
    assert policy is not None
    assert re.match(r"default-src 'none'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action 'none'$", policy)


def hostile(tmp_path: Path) -> QueueReport:
    """A report whose queue, cause and version are of a forged record."""
    record = SmallRecord(tmp_path / "record", names=("a", HOSTILE))
    record.cycle(0, admits(head("w1", HOSTILE), levels=[(HOSTILE, 1, 1)]), holds=[held("w2", HOSTILE)])
    record.cycle(60, holds=[held("w1", HOSTILE), held("w2", HOSTILE, evicted=True)])
    return read_report(Record(record.closed()))


def test_hostile_names_are_texts(tmp_path: Path, capsys: Captured) -> None:
    text = report_page(hostile(tmp_path))
    page = Page(text)
    assert "\u202e" not in text
    assert "img" not in {tag for tag, _ in page.tags}
    assert page.tables["Waits"][2][0] == "<img src=x onerror=alert(1)>\\u202e"

    assert run(["report", str(tmp_path / "record")]) == 0
    assert "\u202e" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        pytest.param("team-a", "team-a", id="usual"),
        pytest.param("=1+1", "'=1+1", id="formula"),
        pytest.param("+1", "'+1", id="plus"),
        pytest.param("-1", "'-1", id="minus"),
        pytest.param("@SUM(A1)", "'@SUM(A1)", id="at"),
        pytest.param("\uff1d1", "'\uff1d1", id="wide"),
        pytest.param("\t=1", "\\t=1", id="tab"),
        pytest.param("a,b\n=1", "a,b\\n=1", id="line"),
    ],
)
def test_no_cell_is_a_formula(text: str, cell: str) -> None:
    assert cell_text(text) == cell


def test_csv_has_each_figure_once(everything: QueueReport) -> None:
    header, *rows = csv.reader(io.StringIO(as_csv(everything).decode()))
    assert tuple(header) == CELL_COLUMNS
    assert [[row[0], *row[1:8], row[8]] for row in rows] == [
        [one.table, *one.keys, one.measure] for one in cells(everything)
    ]
    found = {(row[0], row[1], row[8]): row[10] for row in rows if not row[4]}
    assert found["waits", "a", "longest"] == "10"
    assert found["waits", "b", "longest"] == ""  # nothing has started there
    assert found["record", "", "cycles"] == "3"


def test_parquet_has_the_figures_of_the_csv(everything: QueueReport) -> None:
    from arro3.io import read_parquet

    table = read_parquet(io.BytesIO(as_parquet(everything))).read_all()
    assert tuple(table.column_names) == CELL_COLUMNS
    columns = [table[name].to_pylist() for name in CELL_COLUMNS]
    assert list(zip(*columns, strict=True)) == [
        (one.table, *one.keys, one.measure, one.unit, one.value) for one in cells(everything)
    ]
    assert None in columns[-1]


def test_json_names_what_the_record_does_not_have(everything: QueueReport, folder: Path) -> None:
    shown = as_json(everything)
    assert shown["waits"][1] == {
        "queue": "a",
        "starts": 1,
        "mean": 10,
        "p50": 10,
        "p90": 10,
        "longest": 10,
        "waiting": 0,
        "longestWaiting": None,
    }
    assert as_json(read_report(Record(folder)))["startTimes"] is None


def test_a_recorded_day_becomes_a_page_a_summary_and_json(
    day: tuple[Path, Day], tmp_path: Path, capsys: Captured
) -> None:
    folder = day[0]
    page = tmp_path / "report.html"
    page.write_text("of last week")
    assert run(["report", str(folder), "-o", str(page)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"the report is in {page}\n")
    tables = Page(page.read_text()).tables
    assert {"Waits", "Use", "Packing", "The record"} <= tables.keys()
    assert list(tmp_path.iterdir()) == [page]

    assert run(["report", str(folder)]) == 0
    summary = capsys.readouterr().out
    assert "coverage of start times: not in the record" in summary
    starts = len(day[1].stays)
    assert re.search(rf"^all +{starts} ", summary, re.MULTILINE)

    assert run(["report", str(folder), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["queue"] for one in shown["waits"]] == ["", "team-0", "team-1", "team-2", "team-3"]
    assert 0 < shown["use"][0]["leastPercent"] <= shown["use"][0]["mostPercent"] <= 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--from", "yesterday"], "--from yesterday: must be a time such as", id="from"),
        pytest.param(["--to", "7days"], "--to 7days: must be a time such as", id="to"),
        pytest.param(["--from", "1h", "--to", "2h"], "--from 1h is not before --to 2h", id="order"),
        pytest.param(["--to", "2020-01-01T00:00:00Z"], "the record has no cycle in this time", id="no cycle"),
        pytest.param(["-o", "report.pdf"], "-o report.pdf: the name must end with .html", id="suffix"),
    ],
)
def test_wrong_flags_are_refused(folder: Path, capsys: Captured, arguments: list[str], says: str) -> None:
    assert run(["report", str(folder), *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="none"),
        pytest.param("7d", NOW - timedelta(days=7), id="days"),
        pytest.param("2w", NOW - timedelta(weeks=2), id="weeks"),
        pytest.param("90m", NOW - timedelta(minutes=90), id="minutes"),
        pytest.param("2026-01-31T22:00:00Z", datetime(2026, 1, 31, 22, tzinfo=UTC), id="time"),
        pytest.param("2026-01-31T22:00:00", datetime(2026, 1, 31, 22, tzinfo=UTC), id="without zone"),
    ],
)
def test_times_and_spans(text: str, expected: datetime | None) -> None:
    assert time_of("--from", text, NOW) == expected


def test_a_span_beyond_all_times_is_refused() -> None:
    with pytest.raises(ConfigError, match="--from 999999w: must be a time"):
        time_of("--from", "999999w", NOW)


def test_parquet_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "arro3.io", None)
    with pytest.raises(ConfigError, match=r"pip install 'kqueue\[parquet\]'"):
        form_of("week.parquet")


def test_a_forged_record_writes_nothing(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    source = min(folder.iterdir())
    changed = bytearray(source.read_bytes())
    changed[len(changed) // 2] ^= 1
    forged = tmp_path / "forged.kqrecord"
    forged.write_bytes(changed)
    assert run(["report", str(forged), "-o", str(tmp_path / "report.csv")]) == 2
    assert re.search(r"entry \d+ at byte \d+: its hash is not that", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == [forged]


def test_an_interrupted_write_leaves_the_former_file(
    folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.csv"
    report.write_text("of last week")

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert run(["report", str(folder), "-o", str(report)]) == 2
    assert f"-o {report}: no space left on device; name a file" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["of last week"]


def test_progress_is_shown_on_a_terminal_only(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["report", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("kqueue.cli.report._LOOK_SECONDS", -1.0)
    assert run(["report", str(folder)]) == 0
    shown = re.findall(r"\r +(\d+) % of the record is read", capsys.readouterr().err)
    assert sorted(map(int, shown)) == list(map(int, shown))
    assert int(shown[-1]) > 80


def shapes(text: str) -> list[dict[str, Any]]:
    return [one for one in named(Page(text), "rect") if one.get("width") != "10"]


def test_parts_of_bars_follow_each_other() -> None:
    text = bars("about", ("one", "two"), [Bar("q", (1, 3), "4"), Bar("r", (0, 0), "0")])
    first, second = shapes(text)
    assert int(second["x"]) == int(first["x"]) + int(first["width"])
    assert int(second["width"]) == 3 * int(first["width"])
    assert (first["class"], second["class"]) == ("c0", "c1")


def test_a_band_leaves_unknown_slots_empty() -> None:
    points = [(50, 50), None, (100, 150)]
    known = shapes(band("about", points, begin="a", end="b"))
    assert len(known) == 4
    assert {int(one["x"]) for one in known} == {48, 48 + 704 * 2 // 3}
