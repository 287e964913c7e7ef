"""What a pod takes from its node."""

from __future__ import annotations

import pytest

from kqueue.core.pod_requests import ContainerRequests, pod_requests


def cpu(request: int | None = None, *, limit: int | None = None, sidecar: bool = False) -> ContainerRequests:
    return ContainerRequests(
        requests={} if request is None else {"cpu": request},
        limits={} if limit is None else {"cpu": limit},
        sidecar=sidecar,
    )


@pytest.mark.parametrize(
    ("containers", "init", "want"),
    [
        pytest.param([cpu(100), cpu(200)], [], 300, id="containers-add-up"),
        pytest.param([cpu(100)], [cpu(500)], 500, id="the-init-peak-counts-where-it-is-larger"),
        pytest.param([cpu(100)], [cpu(50), cpu(70)], 100, id="init-containers-run-one-after-another"),
        pytest.param([cpu(100)], [cpu(50, sidecar=True)], 150, id="sidecars-run-beside-the-containers"),
        pytest.param([cpu(10)], [cpu(50, sidecar=True), cpu(200)], 250, id="init-runs-beside-earlier-sidecars"),
        pytest.param([cpu(10)], [cpu(200), cpu(50, sidecar=True)], 200, id="later-sidecars-do-not-burden-init"),
        pytest.param([cpu(limit=300)], [], 300, id="a-limit-stands-in-for-a-missing-request"),
        pytest.param([cpu(100, limit=300)], [], 100, id="a-request-wins-over-its-limit"),
    ],
)
def test_a_pod_takes_the_larger_of_running_and_starting(
    containers: list[ContainerRequests], init: list[ContainerRequests], want: int
) -> None:
    """The total is what runs together, or the peak of the init phase."""
    assert pod_requests(containers, init) == {"cpu": want}


def test_pod_level_requests_replace_the_sum_of_what_they_name() -> None:
    """Other resources keep the sum; a pod-level limit fills in where no container speaks."""
    container = ContainerRequests(requests={"cpu": 100, "memory": 7})
    pod_level = ContainerRequests(requests={"cpu": 400}, limits={"memory": 99, "hugepages-2Mi": 4})
    assert pod_requests([container], pod_level=pod_level) == {"cpu": 400, "memory": 7, "hugepages-2Mi": 4}


def test_overhead_comes_on_top() -> None:
    """RuntimeClass overhead is added to everything else."""
    assert pod_requests([cpu(100)], [cpu(300)], overhead={"cpu": 25, "memory": 5}) == {"cpu": 325, "memory": 5}


def test_a_pod_that_asks_for_nothing_takes_nothing() -> None:
    """Zero stated and nothing stated differ: the resource is named or not."""
    assert pod_requests([ContainerRequests()]) == {}
    assert pod_requests([cpu(0)]) == {"cpu": 0}
