"""Names on Workloads of imported objects, which are kqueue's own."""

from __future__ import annotations

from typing import Final

# ---- Names of imports ------------------------------------------------------------------------------------------------

IMPORTED_ANNOTATION: Final = "kqueue.dev/imported"
"""On the Workload of an imported job: the time of the reservation under which the job ran already."""
IMPORT_GATE: Final = "kqueue.dev/import"
"""The admission gate of a Workload until its import has written the admission, so that no cycle does."""
