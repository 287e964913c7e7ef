"""An in-memory Kubernetes API server with a simulated cluster, without any code about queueing.

`Sandbox` combines all parts: server, nodes, kubelets, scheduler, controllers of Jobs and other kinds.  The simulated
controllers use the server through the protocol `api.Api`, and `simulation.ClusterSimulation` runs them on any
implementation of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kqueue.sandbox.cluster import Sandbox, SandboxOptions

__all__ = ["Sandbox", "SandboxOptions"]


def __getattr__(name: str) -> Any:
    """Import the two public names at first use, because their imports are heavy."""
    if name in __all__:
        from kqueue.sandbox import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
