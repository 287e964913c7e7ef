"""The gangs of the demo: one of each form, whose pods start together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kqueue.api import gang_names, names
from kqueue.cli.output import printable
from kqueue.cli.story_view import Object, documents, is_true, pod_state, type_of
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.jobs.fields import annotations_of
from kqueue.runtime.client import Client

KINDS = "kinds"
"""Folder of definitions of group objects that are not kqueue's, beside the manifests."""
_LIMIT_SECONDS = 60.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class GangForm:
    """One form of gang in the demo: the manifest's name, and the numbers of its pods."""

    name: str
    framework: str
    title: str
    quorum: int
    pods: int


FORMS = (
    GangForm(name="pod-group", framework="pod", title="Kueue's group of pods", quorum=2, pods=2),
    GangForm(name="labels", framework="kqueue.dev/coscheduling-labels", title="two labels", quorum=2, pods=3),
    GangForm(
        name="coscheduling",
        framework="scheduling.x-k8s.io/podgroup",
        title="a PodGroup of the coscheduling plugin",
        quorum=2,
        pods=2,
    ),
    GangForm(
        name="volcano", framework="scheduling.volcano.sh/podgroup", title="a PodGroup of Volcano", quorum=2, pods=2
    ),
    GangForm(
        name="kubernetes", framework="scheduling.k8s.io/podgroup", title="a PodGroup of Kubernetes", quorum=2, pods=2
    ),
    GangForm(
        name="batch-process", framework="kqueue.dev/batchprocess", title="a BatchProcess of two types", quorum=3, pods=3
    ),
)
"""The forms, in the order of submission; the manifest of each is `gangs/NAME.yaml` of the examples."""


async def show_gangs(client: Client, console: Console, examples: Path) -> list[str]:
    """Submit a gang of each form, and print how each starts; return the gangs that did not start whole."""
    for form in FORMS:
        for obj in documents(examples / "gangs" / f"{form.name}.yaml"):
            await client.create(type_of(obj), obj)
    deadline = time.monotonic() + _LIMIT_SECONDS
    waiting = {form.name: form for form in FORMS}
    while waiting and time.monotonic() < deadline:
        pods, workloads = await client.list_json(PODS, "default"), await client.list_json(WORKLOADS, "default")
        for form in list(waiting.values()):
            if _runs(form, pods) and _is_admitted_whole(form, workloads):
                del waiting[form.name]
                _print_start(console, form)
        await asyncio.sleep(_LOOK_SECONDS)
    return [f"gang {name} did not start as a whole within {_LIMIT_SECONDS:g} s" for name in waiting]


def _runs(form: GangForm, pods: Iterable[Object]) -> bool:
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{form.name}-")]
    return len(mine) == form.pods and all(pod_state(pod) == "running" for pod in mine)


def _is_admitted_whole(form: GangForm, workloads: Iterable[Object]) -> bool:
    """Whether one admitted Workload counts the quorum of the gang."""
    return any(
        is_true(workload, names.CONDITION_ADMITTED)
        and sum(p["count"] for p in workload["spec"]["podSets"]) == form.quorum
        for workload in workloads
        if form.name == workload["metadata"]["name"]
        or f"{form.framework}:{form.name}" == annotations_of(workload).get(gang_names.GANG_ANNOTATION)
    )


def _print_start(console: Console, form: GangForm) -> None:
    more = form.pods - form.quorum
    alone = f"; {more} more started alone" if more else ""
    line = f"{form.name} ({form.title}): {form.quorum} pods started as one Workload{alone}"
    console.print(Text(f"{time.strftime('%H:%M:%S')}  {printable(line)}"))
