"""The queue of a group object, and the one that its namespace gives where it names none."""

from __future__ import annotations

from typing import NamedTuple

from kqueue.api import gang_names, names
from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import JSON
from kqueue.jobs.fields import text
from kqueue.jobs.gang.registry import named_queue
from kqueue.runtime.store import object_key


class NamespaceQueue(NamedTuple):
    """The queue of a namespace."""

    named: str
    """The LocalQueue in the label of the namespace; empty: there is no label."""
    has_default: bool
    """Whether the namespace has a LocalQueue named `default`."""


def queue_of_object(manager: Manager, framework: str, obj: JSON) -> str:
    """Return the LocalQueue of a group object of a dialect, as its members without a label get it; empty: none."""
    namespace = text(obj, "metadata", "namespace")
    if not manager.manages(namespace):
        return ""
    named = named_queue(framework, obj, manager.watches.local_queues.store.__contains__)
    found = namespace_queue(manager, namespace)
    return named or found.named or (names.DEFAULT_LOCAL_QUEUE if found.has_default else "")


def namespace_queue(manager: Manager, namespace: str) -> NamespaceQueue:
    """Return the queue that a namespace gives, as the watches have it."""
    labels = manager.namespace_labels(namespace) or {}
    default = object_key(namespace, names.DEFAULT_LOCAL_QUEUE)
    return NamespaceQueue(labels.get(gang_names.GANG_QUEUE_LABEL, ""), default in manager.watches.local_queues.store)


def has_queue(manager: Manager, framework: str, obj: JSON) -> bool:
    """Whether gangs of the object are queued: a queue is known for them, or they need none."""
    without = manager.config.manage_jobs_without_queue_name and manager.manages(text(obj, "metadata", "namespace"))
    return without or bool(queue_of_object(manager, framework, obj))
