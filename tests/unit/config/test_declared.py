"""Kinds of a user's own in the configuration file: what is wrong with one is said with its path."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.config.object_path import parse, put
from tests.unit.config.test_load import problems, read

TRAIN: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Train",
    "podSets": [{"template": "spec.template", "replicas": "spec.replicas"}],
    "succeeded": {"condition": "Complete"},
    "ready": {"count": "status.ready"},
}


def with_kinds(*kinds: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"integrations": {"declaredKinds": list(kinds), **more}}


def test_a_kind_is_read() -> None:
    """What is left out has its usual place."""
    declared = read(**with_kinds(TRAIN)).integrations.declared_kinds[0]

    assert (declared.group, declared.version, declared.kind, declared.plural) == (
        "example.com",
        "v1",
        "Train",
        "trains",
    )
    assert (declared.framework, str(declared.suspend)) == ("example.com/train", "spec.suspend")
    assert declared.pod_sets[0].name == "main"


@pytest.mark.parametrize(
    ("change", "path", "want"),
    [
        pytest.param({"managedBy": "metadata.name"}, "managedBy", "below spec", id="a controller outside of spec"),
        pytest.param({"managedBy": "spec.a[*].by"}, "managedBy", "must not have", id="a controller per entry"),
        pytest.param({"apiVersion": "v1"}, "apiVersion", "example.com/v1", id="core-group"),
        pytest.param({"kind": "train"}, "kind", "as in Train", id="kind"),
        pytest.param({"resource": "Trains"}, "resource", "DNS label", id="plural"),
        pytest.param({"suspend": "status.suspend"}, "suspend", "below spec", id="suspend-in-status"),
        pytest.param({"suspend": "spec.a[*].suspend"}, "suspend", "must not have [*]", id="many-flags"),
        pytest.param({"suspend": "spec..x"}, "suspend", "must be a path", id="no-path"),
        pytest.param({"suspend": 3}, "suspend", "must be a path", id="a-number-for-a-path"),
        pytest.param({"podSets": []}, "podSets", "", id="no-templates"),
        pytest.param({"podSets": [{"template": "spec"}]}, "podSets[0].template", "below spec", id="all-of-it"),
        pytest.param({"podSets": [{"template": "spec.a[*].b[*].c"}]}, "podSets[0].template", "at most one [*]", id="nested"),
        pytest.param({"podSets": [{"template": "spec.a[*].t", "replicas": "spec.b[*].n"}]}, "podSets[0].replicas", "same entries", id="other-entries"),
        pytest.param({"podSets": [{"template": "spec.t", "nameFrom": "spec.n"}]}, "podSets[0].nameFrom", "use name", id="one-name"),
        pytest.param({"podSets": [{"template": "spec.t", "name": "Worker"}]}, "podSets[0].name", "DNS label", id="name"),
        pytest.param({"podSets": [{"template": "spec.a"}, {"template": "spec.b"}]}, "podSets[1].name", "not repeat", id="same-name"),
        pytest.param({"succeeded": {}}, "succeeded.condition", "either condition, or path", id="no-sign"),
        pytest.param({"succeeded": {"path": "status.phase"}}, "succeeded.values", "together with path", id="no-values"),
        pytest.param({"ready": {}}, "ready.sign", "exactly one", id="no-readiness"),
        pytest.param({"podLabels": {"no key!": "metadata.name"}}, "podLabels[no key!]", "label key", id="label"),
        pytest.param({"supend": "spec.x"}, "supend", "suspend", id="misspelt"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_kind_names_its_field(change: dict[str, Any], path: str, want: str) -> None:
    """Below the kind's place in the file."""
    at = f"integrations.declaredKinds[0].{path}: "
    found = problems(**with_kinds({**TRAIN, **change}))

    assert any(p.startswith(at) and want in p for p in found), found


@pytest.mark.parametrize(
    ("kinds", "external", "told"),
    [
        pytest.param([TRAIN, TRAIN], [], "is in declaredKinds already", id="declared twice"),
        pytest.param(
            [{**TRAIN, "apiVersion": "batch/v1", "kind": "Job"}],
            [],
            "add batch/job to integrations.frameworks",
            id="built in",
        ),
        pytest.param(
            [{**TRAIN, "apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet"}], [], "is built in", id="another version"
        ),
        pytest.param(
            [{**TRAIN, "apiVersion": "ray.io/v1", "kind": "RayJob"}],
            [],
            "add ray.io/rayjob to integrations.frameworks",
            id="built in since",
        ),
        pytest.param([TRAIN], ["Train.v1.example.com"], "is in externalFrameworks already", id="external as well"),
    ],
)
def test_a_kind_is_known_once(kinds: list[dict[str, Any]], external: list[str], told: str) -> None:
    """Two adapters of one kind would undo each other."""
    found = problems(**with_kinds(*kinds, externalFrameworks=external))

    assert any(told in p for p in found), found


@pytest.mark.parametrize(
    ("kind", "named", "gate", "path", "warned"),
    [
        pytest.param({}, False, True, None, False, id="no field"),
        pytest.param({"managedBy": "spec.run.by"}, False, True, "spec.run.by", False, id="declared"),
        pytest.param({}, True, True, "spec.managedBy", False, id="named for MultiKueue: at its usual place"),
        pytest.param({"managedBy": "spec.run.by"}, True, True, "spec.run.by", False, id="both"),
        pytest.param({"managedBy": "spec.run.by"}, True, False, None, True, id="the gate is off"),
        pytest.param({"apiVersion": "example.com/v2"}, True, True, None, True, id="another version is named"),
    ],
)
def test_declared_kinds_that_other_clusters_may_run(
    kind: dict[str, Any], named: bool, gate: bool, path: str | None, warned: bool
) -> None:
    """`multiKueue.externalFrameworks` without a declaration has no effect, and a warning."""
    external = [{"name": "Train.v1.example.com"}] if named else []
    found = read(
        **with_kinds({**TRAIN, **kind}),
        multiKueue={"externalFrameworks": external},
        featureGates={"MultiKueueAdaptersForCustomJobs": gate},
    )

    at = found.declared_kinds()[0].managed_by
    assert (str(at) if at is not None else None) == path
    assert any(text.startswith("multiKueue.externalFrameworks:") for text in found.warnings) is warned


def test_paths_read_and_write() -> None:
    """Lists in their order, maps by key; a copy is made of what changes, and of nothing else."""
    path = parse("spec.groups[*].template.spec")
    obj = {"spec": {"groups": [{"template": {"spec": 1}}, {}], "other": {}}}

    assert [(key, path.at(entry)) for key, entry in path.entries(obj)] == [("0", 1), ("1", None)]
    assert [key for key, _ in path.entries({"spec": {"groups": {"b": {}, "a": {}}}})] == ["a", "b"]
    assert list(path.entries({"spec": {"groups": 3}})) == []
    assert str(path) == "spec.groups[*].template.spec"
    changed = put(obj, ("spec", "new", "deep"), 2)
    assert changed["spec"]["new"] == {"deep": 2}
    assert ("new" in obj["spec"], changed["spec"]["other"] is obj["spec"]["other"]) == (False, True)
