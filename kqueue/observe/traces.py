"""Optional traces: a span for each cycle, and one for each phase of a Workload's life.

All spans of a Workload are one trace, whose id is the Workload's UID without dashes.  So traces need no state, and
continue under the next leader.  A span is made at the end of a phase, with the times of the phase.  A thread of the
OpenTelemetry library sends the spans from a bounded queue; spans beyond the bound are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_log = structlog.get_logger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Environment variables; any of them switches traces on."""

_NO_TRACE = 0
"""The invalid trace id."""

Attributes = Mapping[str, str | int | float | bool]


class Traces:
    """Makes spans.  All calls return at once and never raise."""

    def __init__(self, provider: TracerProvider, ids: _Ids) -> None:
        """`ids` must be the generator of ids that `provider` uses."""
        self._provider, self._ids = provider, ids
        self._tracer = provider.get_tracer("kqueue")

    def cycle(self, *, began: float, ended: float, attributes: Attributes) -> None:
        """Record a cycle of admission; times in Unix seconds."""
        self._span("cycle", began, ended, attributes)

    def stretch(self, name: str, *, uid: str, began: float, ended: float, attributes: Attributes) -> None:
        """Record a phase of a Workload's life: `queued`, `checks`, `starting`, `running`; times in Unix seconds."""
        self._ids.next_trace = _trace_id(uid)
        self._span(name, began, ended, attributes)
        self._ids.next_trace = _NO_TRACE

    def _span(self, name: str, began: float, ended: float, attributes: Attributes) -> None:
        from opentelemetry.context import Context

        span = self._tracer.start_span(
            name, context=Context(), start_time=int(began * 1e9), attributes=dict(attributes)
        )
        span.end(end_time=int(max(began, ended) * 1e9))

    async def finish(self, seconds: float) -> None:
        """Send the waiting spans for at most so many seconds; drop the rest."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            self._provider.force_flush(int(seconds * 1000))
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(sent.set)
            self._provider.shutdown()  # otherwise the library's own thread never ends

        threading.Thread(target=send, name="last spans", daemon=True).start()  # the call has no time limit of its own
        try:
            async with asyncio.timeout(seconds):
                await sent.wait()
        except TimeoutError:
            _log.info("some spans were not sent")


class _Ids:
    """Generates random ids, except for a trace whose id is set beforehand."""

    def __init__(self, others: Any) -> None:
        self._others, self.next_trace = others, _NO_TRACE

    def generate_span_id(self) -> int:
        """Return a new id of a span."""
        return int(self._others.generate_span_id())

    def generate_trace_id(self) -> int:
        """Return the id of the next trace."""
        return self.next_trace or int(self._others.generate_trace_id())

    def is_trace_id_random(self) -> bool:
        """Return False: some ids are not random."""
        return False


def _trace_id(uid: str) -> int:
    """Return a UID as a number; `_NO_TRACE` when the text is no UID."""
    try:
        return int(uid.replace("-", ""), 16) % (1 << 128)
    except ValueError:
        return _NO_TRACE


def traces_from(environ: Mapping[str, str] | None = None, *, exporter: SpanExporter | None = None) -> Traces | None:
    """Return the traces that the environment configures; None without an endpoint, or when OTEL_SDK_DISABLED is true.

    A missing library is logged, and gives None.  The library itself reads all other settings (`OTEL_TRACES_SAMPLER`,
    `OTEL_SERVICE_NAME`, `OTEL_BSP_...`).  `exporter`: send spans to this exporter instead.
    """
    found = os.environ if environ is None else environ
    if not any(found.get(name) for name in ENDPOINTS) or found.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError as e:
        _log.warning("no traces are made: install kqueue[traces], or unset the endpoint", missing=e.name)
        return None

    ids = _Ids(RandomIdGenerator())
    name = {} if found.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "kqueue"}
    provider = TracerProvider(resource=Resource.create(name), id_generator=cast("Any", ids), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter if exporter is not None else OTLPSpanExporter()))
    _log.info("traces are sent", endpoint=next(found[name] for name in ENDPOINTS if found.get(name)))
    return Traces(provider, ids)
