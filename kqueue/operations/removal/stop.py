"""Stopping kqueue's Deployments before a release: they would set gates, finalizers and webhooks again."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.clock import Clock
from kqueue.controllers.resources import PODS
from kqueue.errors import ConfigError, KqueueError, NotFoundError
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType

DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
_LOOK_SECONDS = 0.5
GONE_SECONDS = 120.0
"""Limit for the end of pods, in seconds: their grace period, and the delay of the node's report."""


def parsed(written: str) -> tuple[str, str]:
    """Parse the value of `--stop`: namespace and name of a Deployment.

    Raises:
        ConfigError: the value has another form.
    """
    namespace, _, name = written.partition("/")
    if not namespace or not name or "/" in name:
        raise ConfigError(f"--stop {written}: must be NAMESPACE/NAME of a Deployment")
    return namespace, name


async def stop(
    client: Client, deployments: Iterable[tuple[str, str]], clock: Clock, *, seconds: float = GONE_SECONDS
) -> None:
    """Scale Deployments to 0, and return when their last pod is gone.  A missing Deployment counts as stopped.

    Raises:
        KqueueError: pods still exist after `seconds`; the text names one.
        ApiError: the API server refused.
    """
    selectors = []
    for namespace, name in deployments:
        try:
            scale = await client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 0}}, namespace, subresource="scale")
        except NotFoundError:
            continue
        selectors.append((namespace, str(scale.get("status", {}).get("selector", ""))))
    until = clock.monotonic() + seconds
    for namespace, selector in selectors:
        while pods := await client.list_json(PODS, namespace, label_selector=selector):
            if clock.monotonic() >= until:
                name = pods[0]["metadata"]["name"]
                raise KqueueError(
                    f"pod {namespace}/{name} has not ended within {seconds:g} s; see what holds it (kubectl -n "
                    f"{namespace} describe pod {name}), and run this again"
                )
            await clock.sleep(_LOOK_SECONDS)
