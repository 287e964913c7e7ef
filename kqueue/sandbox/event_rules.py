"""The rules of Events in their two versions, which are stored as one kind.

Source: Kubernetes, `pkg/apis/core/validation/events.go`; both servers are compared by a test.
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
"""Fields of events.k8s.io, and their names in complaints, which are those of the core group."""


def core_causes(event: Object) -> list[Cause]:
    """Mistakes in an Event of the core group."""
    return _causes(event, about="involvedObject", message="message", component="reportingComponent")


def new_causes(event: Object) -> list[Cause]:
    """Mistakes in an Event of events.k8s.io."""
    return _causes(event, about="regarding", message="note", component="reportingController")


def new_create_causes(event: Object) -> list[Cause]:
    """Mistakes in a new Event of events.k8s.io: it has a time and a known type, and no field of the core group."""
    found = [] if event.get("eventTime") else [failure.required("eventTime")]
    if event.get("type") not in _TYPES:
        found.append(failure.invalid("type", "", "has invalid value"))
    return found + [
        failure.invalid(told, "", "needs to be unset") for field, told in _DEPRECATED.items() if event.get(field)
    ]


def _causes(event: Object, *, about: str, message: str, component: str) -> list[Cause]:
    """An Event without an eventTime is bound by fewer rules."""
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
    """The server complains of an empty name three times."""
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
