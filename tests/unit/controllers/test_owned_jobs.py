"""Jobs below the owner of a Workload are followed, so that their pods keep its quota until they have ended."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.owned_jobs import OwnedJobs
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import make_workload, read
from tests.unit.controllers.test_children import job, job_set

JSON = dict[str, Any]
JOB, JOB_SET = ("batch", "Job"), ("jobset.x-k8s.io", "JobSet")
OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "set-uid"}


def below(owner: str, obj: JSON) -> JSON:
    """The object with a controller of this UID."""
    reference = {**OWNER, "name": owner, "uid": f"{owner}-uid", "controller": True}
    return obj | {"metadata": obj["metadata"] | {"ownerReferences": [reference]}}


def owned(*jobs: JSON, parent: JSON | None) -> OwnedJobs:
    """What watches have brought: a JobSet, and Jobs of two selections."""
    sets, queued, children = Store[JSON]("sets"), Store[JSON]("jobs"), Store[JSON]("children")
    for store, objects in ((sets, [parent] if parent else []), (queued, jobs[:1]), (children, jobs[1:])):
        for obj in objects:
            meta = {"namespace": "ns", "uid": f"{obj['metadata']['name']}-uid", **obj["metadata"]}
            store.put(f"ns/{meta['name']}", obj | {"metadata": meta})
    return OwnedJobs({JOB: [queued, children], JOB_SET: [sets]})


@pytest.mark.parametrize(
    ("jobs", "parent", "followed"),
    [
        pytest.param([below("set", job("set-workers-0"))], job_set(), {"set-workers-0"}, id="a-job-of-a-jobset"),
        pytest.param(
            [below("set", job("set-workers-0")), below("set", job("set-workers-1"))],
            job_set(),
            {"set-workers-0", "set-workers-1"},
            id="jobs-of-two-watches",
        ),
        pytest.param(
            [below("set", job("set-workers-0")), below("set-workers-0", job("lower", pods=1))],
            job_set(),
            {"set-workers-0", "lower"},
            id="a-job-of-a-job",
        ),
        pytest.param([below("other", job("set-workers-0"))], job_set(), set(), id="of-another-owner"),
        pytest.param([below("set", job("forged"))], job_set(), set(), id="a-name-that-the-jobset-never-gives"),
        pytest.param([below("set", job("set-workers-0", pods=9))], job_set(), set(), id="larger-than-the-jobset-makes-it"),
        pytest.param([below("set", job("set-workers-0"))], None, {"set-workers-0"}, id="the-jobset-was-deleted"),
        pytest.param([below("set-workers-0", job("set-workers-0"))], job_set(), set(), id="a-job-that-names-itself"),
    ],
)  # fmt: skip
def test_jobs_that_an_owner_has_made_are_followed(jobs: list[JSON], parent: JSON | None, followed: set[str]) -> None:
    """Down to Jobs of Jobs; a Job that its owner never makes is left out."""
    workload = read(wire.Workload, make_workload(metadata={"ownerReferences": [OWNER]}))

    found = owned(*jobs, parent=parent).controllers_of([workload])

    assert found == {"set-uid"} | {f"{name}-uid" for name in followed}
