"""An in-memory Kubernetes API server with a simulated cluster.  Knows nothing of queueing.

`Sandbox` is the whole of it: server, nodes, kubelets, scheduler, Job and DaemonSet controllers.  Underneath, `api.Api`
is what the simulated controllers ask of the server, and `simulation.Simulation` runs them on anything that answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kqueue.sandbox.cluster import Sandbox, SandboxOptions

__all__ = ["Sandbox", "SandboxOptions"]


def __getattr__(name: str) -> Any:
    """The two names of this room, loaded when asked for: their imports are heavy."""
    if name in __all__:
        from kqueue.sandbox import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
