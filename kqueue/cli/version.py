"""`kqueue version`: the version of this program, and the images of the controllers in the cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption, printable, show
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.runtime.client import Client

_LABELS = "app.kubernetes.io/name=kqueue,app.kubernetes.io/component=controller"
"""Labels that kqueue's chart sets on the controller's Deployment."""
_USUAL = (("kqueue-system", "kqueue-controller"), ("kueue-system", "kueue-controller-manager"))
"""Namespace and name of usual Deployments, for users without the right to list all; the second is Kueue's own."""
_CONTAINERS = ("controller", "manager")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reaches_cluster(version))


def version(
    client: Annotated[bool, typer.Option("--client", help="Do not ask the cluster.")] = False,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Print the version of this program, and the image of the controllers.

    The image is printed if flags or environment name a cluster, and the cluster has controllers.
    """
    from dataclasses import asdict

    from kqueue.build import build

    facts: dict[str, Any] = {key: value for key, value in asdict(build()).items() if value}
    if not client and _names_cluster(reach):
        images = _images(reach)
        if images:
            facts["controller"] = printable(", ".join(images)) if output is Output.TEXT else images
    show(facts, output)


def _names_cluster(reach: ReachFlags) -> bool:
    """Whether flags, environment or files name a cluster; on a machine without any, only the version is printed."""
    named = reach.kubeconfig or os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST")
    return bool(named) or Path("~/.kube/config").expanduser().exists()


def _images(reach: ReachFlags) -> list[str]:
    """Return the images of the controllers; on a failure none, and a note on stderr gives the cause."""
    from kqueue.errors import ApiError
    from kqueue.runtime.loop import run

    async def work() -> list[str]:
        async with reach.session(quick=True) as session:
            return await _find(session.client)

    try:
        return run(work())
    except ApiError as e:
        print(f"kqueue: the controller's version is not shown: {printable(e)}", file=sys.stderr)
        return []


async def _find(client: Client) -> list[str]:
    from kqueue.errors import ForbiddenError, NotFoundError
    from kqueue.runtime.resources import ResourceType

    deployments = ResourceType("apps", "v1", "deployments", "Deployment")
    try:
        found = await client.list_json(deployments, label_selector=_LABELS)
    except ForbiddenError:
        found = []
    names = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found}
    for namespace, name in _USUAL:
        if (namespace, name) not in names:
            try:
                found.append(await client.get_json(deployments, name, namespace))
            except (ForbiddenError, NotFoundError):
                continue
    return list(dict.fromkeys(image for each in found for image in _images_of(each)))


def _images_of(deployment: dict[str, Any]) -> list[str]:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return [str(each.get("image")) for each in containers if each.get("name") in _CONTAINERS]
