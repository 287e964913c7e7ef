"""The rules of Events in their two versions, which are stored as one kind.

Source: Kubernetes, `pkg/apis/core/validation/events.go`; a test compares both servers.
"""

from __future__ import annotations

from kqueue.sandbox import failure
from kqueue.sandbox.api import Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.metadata import qualified_name_problem
from kqueue.sandbox.strategy import WriteStrategy

_TYPES = ("Normal", "Warning")
_LONGEST_WORD, _LONGEST_MESSAGE = 128, 1024
_NAMESPACES_OF_CLUSTER_OBJECTS = ("default", "kube-system")
_DEPRECATED = {
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "deprecatedSource": "source",
}
"""Fields of events.k8s.io, and their names in error messages, which are names of the core group."""


def core_causes(event: Object) -> list[Cause]:
    """Return mistakes in an Event of the core group."""
    return _causes(event, about="involvedObject", message="message", component="reportingComponent")


def new_causes(event: Object) -> list[Cause]:
    """Return mistakes in an Event of events.k8s.io."""
    return _causes(event, about="regarding", message="note", component="reportingController")


def new_create_causes(event: Object) -> list[Cause]:
    """Return mistakes in a new Event of events.k8s.io: it needs a time and a known type, and no core field."""
    found = [] if event.get("eventTime") else [failure.required("eventTime")]
    if event.get("type") not in _TYPES:
        found.append(failure.invalid("type", "", "has invalid value"))
    return found + [
        failure.invalid(name, "", "needs to be unset") for field, name in _DEPRECATED.items() if event.get(field)
    ]


def _causes(event: Object, *, about: str, message: str, component: str) -> list[Cause]:
    """Return mistakes of both kinds; an Event without an eventTime has fewer rules."""
    if not event.get("eventTime"):
        return []
    found = []
    namespace = event["metadata"].get("namespace", "")
    if not (event.get(about) or {}).get("namespace") and namespace not in _NAMESPACES_OF_CLUSTER_OBJECTS:
        found.append(failure.invalid("involvedObject.namespace", "", "does not match event.namespace"))
    found += _component_causes(str(event.get(component) or ""), component)
    for field in ("reportingInstance", "action", "reason"):
        found += _word_causes(str(event.get(field) or ""), field)
    if len(str(event.get(message) or "").encode()) > _LONGEST_MESSAGE:
        found.append(failure.invalid("message", "", f"can have at most {_LONGEST_MESSAGE} characters"))
    return found


def _component_causes(value: str, field: str) -> list[Cause]:
    """Return mistakes in a component's name; an empty name gives three, as in the real server."""
    found = [] if value else [failure.required(field), failure.invalid(field, "", "name part must be non-empty")]
    problem = qualified_name_problem(value)
    return [*found, failure.invalid(field, value, problem)] if problem else found


def _word_causes(value: str, field: str) -> list[Cause]:
    if not value:
        return [failure.required(field)]
    if len(value.encode()) > _LONGEST_WORD:
        return [failure.invalid(field, "", f"can have at most {_LONGEST_WORD} characters")]
    return []


EVENT = WriteStrategy(validate=core_causes)
NEW_EVENT = WriteStrategy(validate=new_causes, validate_create=new_create_causes)
