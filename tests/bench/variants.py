"""`variants/*`: what concurrent admission costs the scheduler.  `make bench ROWS=variants`.

Each of 300 ClusterQueues has three flavors; the first two are full, and the third has room for the workload that waits.
Without `concurrentAdmissionPolicy` a cycle looks at the flavors of each workload in turn, and admits all.  With the policy
each workload is a parent with three variants, one per flavor: a cycle says once that the parent waits for them, and others
try one variant of each ClusterQueue.

    variants/all_fit_last   admit_all_ms    until each workload is admitted, with the policy; the floor is the same
                                            without it, measured in turn with it
                            cycle_ms        the mean cycle of that; the floor is the one cycle without the policy
                            cycles          with the policy
    variants/none_fit       cycle_ms        all flavors are full: the mean of the cycles until all have been tried; the
                                            floor is the one cycle without the policy
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from kqueue.api import names, variant_names
from kqueue.api.wire import kueue as wire
from kqueue.model.variants import variant_name
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.variants import VariantRules
from tests.bench._crowd import Stage, running
from tests.bench._scheduler import World
from tests.bench.table import Figure, Row, check, timed

QUEUES = 300
FLAVORS = ("reserved", "spot", "ondemand")
"""The most preferred first."""
QUOTA, ASKED = {"cpu": "8"}, {"cpu": "4"}
_FULL = {"cpu": "6"}
_MOST_CYCLES = 10
WITH_VARIANTS = LoopSettings(preemption_gates=True, variants=VariantRules())


def fill(full: int, policy: bool, world: World) -> None:
    """The first `full` flavors have no room for the workload that waits in each ClusterQueue."""
    for flavor in FLAVORS:
        made = msgspec.convert({"metadata": {"name": flavor}, "spec": {}}, wire.ResourceFlavor)
        world.intake.on_flavor(None, made)
    more: dict[str, Any] = (
        {"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}} if policy else {}
    )
    for number in range(QUEUES):
        queue = f"cq-{number:03}"
        world.queue(queue, quota=QUOTA, flavors=FLAVORS, **more)
        for flavor in FLAVORS[:full]:
            status = running(queue, _FULL, flavor=flavor)
            world.workload(f"runs-{flavor}", queue=queue, pods=1, requests=_FULL, status=status)
        if policy:
            _family(world, queue)
        else:
            world.workload("waits", queue=queue, pods=1, requests=ASKED)


def _family(world: World, queue: str) -> None:
    """A parent, and its variant for each flavor."""
    labels = {variant_names.CONCURRENT_ADMISSION_PARENT_LABEL: "true"}
    parent = world.workload("waits-0", queue=queue, pods=1, requests=ASKED, metadata={"labels": labels}).metadata
    api_version = f"{names.GROUP}/{names.VERSION}"
    identity = {"name": parent.name, "uid": parent.uid}
    owner = {"apiVersion": api_version, "kind": names.WORKLOAD_KIND, "controller": True, **identity}
    for flavor in FLAVORS:
        world.workload(
            variant_name(parent.name, parent.uid, flavor),
            queue=queue,
            pods=1,
            requests=ASKED,
            metadata={
                "annotations": {variant_names.ALLOWED_FLAVORS_ANNOTATION: flavor},
                "ownerReferences": [owner],
            },
            gates=(variant_names.CONCURRENT_ADMISSION_GATE,),
        )


def cycles(stage: Stage, tried: int) -> int:
    """Run cycles until so many workloads have been decided about; return their number."""
    for number in range(1, _MOST_CYCLES + 1):
        stage.cycle()
        if len(stage.world.writer.patches) >= tried:
            return number
    check(False, f"after {_MOST_CYCLES} cycles {len(stage.world.writer.patches)} of {tried} are decided about")
    return 0


def measure(full: int, admitted: int) -> Iterator[Figure]:
    """The time until all workloads of the queues have been tried, with the policy and without it."""
    plain = Stage(partial(fill, full, False))
    variants = Stage(partial(fill, full, True), WITH_VARIANTS)
    lasts: list[int] = []
    floor = timed(partial(cycles, plain, QUEUES), ready=plain.undo)
    tried = QUEUES * (len(FLAVORS) + 1)
    times = timed(lambda: lasts.append(cycles(variants, tried)), ready=variants.undo)
    for stage, what in ((plain, "without"), (variants, "with")):
        queues = {key.partition("/")[0] for key in stage.admitted()}
        check(len(queues) == len(stage.admitted()) == admitted, f"{len(queues)} are admitted {what} the policy")
        stage.close()
    least = sorted(floor)[len(floor) // 2]
    number = max(lasts)
    if admitted:
        yield Figure("admit_all_ms", times, floor=least)
    yield Figure("cycle_ms", [each / number for each in times], floor=least)
    yield Figure("cycles", [number])


ROWS = (
    Row("variants/all_fit_last", partial(measure, 2, QUEUES)),
    Row("variants/none_fit", partial(measure, 3, 0)),
)
