"""Each pod is sent to one entry, whatever marks of gangs it has."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.config.selector import RequirementSettings, SelectorSettings
from kqueue.jobs.gang.dialect import PodSelection
from kqueue.kinds import GANG_DIALECTS
from kqueue.sandbox import expression, selectors
from webhooks.configuration import WebhookEndpoint, WebhookScope, webhook_configurations

Object = dict[str, Any]
TARGET = WebhookEndpoint(ca_bundle=b"ca", url="https://h:1/")
SELECTED = SelectorSettings(match_expressions=(RequirementSettings(key="team", operator="Exists"),))
NAMESPACE = {"kubernetes.io/metadata.name": "ns", "team": "a"}
MARKS: dict[str, Object] = {
    "queue": {"labels": {names.QUEUE_NAME_LABEL: "q"}},
    "managed": {"labels": {names.MANAGED_LABEL: "true"}},
    "coscheduling": {"labels": {gang_names.COSCHEDULING_NAME_LABEL: "g"}},
    "podgroup": {"labels": {gang_names.POD_GROUP_X_K8S_LABEL: "g"}},
    "volcano": {"annotations": {gang_names.VOLCANO_GROUP_ANNOTATIONS[0]: "g"}},
    "volcano-2": {"annotations": {gang_names.VOLCANO_GROUP_ANNOTATIONS[1]: "g"}},
    "batchprocess": {"labels": {gang_names.BATCH_PROCESS_LABEL: "g"}},
    "schedulinggroup": {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
}


def pod(*marks: str) -> Object:
    """A pod with these marks."""
    made: Object = {"metadata": {"name": "p"}, "spec": {}}
    for mark in marks:
        for part, values in MARKS[mark].items():
            place = made if part == "spec" else made["metadata"]
            place.setdefault(part, {}).update(values)
    return made


def hooks(*frameworks: str, **scope: Any) -> list[Object]:
    """All entries of both configurations."""
    made = webhook_configurations(TARGET, WebhookScope(frameworks=frameworks, own_namespace="ours", **scope))
    return [hook for configuration in made for hook in configuration["webhooks"]]


def sent(
    entries: list[Object],
    obj: Object,
    *,
    kind: tuple[str, str] = ("", "pods"),
    verb: str = "CREATE",
    namespace: Object = NAMESPACE,
) -> list[str]:
    """The names of the entries to which the API server sends the object."""
    scope = {"object": obj, "request": {"resource": {"group": kind[0], "resource": kind[1]}}}
    return [
        hook["name"]
        for hook in entries
        if any(
            kind == (rule["apiGroups"][0], rule["resources"][0]) and verb in rule["operations"]
            for rule in hook["rules"]
        )
        and selectors.from_object(hook["objectSelector"]).selects(obj["metadata"].get("labels"))
        and selectors.from_object(hook["namespaceSelector"]).selects(namespace)
        and all(expression.compiled(each["expression"])(scope) for each in hook["matchConditions"])
    ]


ALL_MARKS = list(chain.from_iterable(combinations(MARKS, count) for count in range(len(MARKS) + 1)))


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param({"default_queues": ["ns"]}, id="with-a-default-queue"),
        pytest.param({"without_queue": True}, id="all-jobs-are-managed"),
    ],
)
def test_a_pod_is_reviewed_by_one_entry(scope: Object) -> None:
    """For every combination of labels, annotations and the field: one mutating entry, at most one validating."""
    entries = hooks("pod", *GANG_DIALECTS, managed=SELECTED, **scope)

    for marks in ALL_MARKS:
        names_ = sent(entries, pod(*marks))
        mutating = [name for name in names_ if name.startswith("m")]

        assert len(mutating) == 1, (marks, mutating)
        assert len(names_) - len(mutating) <= 1, (marks, names_)


FIRST = ("schedulinggroup", "podgroup", "coscheduling", "volcano")


def test_the_entry_is_that_of_the_dialect_that_counts() -> None:
    """In the order of dialects; the labels `queue-name` and `managed` go before."""
    on = [name for name in FIRST if any(hook["name"] == f"mpod-{name}.kb.io" for hook in hooks("pod", *GANG_DIALECTS))]
    entries = hooks("pod", *GANG_DIALECTS)

    for number, first in enumerate(on):
        assert sent(entries, pod(*on[number:])) == [f"mpod-{first}.kb.io", f"vpod-{first}.kb.io"]
        assert sent(entries, pod("queue", first)) == ["mpod.kb.io", "vpod.kb.io"]
        assert sent(entries, pod("managed", first)) == ["mpod-managed.kb.io", "vpod-managed.kb.io"]


def test_a_dialect_that_is_off_has_no_entry() -> None:
    """Its pods are pods like all others; a namespace that is not managed sends none."""
    off, on = hooks("pod"), hooks("pod", *GANG_DIALECTS, managed=SELECTED)

    assert [name for hook in off if (name := hook["name"]).startswith(("mpod", "vpod"))] == [
        "mpod.kb.io",
        "mpod-managed.kb.io",
        "vpod.kb.io",
        "vpod-managed.kb.io",
    ]
    for marks in FIRST:
        assert sent(off, pod(marks)) == []
        assert sent(on, pod(marks), namespace={"kubernetes.io/metadata.name": "ns"}) == []


def test_updates_of_pods_without_labels_are_not_sent() -> None:
    """Pods that kqueue queues have its labels."""
    entries = hooks("pod", *GANG_DIALECTS)

    for marks in FIRST:
        assert sent(entries, pod(marks), verb="UPDATE") == []
    assert sent(entries, pod("queue", "coscheduling"), verb="UPDATE") == ["vpod.kb.io"]


def test_other_kinds_get_the_default_queue_whatever_marks_they_have() -> None:
    """The marks of gangs mean something on pods only; objects without a spec pass the condition."""
    entries = hooks("pod", "batch/job", *GANG_DIALECTS, default_queues=["ns"])
    jobs = ("batch", "jobs")

    assert sent(entries, pod(*FIRST), kind=jobs) == ["mdefault-queue.kb.io"]
    assert sent(entries, {"metadata": {"name": "j"}}, kind=jobs) == ["mdefault-queue.kb.io"]
    assert sent(entries, pod()) == ["mdefault-queue.kb.io"]


def test_an_entry_for_pods_of_gangs_fails_closed() -> None:
    """A pod that was not gated at its creation never is; a validation waits for nobody."""
    entries = {hook["name"]: hook for hook in hooks(*GANG_DIALECTS)}

    assert entries["mpod-coscheduling.kb.io"]["failurePolicy"] == "Fail"
    assert entries["vpod-coscheduling.kb.io"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("given", [{}, {"label": "a", "condition": "true"}])
def test_a_selection_has_one_test(given: dict[str, str]) -> None:
    """Two would have no simple opposite, and none would select all pods."""
    with pytest.raises(ValueError, match="needs a label or a condition"):
        PodSelection(word="w", **given)
