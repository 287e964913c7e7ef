"""Names that kqueue writes on pods, written on a template by a user: taken out, refused, or without effect."""

from __future__ import annotations

import pytest

from kqueue.api import names
from kqueue.errors import InvalidObjectError
from kqueue.jobs.infos import infos_at_start, infos_at_stop
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import JobContext, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod import PlainPod, start
from kqueue.jobs.several import started as started_together
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import JSON, make_job, make_template, make_workload

JOB = BatchJob()
FLAVORS: dict[str, JSON] = {"cpu": {"spec": {}}}
OTHER = "anything"
ANNOTATION, LABEL, GATE = "annotation", "label", "gate"
TAKEN_OUT = [
    pytest.param(ANNOTATION, names.WORKLOAD_SLICE_NAME_ANNOTATION, id="the name of a slice"),
    pytest.param(ANNOTATION, names.TOPOLOGY_WORKLOAD_ALIAS_ANNOTATION, id="the alias of the workload's name"),
    pytest.param(ANNOTATION, names.TOPOLOGY_PODSET_ALIAS_ANNOTATION, id="the alias of the pod set's name"),
    pytest.param(GATE, names.ADMISSION_GATE, id="the admission gate"),
    pytest.param(GATE, names.TOPOLOGY_GATE, id="the topology gate"),
    pytest.param(GATE, names.ELASTIC_JOB_GATE, id="the gate of elastic jobs"),
]
TAKEN_OUT_OF_JOBS = [
    pytest.param(LABEL, names.MANAGED_LABEL, id="the label of queued pods"),
    pytest.param(LABEL, names.POD_GROUP_NAME_LABEL, id="the label with a group's name"),
    pytest.param(ANNOTATION, names.POD_GROUP_NAME_ANNOTATION, id="the annotation with a group's name"),
    pytest.param(ANNOTATION, names.POD_GROUP_TOTAL_COUNT_ANNOTATION, id="the size of a group"),
]
HARMLESS = [
    pytest.param(LABEL, "kueue.x-k8s.io/tas", id="the label of old versions"),
    pytest.param(ANNOTATION, names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION, id="the slice that is replaced"),
]


def template_with(where: str, name: str) -> JSON:
    """A template on which a user has written a label, an annotation or a gate, beside others of their own."""
    return make_template(
        labels={"mine": "1", **({name: OTHER} if where == LABEL else {})},
        annotations={"mine": "2", **({name: OTHER} if where == ANNOTATION else {})},
        schedulingGates=[{"name": "example.com/mine"}, *([{"name": name}] if where == GATE else [])],
    )


def carries(template: JSON, where: str, name: str) -> bool:
    """Whether it stands there."""
    gates = [gate["name"] for gate in template["spec"].get("schedulingGates", [])]
    metadata = template["metadata"]
    return name in {LABEL: metadata["labels"], ANNOTATION: metadata["annotations"], GATE: gates}[where]


def infos_of(job: JSON, *, topology: bool = True) -> tuple[PodSetInfo, ...]:
    """What an admission without a place adds."""
    workload = make_workload(job, assignment={"flavors": {"cpu": "cpu"}})
    infos = infos_at_start(workload, FLAVORS, switches=JobFeatures(topology=topology))
    assert not isinstance(infos, Refused)
    return infos


def started(job: JSON, *, topology: bool = True) -> JSON | Refused:
    """The job's template after the start."""
    patch = JOB.start(job, infos_of(job, topology=topology))
    if isinstance(patch, Refused):
        return patch
    template: JSON = apply_merge_patch(job, patch)["spec"]["template"]
    return template


@pytest.mark.parametrize(("where", "name"), [*TAKEN_OUT, *TAKEN_OUT_OF_JOBS])
def test_a_start_takes_out_what_only_kqueue_may_write(where: str, name: str) -> None:
    """Else the pods would wait for ever, or count for another Workload; what else the user wrote stays."""
    template = started(make_job(template=template_with(where, name)))

    assert not isinstance(template, Refused)
    assert not carries(template, where, name)
    assert template["metadata"]["labels"]["mine"] == "1"
    assert template["metadata"]["annotations"]["mine"] == "2"
    assert carries(template, GATE, "example.com/mine")


@pytest.mark.parametrize(("where", "name"), [*TAKEN_OUT, *TAKEN_OUT_OF_JOBS])
def test_kinds_of_several_templates_take_it_out_too(where: str, name: str) -> None:
    """They share the start of their templates."""
    template = template_with(where, name)

    found = started_together("JobSet", [("spec.a", template)], infos_of(make_job(template=template)))

    assert isinstance(found, list)
    assert not carries(found[0], where, name)


@pytest.mark.parametrize(("where", "name"), [*TAKEN_OUT, *TAKEN_OUT_OF_JOBS])
def test_a_stop_gives_back_what_the_start_took_out(where: str, name: str) -> None:
    """The user's template is the user's again, and the next start takes it out once more."""
    job = make_job(template=template_with(where, name))
    workload = make_workload(job, assignment={"flavors": {"cpu": "cpu"}})
    patch = JOB.start(job, infos_of(job))
    assert isinstance(patch, dict)
    running = apply_merge_patch(job, patch)

    for step in JOB.stop(running, infos_at_stop(workload)):
        running = apply_merge_patch(running, step.patch)

    assert carries(running["spec"]["template"], where, name)


@pytest.mark.parametrize(("where", "name"), TAKEN_OUT)
def test_a_queued_pod_loses_it_too(where: str, name: str) -> None:
    """A pod that is queued itself starts by a patch of its own."""
    pod = template_with(where, name)
    pod["spec"].setdefault("schedulingGates", []).append({"name": names.ADMISSION_GATE})

    patch = start(pod, infos_of(make_job())[0])

    assert isinstance(patch, dict)
    assert not carries(apply_merge_patch(pod, patch), where, name)


def test_a_queued_pod_keeps_the_marks_of_its_group() -> None:
    """By these kqueue finds the group again."""
    marks = {names.POD_GROUP_NAME_ANNOTATION: "g", names.POD_GROUP_TOTAL_COUNT_ANNOTATION: "2"}
    pod = make_template(
        labels={names.MANAGED_LABEL: "true"}, annotations=marks, schedulingGates=[{"name": names.ADMISSION_GATE}]
    )
    patch = start(pod, infos_of(make_job())[0])
    assert isinstance(patch, dict)
    new = apply_merge_patch(pod, patch)

    assert new["metadata"]["labels"][names.MANAGED_LABEL] == "true"
    assert marks.items() <= new["metadata"]["annotations"].items()


def test_a_name_that_the_admission_gives_stays() -> None:
    """An elastic job keeps its slice and its gate."""
    template = make_template(
        annotations={names.WORKLOAD_SLICE_NAME_ANNOTATION: "first"}, schedulingGates=[{"name": names.ELASTIC_JOB_GATE}]
    )
    job = make_job(template=template, annotations={names.ELASTIC_JOB_ANNOTATION: "true"})
    info = PodSetInfo(
        name="main",
        annotations={names.WORKLOAD_SLICE_NAME_ANNOTATION: "first"},
        scheduling_gates=(names.ELASTIC_JOB_GATE,),
    )
    patch = JOB.start(job, [info])
    assert isinstance(patch, dict)
    found = apply_merge_patch(job, patch)["spec"]["template"]

    assert carries(found, ANNOTATION, names.WORKLOAD_SLICE_NAME_ANNOTATION)
    assert found["spec"]["schedulingGates"] == [{"name": names.ELASTIC_JOB_GATE}]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        pytest.param(ANNOTATION, names.WORKLOAD_ANNOTATION, id="the name of another workload"),
        pytest.param(LABEL, names.PODSET_LABEL, id="another pod set"),
    ],
)
def test_a_start_refuses_another_value_of_what_it_writes(where: str, name: str) -> None:
    """The message names field, value and remedy; the Workload ends with it and gives its quota back."""
    refused = started(make_job(template=template_with(where, name)))

    assert isinstance(refused, Refused)
    assert str(refused).startswith(f"spec.template: {where} {name} is {OTHER!r} and would have to be ")
    assert str(refused).endswith("; remove it there")


def test_without_topology_the_name_of_another_workload_is_taken_out() -> None:
    """Then a start writes no such name, and the pods would hold the quota of the other."""
    template = started(make_job(template=template_with(ANNOTATION, names.WORKLOAD_ANNOTATION)), topology=False)

    assert not isinstance(template, Refused)
    assert names.WORKLOAD_ANNOTATION not in template["metadata"]["annotations"]


@pytest.mark.parametrize("written", ["x", "", "1.5", "9" * 10])
def test_an_index_offset_that_is_no_number_is_refused(written: str) -> None:
    """By the webhook, and without the webhook before a Workload is made."""
    job = make_job(template=make_template(annotations={names.POD_INDEX_OFFSET_ANNOTATION: written}))
    (problem,) = JOB.problems(job, None, JobContext())

    assert problem.path == f"spec.template.metadata.annotations[{names.POD_INDEX_OFFSET_ANNOTATION}]"
    assert problem.problem == "must be an integer of at most 9 digits"
    with pytest.raises(InvalidObjectError, match="must be an integer of at most 9 digits"):
        JOB.pod_sets(job, JobFeatures())


def test_an_index_offset_on_a_queued_pod_is_refused_too() -> None:
    """Also where the pod asks for no topology: it may get a place all the same."""
    pod = make_template(annotations={names.POD_INDEX_OFFSET_ANNOTATION: "x"})
    (problem,) = PlainPod().problems(pod, None, JobContext())

    assert problem.path == f"metadata.annotations[{names.POD_INDEX_OFFSET_ANNOTATION}]"


@pytest.mark.parametrize(("where", "name"), HARMLESS)
def test_a_name_that_kqueue_does_not_read_on_pods_stays(where: str, name: str) -> None:
    """It is the user's."""
    template = started(make_job(template=template_with(where, name)))

    assert not isinstance(template, Refused)
    assert carries(template, where, name)
