"""SparkApplications: the resources of their pods, start and exact restore, what is refused, and when they have ended."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.kind import Finished, JobContext, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.spark import SparkApplication
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, PrioritySource, equivalent, priority_source, workload_for
from kqueue.kinds import FRAMEWORKS
from tests.unit.jobs.builders import JSON, UID, prefixed, pruned

SPARK = SparkApplication()
ON, HERE = JobFeatures(), JobContext()
RACK = prefixed(podset_required_topology="rack")
MARK = "kqueue.dev/spark-start"


def make(
    *,
    driver: JSON | None = None,
    executor: JSON | None = None,
    suspend: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    state: str = "",
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A queued application with one driver and two executors."""
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {
            "name": "pi",
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {
            "type": "Scala",
            "mode": "cluster",
            "suspend": suspend,
            "driver": driver or {},
            "executor": {"instances": 2, **(executor or {})},
            **spec,
        },
        "status": {"applicationState": {"state": state, "errorMessage": ""}, **(status or {})},
    }


def container(pod_set: JSON) -> JSON:
    """Spark's container, the first here."""
    found: JSON = pod_set["template"]["spec"]["containers"][0]
    return found


def requests(job: JSON) -> tuple[JSON, JSON]:
    driver, executor = SPARK.pod_sets(job, ON)
    return container(driver)["resources"]["requests"], container(executor)["resources"]["requests"]


def told(problems: list[Any]) -> list[str]:
    return [problem.path for problem in problems]


# --- to a Workload ----------------------------------------------------------------------------------------------------


def test_there_is_a_driver_and_there_are_executors() -> None:
    found = SPARK.pod_sets(make(executor={"instances": 5}), ON)
    assert [(p["name"], p["count"]) for p in found] == [("driver", 1), ("executor", 5)]
    assert [container(p)["name"] for p in found] == ["spark-kubernetes-driver", "spark-kubernetes-executor"]


@pytest.mark.parametrize(
    ("executor", "conf", "count"),
    [
        pytest.param({"instances": 0}, {}, 0, id="none"),
        pytest.param({"instances": 3}, {"spark.executor.instances": "7"}, 3, id="the field wins"),
        pytest.param({"instances": None}, {"spark.executor.instances": "7"}, 7, id="the property"),
        pytest.param({"instances": None}, {}, 2, id="Spark's own number"),
    ],
)
def test_executors_are_counted_as_spark_starts_them(executor: JSON, conf: dict[str, str], count: int) -> None:
    assert SPARK.pod_sets(make(executor=executor, sparkConf=conf), ON)[1]["count"] == count


@pytest.mark.parametrize(
    ("driver", "more", "cpu", "memory"),
    [
        pytest.param({}, {}, "1", "1408Mi", id="nothing is written: 1 core, 1g and 384m"),
        pytest.param({"cores": 2, "memory": "512m"}, {}, "2", "896Mi", id="the least overhead"),
        pytest.param({"memory": "8g"}, {}, "1", "9011Mi", id="a tenth of overhead"),
        pytest.param({"memory": "8g"}, {"type": "Python"}, "1", "11468Mi", id="two fifths without a JVM"),
        pytest.param({"memory": "8g"}, {"type": "R"}, "1", "11468Mi", id="two fifths for R"),
        pytest.param({"memory": "8g"}, {"memoryOverheadFactor": "0.5"}, "1", "12288Mi", id="a factor"),
        pytest.param(
            {"memory": "8g"},
            {"memoryOverheadFactor": "0.5", "sparkConf": {"spark.kubernetes.memoryOverheadFactor": "0.25"}},
            "1",
            "10240Mi",
            id="the property wins over the factor of the application",
        ),
        pytest.param(
            {"memory": "8g"},
            {
                "sparkConf": {
                    "spark.driver.memoryOverheadFactor": "1",
                    "spark.kubernetes.memoryOverheadFactor": "0.25",
                }
            },
            "1",
            "16384Mi",
            id="the property of the role wins",
        ),
        pytest.param({"memory": "1024m", "memoryOverhead": "100"}, {}, "1", "1124Mi", id="an overhead in mebibytes"),
        pytest.param({"memory": "2048"}, {}, "1", "2432Mi", id="memory without a unit is in mebibytes"),
        pytest.param({"memory": "1T"}, {"memoryOverheadFactor": "0"}, "1", "1048960Mi", id="large units"),
        pytest.param({"cores": 4, "coreRequest": "500m"}, {}, "500m", "1408Mi", id="a request of cores"),
        pytest.param(
            {},
            {"sparkConf": {"spark.driver.cores": "3", "spark.driver.memory": "2g"}},
            "3",
            "2432Mi",
            id="properties",
        ),
        pytest.param(
            {"cores": 1, "memory": "1g"},
            {"sparkConf": {"spark.driver.cores": "3", "spark.driver.memory": "2g"}},
            "1",
            "1408Mi",
            id="fields win over properties",
        ),
        pytest.param(
            {},
            {"sparkConf": {"spark.kubernetes.driver.request.cores": "0.1", "spark.driver.minMemoryOverhead": "1g"}},
            "0.1",
            "2048Mi",
            id="properties of Kubernetes and of Spark 4",
        ),
    ],
)
def test_the_requests_are_those_that_spark_computes(driver: JSON, more: JSON, cpu: str, memory: str) -> None:
    """By the role: the same fields of the executor, and its properties, give the same."""
    assert requests(make(driver=driver, **more))[0] == {"cpu": cpu, "memory": memory}
    conf = {k.replace("driver", "executor"): v for k, v in more.get("sparkConf", {}).items()}
    assert requests(make(executor=driver, **{**more, "sparkConf": conf}))[1] == {"cpu": cpu, "memory": memory}


def test_executors_also_have_memory_of_python_and_outside_the_heap() -> None:
    conf = {
        "spark.executor.pyspark.memory": "1g",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "536870912",
    }
    with_all = make(executor={"memoryOverhead": "0"}, sparkConf=conf, type="Python")
    assert requests(with_all)[1]["memory"] == f"{1024 + 1024 + 512}Mi"
    without = make(executor={"memoryOverhead": "0"}, sparkConf={**conf, "spark.memory.offHeap.enabled": "false"})
    assert requests(without)[1]["memory"] == "1024Mi", "Scala has no memory of Python"


def test_devices_come_from_the_field_and_from_properties() -> None:
    conf = {
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.vendor": "nvidia.com",
        "spark.driver.resource.fpga.amount": "1",
    }
    driver, executor = SPARK.pod_sets(
        make(driver={"gpu": {"name": "amd.com/gpu", "quantity": 1}, "coreLimit": "2"}, sparkConf=conf), ON
    )
    assert container(driver)["resources"]["limits"] == {"memory": "1408Mi", "cpu": "2", "amd.com/gpu": "1"}
    assert container(executor)["resources"]["requests"]["nvidia.com/gpu"] == "2"


def test_the_template_keeps_what_spark_leaves_in_it() -> None:
    """Other containers and other resources of Spark's container count, as they do on the pods."""
    template = {
        "metadata": {"labels": {"a": "1", "b": "1"}, "annotations": RACK},
        "spec": {
            "containers": [
                {"name": "log", "image": "log:1", "resources": {"requests": {"cpu": "1"}}},
                {"name": "executor", "resources": {"requests": {"cpu": "9", "example.com/nic": "1"}}},
            ],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a"}],
        },
    }
    executor = {
        "template": template,
        "labels": {"b": "2"},
        "sidecars": [{"name": "log", "image": "log:1"}, {"name": "proxy", "image": "proxy:1"}],
        "initContainers": [{"name": "init", "image": "init:1", "resources": {"requests": {"cpu": "4"}}}],
        "tolerations": [{"key": "a"}, {"key": "b"}],
        "priorityClassName": "high",
    }
    conf = {"spark.kubernetes.executor.node.selector.zone": "x", "spark.kubernetes.node.selector.zone": "y"}
    job = make(executor=executor, nodeSelector={"pool": "cpu"}, sparkConf=conf)
    _, found = SPARK.pod_sets(job, ON)
    spec = found["template"]["spec"]
    assert found["template"]["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert [c["name"] for c in spec["containers"]] == ["log", "executor", "proxy"]
    assert spec["containers"][1]["resources"]["requests"] == {"cpu": "1", "memory": "1408Mi", "example.com/nic": "1"}
    assert [c["name"] for c in spec["initContainers"]] == ["init"]
    assert spec["nodeSelector"] == {"disk": "ssd", "pool": "cpu", "zone": "x"}
    assert spec["tolerations"] == [{"key": "a"}, {"key": "b"}]
    assert found["topologyRequest"] == {"required": "rack"}
    assert priority_source(job, SPARK.pod_sets(job, ON)) == PrioritySource("PriorityClass", "high")


def test_the_catalogue_has_the_kind_behind_its_gate() -> None:
    row = FRAMEWORKS[SPARK.framework]
    assert (row.kind, row.version, row.plural, row.gate) == (
        "SparkApplication", "v1beta2", "sparkapplications", "SparkApplicationIntegration",
    )  # fmt: skip
    assert isinstance(BY_FRAMEWORK[SPARK.framework], SparkApplication)
    assert BY_GROUP_KIND["sparkoperator.k8s.io", "SparkApplication"] is BY_FRAMEWORK[SPARK.framework]


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "restart", "success"),
    [
        ("COMPLETED", "Never", True),
        ("FAILED", "OnFailure", False),
        ("SUBMISSION_FAILED", "Never", False),
        ("SUBMISSION_FAILED", "", False),
        ("SUBMISSION_FAILED", "OnFailure", None),
        ("RUNNING", "Never", None),
        ("PENDING_RERUN", "Always", None),
        ("", "", None),
    ],
)
def test_it_has_finished_by_its_state(state: str, restart: str, success: bool | None) -> None:
    """A submission that the operator repeats is no end: it would run without quota."""
    job = make(status={"applicationState": {"state": state, "errorMessage": "why"}}, restartPolicy={"type": restart})
    assert SPARK.finished(job) == (None if success is None else Finished("why", success=success))


@pytest.mark.parametrize(
    ("state", "active"),
    [("", False), ("SUSPENDED", False), ("COMPLETED", False), ("FAILED", False), ("SUBMISSION_FAILED", False)]
    + [(state, True) for state in ("RUNNING", "SUBMITTED", "SUSPENDING", "INVALIDATING", "SUCCEEDING", "RESUMING")],
)
def test_it_is_active_until_the_operator_has_deleted_its_pods(state: str, active: bool) -> None:
    assert SPARK.active(make(state=state)) is active


@pytest.mark.parametrize(
    ("state", "executors", "ready"),
    [
        ("RUNNING", ["RUNNING", "COMPLETED"], True),
        ("RUNNING", ["RUNNING", "PENDING"], False),
        ("RUNNING", ["RUNNING"], False),
        ("RUNNING", ["RUNNING", "RUNNING", "FAILED"], True),
        ("SUBMITTED", ["RUNNING", "RUNNING"], False),
    ],
)
def test_its_pods_are_ready_when_all_executors_run(state: str, executors: list[str], ready: bool) -> None:
    job = make(state=state, status={"executorState": {f"exec-{n}": one for n, one in enumerate(executors)}})
    job["status"]["applicationState"] = {"state": state}
    assert SPARK.pods_ready(job) is ready


def test_its_pods_have_a_label_with_its_name() -> None:
    assert SPARK.pod_selector(make()) == {"sparkoperator.k8s.io/app-name": "pi"}
    assert SPARK.managed_by(make()) == SPARK.own_controller == ""
    assert SPARK.reclaimable(make(state="RUNNING")) == {}


# --- start and stop ---------------------------------------------------------------------------------------------------


def info(name: str, *gates: str, **selector: str) -> PodSetInfo:
    return PodSetInfo(
        name=name,
        count={"driver": 1, "executor": 2}[name],
        labels={"kueue.x-k8s.io/podset": name},
        annotations={"kueue.x-k8s.io/workload": "w"},
        node_selector=selector or {"pool": name},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        scheduling_gates=gates,
    )


INFOS = (info("driver"), info("executor"))
GATED = (info("driver", "kueue.x-k8s.io/topology"), info("executor", "kueue.x-k8s.io/topology"))
TEMPLATE = {
    "metadata": {"labels": {"mine": "1"}},
    "spec": {
        "containers": [{"name": "executor"}],
        "schedulingGates": [{"name": "example.com/own"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": "executor"},
    },
}
JOBS = [
    pytest.param(make(), id="nothing is written"),
    pytest.param(make(nodeSelector={"disk": "ssd"}), id="a selector of the application"),
    pytest.param(
        make(driver={"nodeSelector": {"disk": "ssd"}}, executor={"nodeSelector": {"disk": "ssd"}}),
        id="equal selectors of both roles",
    ),
    pytest.param(
        make(
            driver={"labels": {"a": "1"}, "annotations": {"b": "2"}, "tolerations": [{"key": "x"}, {"key": "x"}]},
            executor={"labels": {"kueue.x-k8s.io/podset": "executor"}, "nodeSelector": {"pool": "executor"}},
        ),
        id="entries that the admission has, too",
    ),
    pytest.param(
        make(
            executor={"template": TEMPLATE, "labels": {"mine": "1"}},
            sparkConf={"spark.kubernetes.node.selector.d": "1"},
        ),
        id="a template that has some of them",
    ),
    pytest.param(
        make(driver={"template": {"spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}}), id="a bare template"
    ),
    pytest.param(make(annotations={"mine": "1"}, driver={"labels": {}, "tolerations": []}), id="empty fields"),
]


def admitted(job: JSON) -> JSON:
    """Its Workload."""
    return workload_for(SPARK, job, priority=Priority(), switches=ON)


@pytest.mark.parametrize("infos", [INFOS, GATED], ids=["plain", "gated"])
@pytest.mark.parametrize("job", JOBS)
def test_a_stop_gives_back_exactly_what_the_user_wrote(job: JSON, infos: tuple[PodSetInfo, ...]) -> None:
    """And the started application matches its Workload, so that it is not stopped as another one."""
    before, workload = copy.deepcopy(job), admitted(job)
    patch = SPARK.start(job, infos)
    assert not isinstance(patch, Refused)
    running = apply_merge_patch(job, patch)
    driver, executor = SPARK.pod_sets(running, ON)
    for pod_set, one in ((driver, infos[0]), (executor, infos[1])):
        body = pod_set["template"]["spec"]
        assert body["nodeSelector"].items() >= one.node_selector.items()
        assert all(toleration in body["tolerations"] for toleration in one.tolerations)
        assert {gate["name"] for gate in body.get("schedulingGates", [])} >= set(one.scheduling_gates)
        assert pod_set["template"]["metadata"]["labels"].items() >= one.labels.items()
    assert "nodeSelector" not in running["spec"]
    assert running["spec"]["suspend"] is False
    workload["status"] = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    assert equivalent(SPARK.pod_sets(running, ON), workload, infos=infos, suspended=False)

    (step,) = SPARK.stop(running, infos_at_stop(workload))
    assert step.suspends
    stopped = apply_merge_patch(running, step.patch)
    assert pruned(stopped) == pruned(before), "empty fields may be left out"
    assert SPARK.stop(stopped, infos_at_stop(workload)) == ()
    assert job == before, "values that are given are not changed"


def test_a_global_node_selector_moves_into_driver_and_executor() -> None:
    patch = SPARK.start(make(nodeSelector={"disk": "ssd"}), INFOS)
    assert isinstance(patch, dict)
    assert patch["spec"]["nodeSelector"] is None
    assert patch["spec"]["driver"]["nodeSelector"] == {"disk": "ssd", "pool": "driver"}
    assert patch["spec"]["executor"]["nodeSelector"] == {"disk": "ssd", "pool": "executor"}
    assert patch["metadata"]["annotations"] == {MARK: "nodeSelector"}


def test_a_moved_selector_that_somebody_changed_stays_where_it_is() -> None:
    job = make(nodeSelector={"disk": "ssd"})
    workload = admitted(job)
    patch = SPARK.start(job, INFOS)
    assert isinstance(patch, dict)
    running = apply_merge_patch(job, patch)
    del running["spec"]["driver"]["nodeSelector"]["disk"]
    (step,) = SPARK.stop(running, infos_at_stop(workload))
    assert apply_merge_patch(running, step.patch)["spec"] == job["spec"], "the Workload knows it"


def test_a_stop_gives_back_the_number_of_executors() -> None:
    job = make()
    running = apply_merge_patch(job, {"spec": {"suspend": False, "executor": {"instances": 9}}})
    (step,) = SPARK.stop(running, infos_at_stop(admitted(job)))
    assert step.patch == {"spec": {"suspend": True, "executor": {"instances": 2}}}


def test_another_number_of_pod_sets_is_refused_at_the_start_and_restores_nothing() -> None:
    refused = SPARK.start(make(), INFOS[:1])
    assert isinstance(refused, Refused)
    assert "2 pod sets and the admission has 1" in str(refused)
    (step,) = SPARK.stop(make(suspend=False), INFOS[:1])
    assert step.patch == {"spec": {"suspend": True}}


@pytest.mark.parametrize(
    ("job", "named"),
    [
        pytest.param(make(executor={"nodeSelector": {"pool": "mine"}}), "nodeSelector entry pool", id="a selector"),
        pytest.param(make(nodeSelector={"pool": "mine"}), "nodeSelector entry pool", id="a selector of all"),
        pytest.param(
            make(sparkConf={"spark.kubernetes.driver.label.kueue.x-k8s.io/podset": "executor"}),
            "podset",
            id="a property",
        ),
        pytest.param(
            make(driver={"annotations": {"kueue.x-k8s.io/workload": "other"}}), "workload", id="another Workload"
        ),
        pytest.param(
            make(driver={"template": {"metadata": {"labels": prefixed(managed="true")}}}),
            "managed",
            id="a reserved label",
        ),
        pytest.param(
            make(sparkConf={"spark.kubernetes.executor.annotation.kueue.x-k8s.io/workload-slice-name": "w"}),
            "workload-slice-name",
            id="a reserved annotation",
        ),
    ],
)
def test_what_contradicts_the_admission_is_refused_at_the_start(job: JSON, named: str) -> None:
    refused = SPARK.start(job, INFOS)
    assert isinstance(refused, Refused)
    assert named in str(refused)


def test_reserved_names_in_fields_are_taken_out_at_the_start_and_given_back() -> None:
    job = make(
        driver={
            "labels": {**prefixed(managed="true"), "mine": "1"},
            "template": {"spec": {"containers": [], "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}},
        }
    )
    patch = SPARK.start(job, INFOS)
    assert isinstance(patch, dict)
    running = apply_merge_patch(job, patch)
    assert "kueue.x-k8s.io/managed" not in running["spec"]["driver"]["labels"]
    assert "schedulingGates" not in running["spec"]["driver"]["template"]["spec"]
    (step,) = SPARK.stop(running, infos_at_stop(admitted(job)))
    assert apply_merge_patch(running, step.patch) == job


def test_only_the_flag_is_written_to_suspend() -> None:
    assert SPARK.suspend(make(suspend=False)) == {"spec": {"suspend": True}}
    assert SPARK.suspend(make()) == {}


# --- webhooks ---------------------------------------------------------------------------------------------------------


def test_a_queued_application_is_suspended_at_its_creation() -> None:
    assert SPARK.defaults(make(suspend=False), HERE) == {"spec": {"suspend": True}}
    assert SPARK.defaults(make(suspend=False, labels={}), HERE) == {}


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (make(mode="client"), "spec.mode"),
        (make(dynamicAllocation={"enabled": True}), "spec.dynamicAllocation"),
        (
            make(sparkConf={"spark.dynamicAllocation.enabled": "TRUE"}),
            "spec.sparkConf[spark.dynamicAllocation.enabled]",
        ),
        (make(driver={"memory": "lots"}), "spec.driver.memory"),
        (make(driver={"memory": "1" * 19 + "p"}), "spec.driver.memory"),
        (make(executor={"coreRequest": "-1"}), "spec.executor.coreRequest"),
        (make(executor={"instances": -1}), "spec.executor.instances"),
        (make(executor={"cores": True}), "spec.executor.cores"),
        (make(sparkConf={"spark.driver.memoryOverhead": "x"}), "spec.sparkConf[spark.driver.memoryOverhead]"),
        (
            make(executor={"instances": None}, sparkConf={"spark.executor.instances": "many"}),
            "spec.sparkConf[spark.executor.instances]",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_if_it_is_queued(job: JSON, path: str) -> None:
    assert told(SPARK.problems(job, None, HERE)) == [path]
    with pytest.raises(InvalidObjectError, match="SparkApplication team/pi"):
        SPARK.pod_sets(job, ON)
    free = {**job, "metadata": {**job["metadata"], "labels": {}}}
    assert SPARK.problems(free, None, HERE) == []
    assert told(SPARK.problems(free, None, JobContext(manage_without_queue=True))) == [path]


@pytest.mark.parametrize("factor", ["-1", "1/3", "1e99999999", "nan", "much"])
def test_a_factor_is_a_plain_number(factor: str) -> None:
    assert set(told(SPARK.problems(make(memoryOverheadFactor=factor), None, HERE))) == {"spec.memoryOverheadFactor"}


def test_a_sound_application_has_no_problems() -> None:
    job = make(driver={"annotations": RACK}, executor={"annotations": RACK}, dynamicAllocation={"enabled": False})
    assert SPARK.problems(job, None, HERE) == []
    assert SPARK.problems(job, job, HERE) == []
    assert SPARK.problems(make(mode=""), None, HERE) == [], "the operator's default is cluster"


def test_topology_annotations_are_checked_with_their_role() -> None:
    wrong = make(executor={"annotations": {**RACK, **prefixed(podset_preferred_topology="rack")}})
    assert told(SPARK.problems(wrong, None, HERE)) == ["spec.executor.metadata.annotations"]
    sliced = make(executor={"annotations": prefixed(podset_slice_required_topology="rack", podset_slice_size="3")})
    assert told(SPARK.problems(sliced, None, HERE)) == [
        "spec.executor.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"
    ]


def test_no_application_is_elastic_and_each_may_have_a_prebuilt_workload() -> None:
    job = make(annotations=prefixed(elastic_job="true"))
    assert told(SPARK.problems(job, None, HERE)) == ["metadata.annotations[kueue.x-k8s.io/elastic-job]"]
    assert SPARK.problems(make(annotations=prefixed(prebuilt_workload_name="mine")), None, HERE) == []


def test_updates_are_checked_of_what_is_or_was_queued() -> None:
    """The last by a feature gate."""
    queued, loose, wrong = make(suspend=False), make(suspend=False, labels={}), make(labels=prefixed(queue_name="?"))
    label = "metadata.labels[kueue.x-k8s.io/queue-name]"
    assert told(SPARK.problems(loose, queued, HERE)) == [label]
    off = JobContext(switches=JobFeatures(leaving_validated=False))
    assert SPARK.problems(loose, queued, off) == []
    assert SPARK.problems(make(labels={}, mode="client"), loose, HERE) == []
    assert told(SPARK.problems(wrong, loose, off)) == [label]


def test_an_application_that_has_ended_cannot_be_made_to_run_again() -> None:
    ended = make(state="COMPLETED", suspend=False)
    assert told(SPARK.problems(make(state="COMPLETED", suspend=False, arguments=["2"]), ended, HERE)) == ["spec"]
    assert SPARK.problems(make(state="COMPLETED"), ended, HERE) == []
    assert SPARK.problems(make(arguments=["2"]), make(), HERE) == []


def test_an_object_that_is_being_deleted_has_no_problems() -> None:
    job = make(mode="client")
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert SPARK.problems(job, job, HERE) == []
    assert SPARK.defaults(job, HERE) == {}


@pytest.mark.parametrize(
    "part", [None, 7, "x", [], {"template": 1, "labels": [], "tolerations": [None], "sidecars": 3}]
)
def test_an_object_of_any_form_is_read(part: Any) -> None:
    """Webhooks get bodies that nothing has checked."""
    job = make(driver=part, executor=part if isinstance(part, dict) else {})
    job["spec"]["driver"] = part
    SPARK.problems(job, job, HERE)
    SPARK.warnings(job, HERE)
