"""The adapter of a kind that a user has declared."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.config.declared import DeclaredKind
from kqueue.errors import InvalidObjectError
from kqueue.jobs.declared import Declared
from kqueue.jobs.kind import Finished, JobContext, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import JSON, make_template, prefixed, pruned

SWITCHES = JobFeatures()


def declared(**changes: Any) -> Declared:
    """A Train: one template for its engine, and a list of groups of wagons."""
    kind = {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "suspend": "spec.policy.hold",
        "podSets": [
            {"template": "spec.engine", "name": "engine"},
            {"template": "spec.wagons[*].template", "replicas": "spec.wagons[*].count", "nameFrom": "spec.wagons[*].label"},
        ],
        "succeeded": {"path": "status.phase", "values": ["Arrived"]},
        "failed": {"condition": "Derailed"},
        "message": "status.note",
        "ready": {"count": "status.wagons[*].ready"},
        "active": "status.wagons[*].pods",
        "podLabels": {"example.com/train": "metadata.name"},
        **changes,
    }  # fmt: skip
    return Declared(DeclaredKind.model_validate(kind))


def train(*, hold: bool = True, counts: tuple[Any, ...] = (2, 3), status: JSON | None = None, **spec: Any) -> JSON:
    wagons = [{"label": f"W{n}", "count": count, "template": make_template()} for n, count in enumerate(counts)]
    return {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "metadata": {"name": "ice", "namespace": "team", "labels": prefixed(queue_name="main")},
        "spec": {"policy": {"hold": hold}, "engine": make_template(labels={"a": "b"}), "wagons": wagons, **spec},
        "status": status or {},
    }


KIND = declared()


@pytest.mark.proves("declared kind", "queueing")
def test_its_pod_sets() -> None:
    """One per template and entry, with names in lower case."""
    found = KIND.pod_sets(train(), SWITCHES)
    assert [(p["name"], p["count"]) for p in found] == [("engine", 1), ("w0", 2), ("w1", 3)]
    assert found[0]["template"]["metadata"] == {"labels": {"a": "b"}}


@pytest.mark.proves("declared kind", "ranks")
def test_its_pods_may_be_numbered() -> None:
    """By the label that the file names; then the topology request says so."""
    numbered = declared(podSets=[{"template": "spec.engine", "podIndexLabel": "example.com/seat"}])
    assert numbered.pod_sets(train(), SWITCHES)[0]["topologyRequest"] == {"podIndexLabel": "example.com/seat"}
    assert "topologyRequest" not in KIND.pod_sets(train(), SWITCHES)[0]


def test_entries_of_a_map_are_named_by_their_keys() -> None:
    """As some training operators have them; those of a list without names get a number."""
    by_key = declared(podSets=[{"template": "spec.roles[*].template", "replicas": "spec.roles[*].n"}])
    role = {"template": make_template(), "n": 2}

    def names_of(roles: Any) -> list[str]:
        return [p["name"] for p in by_key.pod_sets(train(roles=roles), SWITCHES)]

    assert names_of({"Worker": role, "Master": role}) == ["master", "worker"]
    assert names_of([role, role]) == ["main-0", "main-1"]


@pytest.mark.parametrize(
    ("job", "want"),
    [
        pytest.param(train(engine=None), "spec.engine: must be a pod template", id="no template"),
        pytest.param(train(counts=("2",)), "whole number of replicas", id="replicas as text"),
        pytest.param(train(counts=(-1,)), "needs 0 to", id="negative"),
        pytest.param(train(counts=(1 << 40,)), "needs 0 to", id="enormous"),
        pytest.param(train(counts=(1,) * 19), "must hold 1 to 18 pod templates", id="too many"),
        pytest.param(train(wagons=[{"label": "engine", "template": make_template()}]), "name of another", id="a name twice"),
        pytest.param(train(wagons=[{"label": "no name", "template": make_template()}]), "(name)", id="a bad name"),
    ],
)  # fmt: skip
def test_what_makes_no_workload_is_said(job: JSON, want: str) -> None:
    """By the webhook with every mistake, and by whoever builds the Workload."""
    assert any(want in str(p) for p in KIND.problems(job, None, JobContext()))
    with pytest.raises(InvalidObjectError) as caught:
        KIND.pod_sets(job, SWITCHES)
    assert want in str(caught.value)


def test_a_group_of_pod_sets_is_a_pair_with_a_leader() -> None:
    """As for built-in kinds of several pod sets."""
    together = make_template(annotations=prefixed(podset_required_topology="rack", podset_group_name="all"))
    wagon = {"label": "w", "count": 4, "template": together}
    alone, pair = train(engine=together), train(engine=together, wagons=[wagon])

    assert [p.path for p in KIND.problems(alone, None, JobContext())] == [
        "spec.engine.metadata.annotations[kueue.x-k8s.io/podset-group-name]"
    ]
    assert KIND.problems(pair, None, JobContext()) == []


@pytest.mark.proves("declared kind", "stop and restore")
def test_a_start_is_undone_by_a_stop() -> None:
    """Exactly what the user wrote comes back, in one step each; both may be repeated."""
    job = train(status={"phase": "Waiting"})
    infos = tuple(
        PodSetInfo(name=n, node_selector={"pool": "x"}, labels=prefixed(podset=n), scheduling_gates=("g",))
        for n in ("engine", "w0", "w1")
    )
    patch = KIND.start(job, infos)
    assert isinstance(patch, dict)
    started = apply_merge_patch(job, patch)
    assert started["spec"]["policy"]["hold"] is False
    templates = [started["spec"]["engine"], *(w["template"] for w in started["spec"]["wagons"])]
    assert [t["spec"]["nodeSelector"] for t in templates] == [{"pool": "x"}] * 3
    before = (
        PodSetInfo(name="engine", labels={"a": "b"}),
        PodSetInfo(name="w0"),
        PodSetInfo(name="w1"),
    )

    steps = KIND.stop(started, before)

    assert [step.suspends for step in steps] == [True]
    stopped = apply_merge_patch(started, steps[0].patch)
    assert pruned(stopped) == pruned(job)
    assert KIND.stop(stopped, before) == ()


def test_a_start_that_contradicts_the_template_is_refused() -> None:
    """With the path of what it contradicts."""
    job = train(counts=(), engine=make_template(nodeSelector={"pool": "y"}))
    answer = KIND.start(job, (PodSetInfo(name="engine", node_selector={"pool": "x"}),))
    assert isinstance(answer, Refused)
    assert answer.reasons[0].startswith("spec.engine: nodeSelector entry pool")
    assert isinstance(KIND.start(job, ()), Refused)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"phase": "Rolling"}, None, id="it runs"),
        pytest.param({"phase": "Arrived", "note": "on time"}, Finished("on time", success=True), id="it succeeded"),
        pytest.param({"conditions": [{"type": "Derailed", "status": "True"}]}, Finished("", success=False), id="it failed"),
        pytest.param({"conditions": [{"type": "Derailed", "status": "False"}]}, None, id="not yet"),
        pytest.param({"phase": ["Arrived"], "conditions": "none"}, None, id="nonsense is no end"),
    ],
)  # fmt: skip
def test_how_it_ends(status: JSON, want: Finished | None) -> None:
    """By the declared signs."""
    assert KIND.finished(train(status=status)) == want


def test_its_pods() -> None:
    """Numbers of all entries are added up; a flag is told by its own sign."""
    some = train(status={"wagons": [{"pods": 2, "ready": 2}, {"pods": 0, "ready": "x"}]})
    assert (KIND.active(some), KIND.pods_ready(some)) == (True, False)
    assert KIND.pods_ready(train(status={"wagons": [{"ready": 2}, {"ready": 4}]}))
    flagged = declared(ready={"sign": {"path": "status.up", "values": ["true"]}}, active=None)
    assert flagged.pods_ready(train(status={"up": True}))
    assert not flagged.active(some)
    assert KIND.pod_selector(some) == {"example.com/train": "ice"}


@pytest.mark.proves("declared kind", "webhook defaults")
def test_a_new_one_is_suspended_where_it_is_queued() -> None:
    """By its own flag; one without a queue is left alone."""
    assert KIND.defaults(train(hold=False), JobContext()) == {"spec": {"policy": {"hold": True}}}
    free = train(hold=False)
    free["metadata"]["labels"] = {}
    assert KIND.defaults(free, JobContext()) == {}


@pytest.mark.proves("declared kind", "webhook validation")
def test_its_queue_stays_while_it_runs() -> None:
    """The rules of all kinds hold for it; what is being deleted passes."""
    old, new = train(hold=False), train(hold=False)
    new["metadata"]["labels"] = prefixed(queue_name="other")
    assert [p.path for p in KIND.problems(new, old, JobContext())] == ["metadata.labels[kueue.x-k8s.io/queue-name]"]
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert KIND.problems(new, old, JobContext()) == []
