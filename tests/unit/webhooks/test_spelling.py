"""Warnings about names that look misspelt: what is warned of, and what is left in peace."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kqueue.api import gang_names, move_names, names, run_time_names
from kqueue.errors import KqueueError
from kqueue.jobs.switches import JobFeatures
from kqueue.kube import names as kube_names
from kqueue.sandbox import names as sandbox_names
from tests.unit.webhooks.test_routes import at_once
from tests.unit.webhooks.test_surroundings import World
from webhooks.review import Request, ReviewResult
from webhooks.routes import routes
from webhooks.spelling import MAX_WARNINGS, unknown_names
from webhooks.surroundings import LookupFailedError

Object = dict[str, Any]
OURS = "kueue.x-k8s.io"
TEMPLATE = "spec.template.metadata"
RACK = "cloud.example/rack"


def job(*, template: dict[str, str] | None = None, labels: dict[str, str] | None = None, **metadata: Any) -> Object:
    pods = {"metadata": {"annotations": template or {}, "labels": labels or {}}, "spec": {"containers": []}}
    own = {"name": "j", "labels": {names.QUEUE_NAME_LABEL: "main"}, **metadata}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": own, "spec": {"parallelism": 4, "template": pods}}


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        pytest.param(
            job(template={f"{OURS}/podset-prefered-topology": RACK}),
            f"{TEMPLATE}.annotations: {OURS}/podset-prefered-topology is unknown and has no effect; "
            f"did you mean {OURS}/podset-preferred-topology?",
            id="a letter is missing",
        ),
        pytest.param(
            job(template={f"{OURS}/colour": "red"}),
            f"{TEMPLATE}.annotations: {OURS}/colour is unknown and has no effect",
            id="nothing is near",
        ),
        pytest.param(
            job(annotations={f"{OURS}/placement-profil": "optimal"}),
            f"metadata.annotations: {OURS}/placement-profil is unknown and has no effect; "
            "did you mean kqueue.dev/placement-profile?",
            id="the other prefix",
        ),
        pytest.param(
            job(labels={f"{OURS}/priority-clas": "high"}),
            f"{TEMPLATE}.labels: {OURS}/priority-clas is unknown and has no effect; "
            f"did you mean {OURS}/priority-class?",
            id="a label",
        ),
        pytest.param(
            job(annotations={names.PRIORITY_CLASS_LABEL: "high"}),
            f"metadata.annotations: {OURS}/priority-class is a label, and has no effect as an annotation",
            id="a label among annotations",
        ),
        pytest.param(
            job(labels={names.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}),
            f"{TEMPLATE}.labels: {OURS}/podset-required-topology is an annotation, and has no effect as a label",
            id="an annotation among labels",
        ),
        pytest.param(
            job(annotations={names.REQUIRED_TOPOLOGY_ANNOTATION: RACK}),
            f"metadata.annotations: {OURS}/podset-required-topology has no effect here; "
            "write it into the pod template's metadata",
            id="on the job instead of its template",
        ),
    ],
)
def test_a_name_without_effect_is_warned_of(obj: Object, said: str) -> None:
    assert unknown_names(obj, None) == [said]
    assert unknown_names(obj, obj) == []


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(job(), id="nothing"),
        pytest.param(job(template={names.PREFERRED_TOPOLOGY_ANNOTATION: RACK}), id="known"),
        pytest.param(job(annotations={names.PREFER_TOPOLOGY_ALIAS_ANNOTATION: RACK}), id="an alias counts on the job"),
        pytest.param(job(template={"example.com/podset-prefered-topology": RACK}), id="the prefix of others"),
        pytest.param(job(annotations={f"{names.PROVISIONING_REQUEST_ANNOTATION_PREFIX}any": "1"}), id="any parameter"),
        pytest.param(job(template={sandbox_names.RUN_SECONDS_ANNOTATION: "3"}), id="the sandbox's"),
        pytest.param({"metadata": {"annotations": [1]}, "spec": [{"metadata": 7, "spec": {}}]}, id="misshapen"),
    ],
)
def test_other_names_are_left_in_peace(obj: Object) -> None:
    assert unknown_names(obj, None) == []


def test_every_label_and_annotation_of_ours_is_known() -> None:
    """A constant that no longer ends in _LABEL or _ANNOTATION would be warned of."""
    every = vars(names) | vars(gang_names) | vars(move_names) | vars(run_time_names)
    ours = {key: value for key, value in every.items() if key.endswith(("_LABEL", "_ANNOTATION"))}
    for key, value in ours.items():
        field = "labels" if key.endswith("_LABEL") else "annotations"
        pod = {"metadata": {field: {value: "x"}}, "spec": {"containers": []}}
        assert unknown_names(pod, None) == []
    assert len(ours) > 50


def test_templates_are_found_at_any_depth() -> None:
    """A JobSet has them below its replicated jobs."""
    wrong = {f"{OURS}/podset-slice-sise": "4"}
    child = {"metadata": {}, "spec": job(template=wrong)["spec"]}
    jobset = {"metadata": {}, "spec": {"replicatedJobs": [{"name": "a", "template": child}]}}

    assert [said.partition(": ")[0] for said in unknown_names(jobset, None)] == [
        "spec.replicatedJobs[0].template.spec.template.metadata.annotations"
    ]


def test_warnings_are_few_and_short_whatever_is_written() -> None:
    """Thousands of unknown keys cost as much as a few."""
    obj = job(template={f"{OURS}/{'x' * 200}-{number}": "" for number in range(5000)})

    found = unknown_names(obj, None)

    assert len(found) == MAX_WARNINGS
    assert max(map(len, found)) < 256


class Topologies(World):
    """Lookups that know the levels of Topologies."""

    def __init__(self, *levels: str, fails: Exception | None = None) -> None:
        super().__init__()
        self.levels, self.fails_on_levels = frozenset(levels), fails

    async def topology_levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        self._ask("levels")
        if self.fails_on_levels is not None:
            raise self.fails_on_levels
        return self.levels


def asked(world: World, obj: Object, old: Object | None = None) -> ReviewResult:
    handler = routes(["batch/job"], JobFeatures(), lookups=world)["/validate-batch-v1-job"]
    return at_once(handler, Request(uid="u", operation="CREATE", obj=obj, old=old, namespace="ns"))


LAYERS = '[{"topology": "cloud.example/rak", "size": 4}, {"topology": "kubernetes.io/hostname", "size": 2}]'
MISSPELT = f"{TEMPLATE}.annotations: no Topology has level cloud.example/rak; did you mean {RACK}?"


@pytest.mark.parametrize(
    ("annotations", "warned"),
    [
        ({names.REQUIRED_TOPOLOGY_ANNOTATION: "cloud.example/rak"}, [MISSPELT]),
        ({names.PREFERRED_TOPOLOGY_ANNOTATION: "cloud.example/rak"}, [MISSPELT]),
        ({names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION: "cloud.example/rak", names.SLICE_SIZE_ANNOTATION: "2"}, [MISSPELT]),
        ({names.SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION: LAYERS}, [MISSPELT]),
        ({names.REQUIRED_TOPOLOGY_ANNOTATION: RACK}, []),
        ({names.PREFERRED_TOPOLOGY_ANNOTATION: names.AUTO_TOPOLOGY}, []),
    ],
)
def test_a_level_that_no_topology_has_is_warned_of(annotations: dict[str, str], warned: list[str]) -> None:
    answer = asked(Topologies(RACK, "cloud.example/block", kube_names.HOSTNAME_LABEL), job(template=annotations))

    assert (answer.allowed, list(answer.warnings)) == (True, warned)


def test_levels_are_looked_up_only_where_they_are_new() -> None:
    world, wrong = Topologies(RACK), job(template={names.REQUIRED_TOPOLOGY_ANNOTATION: "cloud.example/rak"})

    assert asked(world, job()).warnings == []
    assert asked(world, wrong, wrong).warnings == []
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "controller": True, "uid": "u"}
    made = {**wrong, "metadata": {**wrong["metadata"], "ownerReferences": [owner]}}
    assert asked(world, made).warnings == []
    assert "levels" not in world.asked


@pytest.mark.parametrize("fails", [LookupFailedError("no right"), LookupFailedError("too late")])
def test_a_failed_lookup_refuses_and_warns_of_nothing(fails: KqueueError) -> None:
    """A webhook with the rights of an older version may not list Topologies."""
    obj = job(template={names.REQUIRED_TOPOLOGY_ANNOTATION: "cloud.example/rak"})

    answer = asked(Topologies(fails=fails), obj)

    assert (answer.allowed, answer.warnings) == (True, [])


def test_a_field_that_is_not_judged_is_warned_of_beside_a_level() -> None:
    """The review lets the object in."""
    obj = job(template={names.REQUIRED_TOPOLOGY_ANNOTATION: RACK})
    obj["spec"]["template"]["spec"]["topologySpreadConstraints"] = [{"whenUnsatisfiable": "DoNotSchedule"}]
    answer = asked(Topologies(RACK), obj)

    assert answer.allowed
    (warned,) = answer.warnings
    assert warned.startswith("spec.template.spec: kqueue does not judge topologySpreadConstraints")
