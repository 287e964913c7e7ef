"""ClusterQueue in v1beta1: `cohort`, a plain list of checks, and older words of flavorFungibility."""

from __future__ import annotations

from dataclasses import replace

from kqueue.api.cluster_queue import ClusterQueue
from kqueue.api.v1beta1.editing import (
    TEXT,
    OlderKind,
    Schema,
    at,
    described,
    listed,
    loosen,
    plain_list,
    record,
    rename,
    unlimited_conditions,
)
from kqueue.api.v1beta1.fair_sharing import add_past_usage
from kqueue.api.v1beta1.names import OLD_WORDS


def _edit(schema: Schema) -> None:
    unlimited_conditions(schema)
    _edit_cohort(schema)
    _edit_checks(schema)
    for field, word in OLD_WORDS.items():
        at(schema, f"spec.flavorFungibility.{field}")["enum"].append(word)
    loosen(schema, "spec.admissionScope.admissionMode", "enum")
    loosen(schema, "spec.resourceGroups[].coveredResources", "x-kubernetes-list-type")
    add_past_usage(schema)
    at(schema, "status")["properties"]["pendingWorkloadsStatus"] = record(
        "First workloads of the queue.  Not written any more, and not kept: ask the visibility API.",
        ("lastChangeTime",),
        lastChangeTime=described({"type": "string", "format": "date-time"}, "When the list was last changed."),
        clusterQueuePendingWorkload=listed(
            "First workloads.",
            record(
                "A workload that waits.",
                ("name", "namespace"),
                name=described(TEXT, "Name of the workload."),
                namespace=described(TEXT, "Namespace of the workload."),
            ),
            **{"x-kubernetes-list-type": "atomic"},
        ),
    )


def _edit_cohort(schema: Schema) -> None:
    rename(schema, "spec", "cohortName", "cohort")
    for rule in at(schema, "spec")["x-kubernetes-validations"]:
        rule.update({key: text.replace("cohortName", "cohort") for key, text in rule.items()})


def _edit_checks(schema: Schema) -> None:
    at(schema, "spec")["properties"]["admissionChecks"] = listed(
        "Checks for all flavors.  A list that is not empty replaces admissionChecksStrategy, as which it is read.",
        {"type": "string", "maxLength": 316},
    )
    checks = "spec.admissionChecksStrategy.admissionChecks"
    plain_list(schema, checks)
    at(schema, "spec.admissionChecksStrategy").pop("required")
    loosen(schema, f"{checks}[].name", "minLength")
    plain_list(schema, f"{checks}[].onFlavors")


CLUSTER_QUEUE = OlderKind(
    kind="ClusterQueue",
    edit=_edit,
    converts=True,
    columns=tuple(
        replace(column, path=".spec.cohort") if column.path == ".spec.cohortName" else column
        for column in ClusterQueue.served.columns
    ),
)
