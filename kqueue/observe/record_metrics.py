"""Metrics of the record of decisions."""

from __future__ import annotations

from kqueue.observe.family import Counter, Gauge, Registry


class RecordMetrics:
    """Counts cycles by what became of their entries, and files by their upload.  May be called from any thread."""

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
        self._uploads = Counter(
            "kqueue_decision_record_uploads_total",
            "Files of the record by what became of their upload",
            ("result",),
            registry=registry,
        )
        self._lag = Gauge(
            "kqueue_decision_record_upload_lag_seconds",
            "Age of the oldest complete file of the record that is not uploaded",
            registry=registry,
        )

    def recorded(self, result: str, stored: int) -> None:
        """Count a cycle: `written`, with its bytes on disk, `dropped` (the disk is slow) or `failed`."""
        self._cycles.labels(result).inc()
        self._bytes.inc(stored)

    def uploaded(self, result: str) -> None:
        """Count a file: `uploaded`, `failed` (one try) or `lost` (it was removed before it was uploaded)."""
        self._uploads.labels(result).inc()

    def upload_lag(self, seconds: float) -> None:
        """Show the seconds since the end of the oldest complete file that is not uploaded; 0: there is none."""
        self._lag.set(seconds)
