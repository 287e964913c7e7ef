"""The page of a report: one file of HTML without scripts, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from kqueue.cli.report_plots import SERIES, Bar, band, bars
from kqueue.clock import short_span, utc_text
from kqueue.core.quantity import format_quantity
from kqueue.operations.report.figures import NOT_RECORDED, QueueReport
from kqueue.operations.report.tables import FigureUnit, Measure, ReportLine, ReportTable, key_texts, percentages, tables
from kqueue.printable import printable

_MOST_BARS = 20
_STYLE = """
:root{color-scheme:light dark;--back:#fff;--front:#1b1b1b;--dim:#595959;--line:#c9c9c9;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#d55e00;--c4:#cc79a7;--c5:#56b4e9;--c6:#f0e442;--c7:#7f7f7f}
@media(prefers-color-scheme:dark){:root{--back:#161616;--front:#ececec;--dim:#b4b4b4;--line:#4a4a4a;
--c0:#3d9fdc;--c1:#f0b13a;--c2:#2bc298;--c3:#ee7d3a;--c4:#dd94bb;--c5:#8accf2;--c6:#f5ec70;--c7:#a3a3a3}}
body{background:var(--back);color:var(--front);font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:72rem;
padding:1.5rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.25rem;margin:2.2rem 0 .3rem}h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.3rem 0 .8rem;max-width:50rem}.dim{color:var(--dim)}
svg{display:block;width:100%;max-width:57rem;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--front)}svg rect{stroke:var(--front);stroke-width:.6}svg rect.area{stroke:none}
svg.key{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem;vertical-align:-.05rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;margin:.4rem 0;padding:0}
line.tick{stroke:var(--line);stroke-width:1}line.full{stroke:var(--front);stroke-width:1;stroke-dasharray:4 3}
.scroll{overflow-x:auto;margin:.8rem 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--dim);padding:.2rem 0}
th,td{border-bottom:1px solid var(--line);padding:.25rem .8rem .25rem 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right}tbody th{font-weight:500}dl{margin:.4rem 0}dt{font-weight:600}dd{margin:0 0 .5rem 1rem}
@media print{body{max-width:none;padding:0;font-size:11px}figure,tr,h2,h3{break-inside:avoid}h2,h3{break-after:avoid}
.scroll{overflow:visible}}
figure{margin:.6rem 0}
""" + "".join(f".c{number}{{fill:var(--c{number})}}" for number in range(SERIES))
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
_CAUSES = {NOT_RECORDED: "cause not in the record"}
_NOT_IN_RECORD = (
    (
        "Workloads that wait and were never tried",
        "The record has a workload from its first try on. A workload behind the head of its queue may be missing.",
    ),
    (
        "Workloads that were deleted while they waited",
        "They count as waiting until the end: a deletion is no decision.",
    ),
    (
        "The moment at which a workload ended",
        "The record shows it at the next cycle of the cohort. Use is therefore given as a least and a most amount.",
    ),
    (
        "Causes of evictions that the planner did not decide",
        "Pods that were not ready in time, failed nodes, deactivation: these are counted without their cause.",
    ),
    (
        "Time in admission checks, and until pods are ready",
        "A wait ends with the decision that reserves quota.",
    ),
)


def report_page(report: QueueReport) -> str:
    """Return the page."""
    return "".join(_page(report))


def _page(report: QueueReport) -> Iterator[str]:
    found = tables(report)
    begin, end = utc_text(report.record.begin), utc_text(report.record.end)
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>kqueue report, {begin} to {end}</title><style>{_STYLE}</style></head>\n<body><header>"
    yield f"<h1>Queues from {begin} to {end}</h1>"
    versions = _text(", ".join(report.record.versions))
    yield f'<p class="dim">From the record of decisions of kqueue {versions}. Times are in UTC.</p></header><main>'
    yield from _waits(found["waits"])
    yield from _use(report, found["use"])
    yield from _packing(found["packing"])
    yield from _evictions(found["evictions"])
    yield from _start_times(report, found["startTimes"])
    yield from _record(found["record"])
    yield "</main></body></html>\n"


def _waits(table: ReportTable) -> Iterator[str]:
    yield _section(
        "Waits by queue",
        "From the time since which a workload is in line to the decision that reserves its quota. A workload that was "
        "evicted is in line again from then on, and each of its starts counts.",
    )
    columns = [table.column(name) for name in ("p50", "p90", "longest")]
    rows = []
    for line in _largest(table, table.column("starts")):
        half, most, longest = (line.values[column] for column in columns)
        if half is not None and most is not None and longest is not None:
            text = " / ".join(map(short_span, (half, most, longest)))
            rows.append(Bar(" ".join(key_texts(table, line)), (half, most - half, longest - most), text))
    legend = "half waited at most", "nine tenths waited at most", "the longest wait"
    yield _figure("Waits of half, of nine tenths, and of all starts", legend, rows)
    yield from _table(table, "Waits", empty="No workload was tried.")


def _use(report: QueueReport, table: ReportTable) -> Iterator[str]:
    yield _section(
        "Use by queue and flavor",
        "Average use in percent of the nominal quota. Ends are recorded at the next cycle of the cohort, so the true "
        "use is between both bounds. A queue that borrows can be above 100 %.",
    )
    least, most = table.column("leastPercent"), table.column("mostPercent")
    rows = []
    for line in _largest(table, most):
        low, high = line.values[least], line.values[most]
        if low is not None and high is not None:
            text = f"{low} %" if low == high else f"{low} to {high} %"
            rows.append(Bar(" ".join(key_texts(table, line)), (low, high - low), text))
    yield _figure("Average use in percent of nominal quota", ("at least", "at most"), rows, full=100)
    yield from _table(table, "Use", empty="No quota and no use were recorded.", none="no quota")
    end = utc_text(report.record.end)
    for column, slots in report.use_over_time.items():
        points = [
            (low, high) if low is not None and high is not None else None
            for low, high in (percentages(slot) for slot in slots)
        ]
        if any(point is not None for point in points):
            yield f"<h3>{_text(column)} over time</h3>"
            about = f"Use of {column} in all queues, in percent of nominal quota, in slots of {report.slot_seconds} s"
            yield f"<figure>{band(about, points, begin=utc_text(report.slots_begin), end=end)}</figure>"
    yield '<p class="dim">Use over time is in the CSV, Parquet and JSON forms of this report, as useOverTime.</p>'


def _packing(table: ReportTable) -> Iterator[str]:
    yield _section(
        "Packing quality",
        "Placements that led to a start: the domains that they used at each level, and the fewest possible for them.",
    )
    searches, percent = table.column("searches"), table.column("tightPercent")
    rows = []
    for line in _largest(table, searches):
        share = line.values[percent]
        if share is not None:
            rows.append(Bar(" ".join(key_texts(table, line)), (share,), f"{share} %"))
    yield _figure("Placements with the fewest possible domains, in percent", ("the fewest",), rows, full=100)
    yield from _table(table, "Packing", empty="No start in this time has topology domains.")


def _evictions(table: ReportTable) -> Iterator[str]:
    yield _section("Evictions by cause", "By the queue of the evicted workload.")
    causes: dict[str, int] = {}
    queues: dict[str, dict[str, int]] = {}
    for line in table.lines:
        (queue, cause), number = line.keys, line.values[0] or 0
        queues.setdefault(queue, {})[cause] = number
        causes.setdefault(cause, len(causes))
    named = list(causes)[: SERIES - 1]
    order = sorted(queues, key=lambda queue: (queue != "", -sum(queues[queue].values()), queue))
    rows = []
    for queue in order[:_MOST_BARS]:
        parts = [queues[queue].get(cause, 0) for cause in named]
        total = sum(queues[queue].values())
        rows.append(Bar(queue or "all", (*parts, total - sum(parts)), str(total)))
    legend = [*(_CAUSES.get(cause, cause) for cause in named), *(["others"] if len(causes) > len(named) else [])]
    yield _figure("Evictions by queue and cause", legend, rows)
    yield from _table(table, "Evictions", empty="No workload was evicted.")


def _start_times(report: QueueReport, table: ReportTable) -> Iterator[str]:
    yield _section(
        "Coverage of start times",
        "Starts by where they lie beside the interval that was told, from p50 to p90; up to 5 s beside it count as "
        "inside. First: the first interval with a p90 since the workload is in line. Last: the last one before the "
        "start. Overdue workloads had not started when their p90 had passed, nor at the end.",
    )
    if report.coverage is None:
        yield (
            "<p>Not in the record: no start time was told while it was written, or a version of kqueue wrote it that "
            "does not record them.</p>"
        )
        return
    names = "inside", "before", "after"
    at = [table.column(name) for name in names]
    rows = [
        Bar(" ".join(key_texts(table, line)), [line.values[i] or 0 for i in at], _inside(line, table))
        for line in _largest(table, table.column("inside"))
    ]
    yield _figure("Starts inside, before and after their told interval", names, rows)
    yield from _table(table, "Start times", empty="No workload with a told start time has started.")


def _inside(line: ReportLine, table: ReportTable) -> str:
    percent = line.values[table.column("insidePercent")]
    return "" if percent is None else f"{percent} % inside"


def _record(table: ReportTable) -> Iterator[str]:
    yield _section("What the record has, and what it does not have", "")
    (line,) = table.lines
    yield f"{_open_table('The record')}<tbody>"
    for measure, value in zip(table.measures, line.values, strict=True):
        yield f'<tr><th scope="row">{measure.title}</th><td class="n">{_value(measure, value, "", "none")}</td></tr>'
    yield "</tbody></table></div><h3>Not in the record</h3><dl>"
    for term, meaning in _NOT_IN_RECORD:
        yield f"<dt>{term}</dt><dd>{meaning}</dd>"
    yield "</dl>"


def _section(title: str, about: str) -> str:
    return f"<h2>{title}</h2>" + (f"<p>{about}</p>" if about else "")


def _largest(table: ReportTable, column: int) -> Sequence[ReportLine]:
    """Return the lines that a plot has room for: those of all queues, then the largest ones."""

    def place(line: ReportLine) -> tuple[bool, int]:
        return line.keys[0] != "", -(line.values[column] or 0)

    return sorted(table.lines, key=place)[:_MOST_BARS]


def _figure(about: str, legend: Sequence[str], rows: Sequence[Bar], *, full: int | None = None) -> str:
    if not rows:
        return ""
    more = f'<figcaption class="dim">The {_MOST_BARS} largest; the table has all.</figcaption>'
    return f"<figure>{bars(about, legend, rows, full=full)}{more if len(rows) == _MOST_BARS else ''}</figure>"


def _table(table: ReportTable, name: str, *, empty: str, none: str = "none") -> Iterator[str]:
    if not table.lines:
        yield f"<p>{empty}</p>"
        return
    yield f"{_open_table(name)}<thead><tr>"
    yield "".join(f'<th scope="col">{key}</th>' for key in table.keys)
    yield "".join(f'<th scope="col" class="n">{measure.title}</th>' for measure in table.measures)
    yield "</tr></thead><tbody>"
    for line in table.lines:
        first, *others = (_CAUSES.get(text, text) for text in key_texts(table, line))
        resource = line.keys[table.keys.index("resource")] if "resource" in table.keys else ""
        yield f'<tr><th scope="row">{_text(first)}</th>' + "".join(f"<td>{_text(text)}</td>" for text in others)
        for measure, value in zip(table.measures, line.values, strict=True):
            yield f'<td class="n">{_value(measure, value, resource, none)}</td>'
        yield "</tr>"
    yield "</tbody></table></div>"


def _open_table(name: str) -> str:
    return f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table><caption>{name}</caption>'


def _value(measure: Measure, value: int | None, resource: str, none: str) -> str:
    return _text(value_text(measure, value, resource, none=none))


def value_text(measure: Measure, value: int | None, resource: str, *, none: str = "none") -> str:
    """Return a figure for people; `none` where the record has none."""
    if value is None:
        return none
    match measure.unit:
        case FigureUnit.SECONDS:
            return short_span(max(0, value))
        case FigureUnit.PERCENT:
            return f"{value} %"
        case FigureUnit.AMOUNT:
            return format_quantity(value, resource)
        case FigureUnit.TIME:
            return _moment(value)
        case FigureUnit.COUNT:
            return str(value)


def _moment(seconds: int) -> str:
    return utc_text(datetime.fromtimestamp(seconds, UTC))


def _text(text: object) -> str:
    return escape(printable(text))
