"""Watch handlers that several parts use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kqueue.runtime.controller import Controller


def enqueues(controller: Controller) -> Callable[[Any, Any], None]:
    """Every event of an object without namespace brings it to its own controller."""

    def on_event(old: Any, new: Any) -> None:
        controller.enqueue((new if new is not None else old).metadata.name)

    return on_event


def if_changed(handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Calls the handler unless only the status of an object changed."""

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
