"""The thread that uploads the record of decisions while a process records."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import structlog

from kqueue.isolation import isolated_logged
from kqueue.record.store import RecordStorage
from kqueue.record.uploads import UploadCounter, Uploads

_log = structlog.get_logger(__name__)


class RecordUploader:
    """Sends complete files of a folder, in a thread of its own; nothing waits for it but `stop`."""

    def __init__(
        self,
        folder: Path,
        store: RecordStorage,
        *,
        interval: float,
        count: UploadCounter,
        now: Callable[[], datetime],
        chance: random.Random | None = None,
    ) -> None:
        """`interval` is the time between two looks, in seconds; it varies by a tenth."""
        self._folder, self._store, self._interval = folder, store, interval
        self._count, self._now, self._chance = count, now, chance or random.Random()
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is not None:
            return
        self._ends = threading.Event()
        uploads = Uploads(
            self._folder,
            self._store,
            count=self._count,
            now=self._now,
            wait=self._ends.wait,
            chance=self._chance,
        )
        run = (uploads, self._ends)
        self._thread = threading.Thread(target=self._run, args=run, name="decision record upload", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Send the files that the ring has ended by now, and wait for that, at most so many seconds.

        The thread may go on longer where the storage is slow; what it does not send, the next process sends if it
        has the folder.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ends.set()
        thread.join(timeout)

    # --- on the thread

    def _run(self, uploads: Uploads, ends: threading.Event) -> None:
        while not ends.wait(self._interval * self._chance.uniform(0.9, 1.1)):
            with isolated_logged(_log, "decision record is not uploaded"):
                uploads.look()
        with isolated_logged(_log, "decision record is not uploaded"):
            uploads.look(is_last=True)
