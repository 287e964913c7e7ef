"""Jobs and CronJobs: defaults, generated selector, validation of objects and of updates.

Source: Kubernetes v1.36 defaulting and validation of `batch/v1`.
"""

from __future__ import annotations

from kqueue.kube.names import CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL
from kqueue.sandbox import failure, pod_rules
from kqueue.sandbox.api import Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.store import copied
from kqueue.sandbox.strategy import ClusterView, WriteStrategy

BACKOFF_LIMIT = 6
NO_LIMIT = 2**31 - 1
MODES = ["Indexed", "NonIndexed"]
MOST_INDEXES = 100_000
IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
SCHEDULING_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")


def default(job: Object) -> None:
    """Fill the defaults of a Job."""
    spec = job.setdefault("spec", {})
    default_spec(spec)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def default_spec(spec: Object) -> None:
    """Fill the defaults of a Job's spec."""
    pod_rules.default_template(spec.setdefault("template", {}))
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", NO_LIMIT if "backoffLimitPerIndex" in spec else BACKOFF_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")


def prepare_create(job: Object, _: ClusterView) -> None:
    """Set the selector, the labels of the pod template, and an empty status."""
    spec, meta = job["spec"], job["metadata"]
    job["status"] = {}
    if spec["manualSelector"]:
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    borrowed = not meta.get("labels") or meta["labels"] == labels
    labels.setdefault(LEGACY_JOB_NAME_LABEL, meta["name"])
    labels.setdefault(JOB_NAME_LABEL, meta["name"])
    labels[LEGACY_CONTROLLER_UID_LABEL] = meta["uid"]
    labels[CONTROLLER_UID_LABEL] = meta["uid"]
    selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selector.setdefault(CONTROLLER_UID_LABEL, meta["uid"])
    if borrowed:  # a Job without labels gets the labels of its template
        meta["labels"] = dict(labels)


def causes(job: Object) -> list[Cause]:
    """Return all mistakes in a Job."""
    spec = job["spec"]
    found = spec_causes(spec, "spec")
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if not spec.get("selector"):
        found.append(failure.required("spec.selector"))
    elif not wanted.items() <= labels.items():
        found.append(
            failure.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        )
    if not spec["manualSelector"]:
        found += _generated_causes(job, labels, wanted)
    if spec["completionMode"] == "Indexed" and len(job["metadata"]["name"]) > 63 - len("-0"):
        longest = f"{job['metadata']['name']}-{max(0, (spec.get('completions') or 1) - 1)}"
        if len(longest) > 63:
            found.append(
                failure.invalid(
                    "metadata.name",
                    job["metadata"]["name"],
                    f"will not able to create pod with invalid DNS label: {longest}",
                )
            )
    return found


def _generated_causes(job: Object, labels: Object, wanted: Object) -> list[Cause]:
    """Refuse changes of generated labels and selectors."""
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    found = []
    if wanted != {CONTROLLER_UID_LABEL: uid}:
        found.append(failure.invalid("spec.selector", job["spec"].get("selector"), "`selector` not auto-generated"))
    for key, value in (
        (LEGACY_CONTROLLER_UID_LABEL, uid),
        (CONTROLLER_UID_LABEL, uid),
        (LEGACY_JOB_NAME_LABEL, name),
        (JOB_NAME_LABEL, name),
    ):
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            found.append(failure.required(path, f"must be '{value}'"))
        elif labels[key] != value:
            found.append(failure.invalid(path, labels[key], f"must be '{value}'"))
    return found


def spec_causes(spec: Object, path: str) -> list[Cause]:
    """Return all mistakes in a Job's spec."""
    found = []
    for key in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished",
                "backoffLimitPerIndex", "maxFailedIndexes"):  # fmt: skip
        if (value := spec.get(key)) is not None and value < 0:
            found.append(failure.invalid(f"{path}.{key}", value, "must be greater than or equal to 0"))
    if spec["completionMode"] not in MODES:
        found.append(failure.unsupported(f"{path}.completionMode", spec["completionMode"], MODES))
    elif spec["completionMode"] == "Indexed":
        found += _indexed_causes(spec, path)
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy not in ("OnFailure", "Never"):
        text = f'valid values: "OnFailure", "Never" (found "{policy}")'
        found.append(failure.required(f"{path}.template.spec.restartPolicy", text))
    if "podFailurePolicy" in spec and policy != "Never":
        found.append(
            failure.invalid(
                f"{path}.template.spec.restartPolicy",
                policy,
                'only "Never" is supported when podFailurePolicy is specified',
            )
        )
    return found + pod_rules.template_causes(spec["template"], f"{path}.template")


def _indexed_causes(spec: Object, path: str) -> list[Cause]:
    if spec.get("completions") is None:
        return [failure.required(f"{path}.completions", "when completion mode is Indexed")]
    if spec["parallelism"] > MOST_INDEXES:
        return [
            failure.invalid(
                f"{path}.parallelism",
                spec["parallelism"],
                f"must be less than or equal to {MOST_INDEXES} when completion mode is Indexed",
            )
        ]
    return []


def update_causes(new: Object, old: Object) -> list[Cause]:
    """Return mistakes in the change from `old` to `new`."""
    spec, before = new["spec"], old["spec"]
    found = [
        failure.invalid(f"spec.{key}", spec.get(key), "field is immutable")
        for key in IMMUTABLE
        if spec.get(key) != before.get(key)
    ]
    if spec.get("completions") != before.get("completions") and not _elastic(spec, before):
        found.append(failure.invalid("spec.completions", spec.get("completions"), "field is immutable"))
    if spec["template"] != before["template"]:
        found += _template_step(new, old)
    return found


def _elastic(spec: Object, before: Object) -> bool:
    """Whether an Indexed Job changes completions and parallelism together, which is allowed."""
    return (
        spec["completionMode"] == "Indexed"
        and spec.get("completions") is not None
        and before.get("completions") is not None
        and spec["completions"] == spec["parallelism"]
    )


def _template_step(new: Object, old: Object) -> list[Cause]:
    """Return mistakes in a change of the template.

    A suspended Job that has not started may change node selectors, tolerations, gates, labels, annotations, and the
    resources of its containers.
    """
    suspended = bool(old["spec"].get("suspend"))
    started = (old.get("status") or {}).get("startTime") is not None
    if not suspended or started:
        return [failure.invalid("spec.template", new["spec"]["template"], "field is immutable")]
    wanted, allowed = new["spec"]["template"], copied(old["spec"]["template"])
    for key in SCHEDULING_FIELDS:
        _take(key, wanted["spec"], allowed["spec"])
    for key in ("labels", "annotations"):
        _take(key, wanted.get("metadata") or {}, allowed.setdefault("metadata", {}))
    affinity, before = wanted["spec"].get("affinity"), allowed["spec"].get("affinity") or {}
    merged = {key: value for key, value in before.items() if key != "nodeAffinity"}
    if affinity is not None and "nodeAffinity" in affinity:
        merged["nodeAffinity"] = affinity["nodeAffinity"]
    allowed["spec"].pop("affinity", None)
    if merged or affinity is not None:
        allowed["spec"]["affinity"] = merged
    for ours, kept in zip(
        pod_rules.containers_of(wanted["spec"]), pod_rules.containers_of(allowed["spec"]), strict=False
    ):
        _take("resources", ours, kept)
    if wanted == allowed:
        return []
    return [failure.invalid("spec.template.spec", wanted["spec"], "field is immutable")]


def _take(key: str, source: Object, target: Object) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def default_cron(cron: Object) -> None:
    """Fill the defaults of a CronJob."""
    spec = cron.setdefault("spec", {})
    for key, value in (
        ("concurrencyPolicy", "Allow"), ("suspend", False),
        ("successfulJobsHistoryLimit", 3), ("failedJobsHistoryLimit", 1),
    ):  # fmt: skip
        spec.setdefault(key, value)
    template = spec.setdefault("jobTemplate", {}).setdefault("spec", {}).setdefault("template", {})
    pod_rules.default_template(template)


def cron_causes(cron: Object) -> list[Cause]:
    """Return all mistakes in a CronJob."""
    found = [] if cron["spec"].get("schedule") else [failure.required("spec.schedule")]
    template = cron["spec"]["jobTemplate"]["spec"]["template"]
    return found + pod_rules.template_causes(template, "spec.jobTemplate.spec.template")


JOB = WriteStrategy(default=default, prepare_create=prepare_create, validate=causes, validate_update=update_causes)
CRON_JOB = WriteStrategy(default=default_cron, validate=cron_causes)
