"""The queue that a namespace gives to gangs whose members and group object name none."""

from __future__ import annotations

from typing import NamedTuple

from kqueue.api import gang_names, names
from kqueue.controllers.manager import Manager
from kqueue.runtime.store import object_key


class NamespaceQueue(NamedTuple):
    """The queue of a namespace."""

    named: str
    """The LocalQueue in the label of the namespace; empty: there is no label."""
    has_default: bool
    """Whether the namespace has a LocalQueue named `default`."""


def namespace_queue(manager: Manager, namespace: str) -> NamespaceQueue:
    """Return the queue that a namespace gives, as the watches have it."""
    labels = manager.namespace_labels(namespace) or {}
    default = object_key(namespace, names.DEFAULT_LOCAL_QUEUE)
    return NamespaceQueue(labels.get(gang_names.GANG_QUEUE_LABEL, ""), default in manager.watches.local_queues.store)
