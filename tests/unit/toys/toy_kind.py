"""A job kind in one file: `Toy` of toys.example.com, which is shaped like a Job and has a controller of its own."""

from __future__ import annotations

from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import GroupVersionKind
from kqueue.kinds import POD, Kind

ROW = Kind(
    framework="toys.example.com/toy",
    group="toys.example.com",
    version="v1",
    kind="Toy",
    plural="toys",
    makes=frozenset({POD}),
    pod_label="toys.example.com/name",
)


class Toy(BatchJob):
    """The adapter: what is true of Jobs is true of Toys, but for these names."""

    framework = ROW.framework
    gvk = GroupVersionKind(ROW.group, ROW.version, ROW.kind)
    resource = ROW.plural
    own_controller = "toys.example.com/toy-controller"
