"""Names that kqueue writes in jobs of single kinds."""

from __future__ import annotations

from typing import Final

# ---- Names in jobs of single kinds -----------------------------------------------------------------------------------

STARTING_ANNOTATION: Final = "kqueue.dev/starting"
"""On a TrainJob while kqueue starts it in two writes: `true` from the first write to the second."""
RUNTIME_PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"
"""Manager of kqueue's entry in the runtime patches of a TrainJob."""
