"""Finds the jobs below the owners of a Workload, among the objects of the watches.

A pod names the Job that controls it, not the JobSet above the Job.  The Workload names the JobSet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.controllers.children import may_be_child
from kqueue.jobs.ancestry import controller_uid
from kqueue.kinds import GroupKind
from kqueue.runtime.store import Store

JSON = dict[str, Any]
CHILD_OF = "child of"
"""Index of jobs by the UID of their controller."""
_UID = "uid"
"""Index of jobs by their own UID."""
_LEVELS_MAX = 5
"""The largest number of levels of owners that are followed above a pod."""


class OwnedJobs:
    """Follows controllers downwards, from the owners of Workloads to the Jobs below them."""

    def __init__(self, stores: Mapping[GroupKind, Sequence[Store[JSON]]]) -> None:
        """Take the watched jobs by kind; each store gets the indexes of this module."""
        self._stores = stores
        for watched in stores.values():
            for store in watched:
                store.add_index(CHILD_OF, _controller_uids)
                store.add_index(_UID, lambda job: [job["metadata"].get("uid", "")])

    def controllers_of(self, workloads: Iterable[wire.Workload]) -> set[str]:
        """Return the UIDs of the owners of these Workloads and of all Jobs below them."""
        found = {owner.uid for workload in workloads for owner in workload.metadata.owner_references}
        level = found
        for _ in range(_LEVELS_MAX):
            level = {uid for owner in level for uid in self._made_by(owner)} - found
            if not level:
                break
            found = found | level
        return found

    def jobs_of(self, workloads: Iterable[wire.Workload]) -> Iterator[tuple[GroupKind, JSON]]:
        """Yield kind and object of the owners of these Workloads and of all Jobs below them, if a watch has them."""
        for uid in self.controllers_of(workloads):
            found = self._find(uid)
            if found is not None:
                yield found

    def _made_by(self, owner: str) -> Iterator[str]:
        """Yield the UIDs of jobs that name this owner as their controller and that the owner's controller can have
        created.
        """
        children = [job for store in self._all() for job in store.by_index(CHILD_OF, owner)]
        known = self._find(owner) if children else None
        for child in children:
            if known is None or may_be_child(*known, child, children):
                yield child["metadata"]["uid"]

    def _find(self, uid: str) -> tuple[GroupKind, JSON] | None:
        """Return the kind and the object with this UID; None: no watch has reported it, or it was deleted."""
        for kind, watched in self._stores.items():
            for store in watched:
                for job in store.by_index(_UID, uid):
                    return kind, job
        return None

    def _all(self) -> Iterator[Store[JSON]]:
        for watched in self._stores.values():
            yield from watched


def _controller_uids(job: JSON) -> list[str]:
    uid = controller_uid(job)
    return [uid] if uid else []
