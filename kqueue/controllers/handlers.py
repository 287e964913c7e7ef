"""Watch handlers that several controllers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kqueue.runtime.controller import Controller
from kqueue.runtime.store import Store, split_key


def enqueues(controller: Controller) -> Callable[[Any, Any], None]:
    """Return a handler that enqueues the name of a cluster-scoped object at each of its events."""

    def on_event(old: Any, new: Any) -> None:
        controller.enqueue((new if new is not None else old).metadata.name)

    return on_event


def if_changed(handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a handler that calls `handler` unless an event changed only the object's status, conditions excepted."""

    def changed(old: Any, new: Any) -> None:
        if old is not None and new is not None:
            same_spec = getattr(old, "spec", None) == getattr(new, "spec", None)
            was, now = ((m.labels, m.annotations, m.deletion_timestamp) for m in (old.metadata, new.metadata))
            same_meta = was == now
            same_conditions = _conditions(old) == _conditions(new)
            if same_spec and same_meta and same_conditions:
                return
        handler(old, new)

    return changed


def _conditions(obj: Any) -> Any:
    return getattr(getattr(obj, "status", None), "conditions", None)


def enqueue_all(controller: Controller, *stores: Store[Any]) -> Callable[[object, object], None]:
    """Return a handler that enqueues every object of the stores."""

    def on_event(_old: object, _new: object) -> None:
        for store in stores:
            for key in store:
                controller.enqueue(key)

    return on_event


def enqueue_namespace(controller: Controller, *stores: Store[Any]) -> Callable[[Any, Any], None]:
    """Return a handler of namespaces that enqueues the objects of the namespace.

    The labels of a namespace decide whether its objects are managed.
    """

    def on_namespace(old: Any, new: Any) -> None:
        name = (new if new is not None else old).metadata.name
        for store in stores:
            for key in store:
                if split_key(key)[0] == name:
                    controller.enqueue(key)

    return if_changed(on_namespace)
