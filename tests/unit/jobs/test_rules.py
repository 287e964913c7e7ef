"""What a queued Job may say, and what it may change when."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs import rules
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import make_job, make_template, prefixed

JOB = BatchJob()
HERE = JobContext()
ELASTIC = JobContext(switches=JobFeatures(elastic_jobs=True))


def label(short: str) -> str:
    return f"metadata.labels[kueue.x-k8s.io/{short}]"


def annotation(short: str) -> str:
    return f"metadata.annotations[kueue.x-k8s.io/{short}]"


def queued(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    return make_job(
        labels=prefixed(**({"queue_name": "main"} | (labels or {}))),
        annotations=prefixed(**(annotations or {})),
        **spec,
    )


PREFERS, RUNTIME = "metadata.annotations[kqueue.dev/prefers]", "metadata.annotations[kqueue.dev/expected-runtime]"
PROFILE = "metadata.annotations[kqueue.dev/placement-profile]"


def wishing(**wishes: str) -> Any:
    """A job with annotations for policies of joint placement."""
    return make_job(
        labels=prefixed(queue_name="main"),
        annotations={f"kqueue.dev/{key.replace('_', '-')}": value for key, value in wishes.items()},
    )


def placed_by(profile: str) -> Any:
    return make_job(labels=prefixed(queue_name="main"), annotations={"kqueue.dev/placement-profile": profile})


@pytest.mark.parametrize(
    ("job", "around", "expected"),
    [
        pytest.param(queued(), HERE, [], id="sound"),
        pytest.param(queued(labels={"queue_name": "Main"}), HERE, [label("queue-name")], id="queue-name"),
        pytest.param(
            queued({"prebuilt_workload_name": "A_B"}), HERE, [annotation("prebuilt-workload-name")], id="prebuilt-name"
        ),
        *(
            pytest.param(
                queued(labels={"max_exec_time_seconds": seconds}),
                HERE,
                [label("max-exec-time-seconds")],
                id=f"time-{name}",
            )
            for name, seconds in {"zero": "0", "negative": "-1", "text": "1h", "too-long": str(1 << 31)}.items()
        ),
        pytest.param(queued({"job_min_parallelism": "4"}), HERE, [annotation("job-min-parallelism")], id="min-is-all"),
        pytest.param(queued({"job_min_parallelism": "0"}), HERE, [annotation("job-min-parallelism")], id="min-is-zero"),
        pytest.param(queued({"job_min_parallelism": "x"}), HERE, [annotation("job-min-parallelism")], id="min-is-text"),
        pytest.param(queued({"job_min_parallelism": "2"}), HERE, [], id="min-is-fine"),
        pytest.param(
            queued({"job_min_parallelism": "2", "elastic_job": "true"}),
            ELASTIC,
            [annotation("job-min-parallelism")],
            id="min-and-elastic",
        ),
        pytest.param(
            queued({"job_completions_equal_parallelism": "perhaps"}),
            HERE,
            [annotation("job-completions-equal-parallelism")],
            id="sync-is-no-truth-value",
        ),
        pytest.param(
            queued({"job_completions_equal_parallelism": "true"}, completions=8),
            HERE,
            [annotation("job-completions-equal-parallelism")] * 2,
            id="sync-needs-indexes-and-equal-numbers",
        ),
        pytest.param(
            queued({"job_completions_equal_parallelism": "true"}, completions=4, completionMode="Indexed"),
            HERE,
            [],
            id="sync-is-fine",
        ),
        pytest.param(placed_by("balanced"), HERE, [], id="a-profile"),
        pytest.param(placed_by("tight"), HERE, [PROFILE], id="a-profile-that-does-not-exist"),
        pytest.param(wishing(prefers="rack=r1,host=h1"), HERE, [], id="a-preferred-place"),
        pytest.param(wishing(prefers="r1"), HERE, [PREFERS], id="a-preferred-place-without-a-level"),
        pytest.param(wishing(expected_runtime="90m"), HERE, [], id="an-expected-runtime"),
        pytest.param(wishing(expected_runtime="-90m"), HERE, [RUNTIME], id="a-runtime-below-0"),
        pytest.param(wishing(expected_runtime="long"), HERE, [RUNTIME], id="a-runtime-that-is-no-duration"),
        pytest.param(wishing(minimum_runtime="1h"), HERE, [], id="a-minimum-runtime"),
        pytest.param(
            wishing(minimum_runtime="-1h"),
            HERE,
            ["metadata.annotations[kqueue.dev/minimum-runtime]"],
            id="a-minimum-runtime-below-0",
        ),
        pytest.param(queued({"admission_gated_by": "example.com/a, example.com/b"}), HERE, [], id="gates"),
        *(
            pytest.param(
                queued({"admission_gated_by": gates}), HERE, [annotation("admission-gated-by")], id=f"gates-{name}"
            )
            for name, gates in {
                "empty-entry": "example.com/a,",
                "twice": "example.com/a,example.com/a",
                "no-path": "example.com",
                "no-domain": "Example/a",
                "too-long": "example.com/" + "a" * 52,
            }.items()
        ),
        pytest.param(
            queued({"require_topology": "a", "prefer_topology": "b"}), HERE, ["metadata.annotations"], id="both-aliases"
        ),
        pytest.param(
            queued(
                labels={"queue_name": "-"},
                annotations={"job_min_parallelism": "9"},
                template=make_template(annotations=prefixed(podset_required_topology="!")),
            ),
            HERE,
            [
                label("queue-name"),
                annotation("job-min-parallelism"),
                "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]",
            ],
            id="everything-at-once",
        ),
    ],
)
def test_a_new_job_is_checked(job: Any, around: JobContext, expected: list[str]) -> None:
    """Every mistake with its path."""
    assert [problem.path for problem in JOB.problems(job, None, around)] == expected


RUN: dict[str, Any] = {"suspend": False}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(queued(), queued(labels={"queue_name": "b"}), [], id="queue-of-a-suspended-job"),
        pytest.param(queued(**RUN), queued(labels={"queue_name": "b"}), [], id="suspend-and-move-at-once"),
        pytest.param(
            queued(**RUN), queued(labels={"queue_name": "b"}, **RUN), [label("queue-name")], id="move-while-running"
        ),
        pytest.param(
            queued(), queued(labels={"queue_name": "b"}, **RUN), [label("queue-name")], id="unsuspend-and-move"
        ),
        pytest.param(
            make_job(labels={}, suspend=False), queued(**RUN), [label("queue-name")], id="adopt-a-running-stranger"
        ),
        pytest.param(
            queued(annotations={"stopping": "true"}),
            queued(annotations={"stopping": "true"}, labels={"queue_name": "b"}),
            [label("queue-name")],
            id="half-stopped-is-not-suspended",
        ),
        pytest.param(
            queued(labels={"priority_class": "a"}, **RUN),
            queued(labels={"priority_class": "b"}, **RUN),
            [],
            id="class-swap",
        ),
        pytest.param(
            queued(**RUN),
            queued(labels={"priority_class": "b"}, **RUN),
            [label("priority-class")],
            id="class-added-late",
        ),
        pytest.param(queued(), queued(labels={"priority_class": "b"}), [], id="class-added-in-time"),
        pytest.param(queued(labels={"priority_class": "a"}), queued(), [label("priority-class")], id="class-removed"),
        pytest.param(
            queued(labels={"max_exec_time_seconds": "5"}),
            queued(labels={"max_exec_time_seconds": "6"}),
            [],
            id="time-of-a-suspended-job",
        ),
        pytest.param(
            queued(labels={"max_exec_time_seconds": "5"}),
            queued(labels={"max_exec_time_seconds": "6"}, **RUN),
            [label("max-exec-time-seconds")],
            id="time-and-unsuspend",
        ),
        pytest.param(
            queued(**RUN),
            queued(annotations={"prebuilt_workload_name": "w"}, **RUN),
            [annotation("prebuilt-workload-name")],
            id="prebuilt-while-running",
        ),
        pytest.param(
            queued({"admission_gated_by": "example.com/a,example.com/b"}),
            queued({"admission_gated_by": "example.com/b"}),
            [],
            id="gate-taken-away",
        ),
        pytest.param(
            queued(),
            queued({"admission_gated_by": "example.com/b"}),
            [annotation("admission-gated-by")],
            id="gate-added",
        ),
        pytest.param(placed_by("balanced"), placed_by("tight"), [PROFILE], id="to-a-profile-that-does-not-exist"),
        pytest.param(
            queued({"job_min_parallelism": "2"}, **RUN),
            queued({"job_min_parallelism": "2"}, parallelism=3, **RUN),
            ["spec.parallelism"],
            id="parallelism-of-a-partial-job",
        ),
        pytest.param(
            queued({"job_min_parallelism": "2"}),
            queued({"job_min_parallelism": "2"}, parallelism=2, **RUN),
            [],
            id="our-own-start-with-fewer-pods",
        ),
        pytest.param(
            queued({"job_completions_equal_parallelism": "false"}, **RUN),
            queued({"job_completions_equal_parallelism": "0"}, **RUN),
            [annotation("job-completions-equal-parallelism")],
            id="sync-while-running",
        ),
    ],
)
def test_what_may_change_depends_on_whether_the_job_runs(old: Any, new: Any, expected: list[str]) -> None:
    """Only what the state allows."""
    assert [problem.path for problem in JOB.problems(new, old, HERE)] == expected


def test_the_queue_may_not_be_emptied_where_there_is_a_default() -> None:
    """It would only be filled in again."""
    emptied = make_job(labels={})

    assert JOB.problems(emptied, queued(), HERE) == []
    assert [p.path for p in JOB.problems(emptied, queued(), JobContext(default_queue=True))] == [label("queue-name")]


def test_the_elastic_switch_cannot_be_turned() -> None:
    """Running pods would not know."""
    problems = JOB.problems(queued({"elastic_job": "true"}), queued(), ELASTIC)

    assert [problem.path for problem in problems] == [annotation("elastic-job")]


def test_nothing_stands_in_the_way_of_a_deletion() -> None:
    """Finalizers come off even from an object that would be refused today."""
    job = queued(labels={"queue_name": "!"})
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert JOB.problems(job, queued(), HERE) == []
    assert JOB.defaults(job, JobContext(default_queue=True)) == {}


@pytest.mark.parametrize("suspend", [True, False])
def test_sizes_bind_users_and_not_our_own_starts_and_stops(suspend: bool) -> None:
    """A partially admitted job runs with a count that its slices do not divide; suspending it must pass."""
    template = make_template(annotations=prefixed(podset_slice_required_topology="rack", podset_slice_size="4"))
    full = queued({"job_min_parallelism": "2"}, template=template, parallelism=8)
    running = apply_merge_patch(full, {"spec": {"parallelism": 6, "suspend": False}})
    after = apply_merge_patch(running, {"spec": {"suspend": suspend}})

    assert JOB.problems(running, full, HERE) == []
    assert JOB.problems(after, running, HERE) == []
    edited = JOB.problems(apply_merge_patch(full, {"spec": {"parallelism": 6}}), full, HERE)
    assert [p.path for p in edited] == ["spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"]


@pytest.mark.parametrize(
    ("job", "around", "patch"),
    [
        pytest.param(queued(**RUN), HERE, {"spec": {"suspend": True}}, id="a-labelled-job-is-suspended"),
        pytest.param(queued(), HERE, {}, id="a-suspended-one-needs-nothing"),
        pytest.param(make_job(labels={}, **RUN), HERE, {}, id="an-unlabelled-one-is-a-strangers"),
        pytest.param(
            make_job(labels={}, **RUN),
            JobContext(manage_without_queue=True),
            {"spec": {"suspend": True}},
            id="unless-everything-is-managed",
        ),
        pytest.param(
            make_job(labels={}, **RUN),
            JobContext(default_queue=True),
            {"metadata": {"labels": prefixed(queue_name="default")}, "spec": {"suspend": True}},
            id="the-default-queue-counts-like-a-label",
        ),
        pytest.param(
            queued(),
            JobContext(default_queue=True, default_priority_class=True),
            {"metadata": {"labels": prefixed(priority_class="default")}},
            id="the-default-class",
        ),
        pytest.param(
            queued(**RUN),
            JobContext(managed_ancestor=True, default_queue=True),
            {},
            id="a-child-of-a-queued-parent-is-left-to-it",
        ),
        pytest.param(
            queued({"elastic_job": "true"}),
            ELASTIC,
            {"spec": {"template": {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}}}},
            id="elastic-pods-wait-at-a-gate",
        ),
        pytest.param(
            queued(template=make_template(annotations=prefixed(podset_required_topology="rack"))),
            HERE,
            {},
            id="the-topology-gate-comes-at-start",
        ),
    ],
)
def test_defaults_of_a_new_job(job: Any, around: JobContext, patch: dict[str, Any]) -> None:
    """What the mutating webhook writes, and nothing more."""
    assert JOB.defaults(job, around) == patch


@pytest.mark.parametrize(
    ("told", "known", "handed_on"),
    [
        pytest.param("2026-01-01T12:00:00Z", "", True, id="the-first"),
        pytest.param("2026-01-01T12:00:30Z", "2026-01-01T12:00:00Z", True, id="half-a-minute-later"),
        pytest.param("2026-01-01T12:00:29Z", "2026-01-01T12:00:00Z", False, id="each-second"),
        pytest.param("2026-01-01T11:59:59Z", "2026-01-01T12:00:00Z", True, id="corrected-to-an-earlier-time"),
        pytest.param("soon", "2026-01-01T12:00:00Z", True, id="no-time"),
        pytest.param("2026-01-01T12:00:01Z", "soon", True, id="after-no-time"),
    ],
)
def test_a_workload_gets_the_checkpoints_of_its_job_at_a_bounded_rate(told: str, known: str, handed_on: bool) -> None:
    key = "kqueue.dev/last-checkpoint"
    job = {"metadata": {"annotations": {key: told}}}

    found = rules.newer_run_traits(job, {key: known} if known else {})

    assert found == ({key: told} if handed_on else {})
