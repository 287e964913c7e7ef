"""Metrics of the record of decisions."""

from __future__ import annotations

from kqueue.observe.family import Counter, Registry


class RecordMetrics:
    """Counts cycles by what became of their entries.  May be called from any thread."""

    def __init__(self, registry: Registry) -> None:
        self._cycles = Counter(
            "kqueue_decision_record_cycles_total",
            "Cycles by what became of their entries in the record",
            ("result",),
            registry=registry,
        )
        self._bytes = Counter(
            "kqueue_decision_record_bytes_total", "Bytes that the record has written", registry=registry
        )

    def recorded(self, result: str, stored: int) -> None:
        """Count a cycle: `written`, with its bytes on disk, `dropped` (the disk is slow) or `failed`."""
        self._cycles.labels(result).inc()
        self._bytes.inc(stored)
