"""Jobs as plain JSON: what adapters read is kept as it is on the wire, what nobody reads is left out."""

from __future__ import annotations

import msgspec
import pytest

from kqueue.controllers.raw import RawObject, as_json
from tests.unit.jobs.builders import JSON, make_job


def seen(obj: JSON) -> JSON:
    """The object as the watch brings it and JSON would show it."""
    found: JSON = msgspec.json.decode(
        msgspec.json.encode(as_json(msgspec.json.decode(msgspec.json.encode(obj), type=RawObject)))
    )
    return found


def test_spec_and_status_are_kept_as_they_are() -> None:
    """Unknown fields, nulls and empty lists included: adapters of kinds to come read them."""
    job = make_job(status={"active": 1, "unknown": {"a": [1, None, {}]}}, managedBy=None, unknown=[])

    found = seen(job)

    assert (found["spec"], found["status"]) == (job["spec"], job["status"])


def test_of_the_metadata_only_what_somebody_reads_is_kept() -> None:
    """Managed fields are most of an object's size."""
    job = make_job(labels={"a": "b"}, annotations={"c": "d"})
    job["metadata"] |= {
        "managedFields": [{"manager": "kubectl"}],
        "selfLink": "/x",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": True}],
    }

    meta = seen(job)["metadata"]

    assert meta == {key: value for key, value in job["metadata"].items() if key not in ("managedFields", "selfLink")}


@pytest.mark.parametrize("part", ["spec", "status"])
def test_a_part_that_is_missing_is_empty(part: str) -> None:
    """Adapters need not ask whether it is there."""
    job = make_job()
    del job[part]

    assert seen(job)[part] == {}
