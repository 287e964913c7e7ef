from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import InvalidError, NotFoundError
from kqueue.sandbox import json_path
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.failure import Detailed
from kqueue.sandbox.table import Moment
from tests.unit.sandbox.objects import CRDS, THING_SCHEMA, THINGS, definition, new_api, thing


@pytest.fixture
async def api() -> ClusterApi:
    api = new_api()
    await api.create(CRDS, definition())
    return api


async def test_a_kind_is_served_from_its_definition_to_its_end() -> None:
    """Registered at once with names and conditions; gone with its objects."""
    api = new_api()
    with pytest.raises(NotFoundError):
        await api.create(THINGS, thing())

    made = await api.create(CRDS, definition())
    await api.create(THINGS, thing())

    assert made["status"]["acceptedNames"]["listKind"] == "ThingList"
    assert {c["type"]: c["status"] for c in made["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert made["status"]["storedVersions"] == ["v1"]
    await api.delete(CRDS, "things.example.com")  # held until its objects are gone
    await api.patch(CRDS, "things.example.com", {"metadata": {"finalizers": []}})
    with pytest.raises(NotFoundError):
        api.list(THINGS)


async def test_unknown_fields_are_pruned_and_defaults_filled_in(api: ClusterApi) -> None:
    """At every depth; what is to be preserved is left as it is."""
    sent = thing(junk=1, parts=[{"name": "a", "junk": 1}], free={"x": {"y": None}}, map={"k": "v"}, n=None)
    made = await api.create(THINGS, {**sent, "junk": 1})

    assert made["spec"] == {
        "color": "red",
        "parts": [{"name": "a", "size": 7}],
        "free": {"x": {"y": None}},
        "map": {"k": "v"},
    }
    assert "junk" not in made


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        pytest.param({"color": "green"}, [("NotSupported", "spec.color")], id="a-word-of-no-choice"),
        pytest.param({"n": 9}, [("Invalid", "spec.n")], id="too-high"),
        pytest.param({"n": 0}, [("Invalid", "spec.n")], id="too-low"),
        pytest.param({"n": "x"}, [("TypeInvalid", "spec.n")], id="text-for-a-number"),
        pytest.param({"n": 1.5}, [("TypeInvalid", "spec.n")], id="a-fraction-for-an-integer"),
        pytest.param({"n": True}, [("TypeInvalid", "spec.n")], id="a-boolean-is-no-number"),
        pytest.param({"word": "abcde"}, [("TooLong", "spec.word")], id="too-long"),
        pytest.param({"word": "A"}, [("Invalid", "spec.word")], id="too-short"),
        pytest.param({"word": "A1"}, [("Invalid", "spec.word")], id="against-the-pattern"),
        pytest.param({"parts": {}}, [("TypeInvalid", "spec.parts")], id="an-object-for-a-list"),
        pytest.param({"parts": [{"size": 1}]}, [("Required", "spec.parts[0].name")], id="an-item-without-its-key"),
        pytest.param(
            {"parts": [{"name": "a"}, {"name": "a"}]}, [("Duplicate", "spec.parts[1]")], id="the-same-key-twice"
        ),
        pytest.param({"parts": [{"name": str(i)} for i in range(4)]}, [("TooMany", "spec.parts")], id="too-many"),
        pytest.param({"tags": ["a", "a"]}, [("Duplicate", "spec.tags[1]")], id="a-set-with-a-repetition"),
        pytest.param({"map": {"a": 1}}, [("TypeInvalid", "spec.map.a")], id="a-map-with-a-number"),
        pytest.param({"amount": True}, [("TypeInvalid", "spec.amount")], id="neither-integer-nor-text"),
        pytest.param(
            {"color": "green", "n": 9}, [("NotSupported", "spec.color"), ("Invalid", "spec.n")], id="all-are-named"
        ),
    ],
)
async def test_the_schema_is_enforced(api: ClusterApi, spec: Object, found: list[tuple[str, str]]) -> None:
    """Every mistake is named with its field, in creates and in updates."""
    with pytest.raises(InvalidError) as created:
        await api.create(THINGS, thing(**spec))
    await api.create(THINGS, thing("ok"))
    with pytest.raises(InvalidError) as patched:
        await api.patch(THINGS, "ok", {"spec": spec}, namespace="default")

    for caught in (created, patched):
        assert caught.value.status == 422
        assert isinstance(caught.value, Detailed)
        causes = [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in caught.value.details.causes]
        assert causes == found


async def test_amounts_may_be_integers_or_text(api: ClusterApi) -> None:
    """x-kubernetes-int-or-string takes both."""
    for index, amount in enumerate((5, "5Gi")):
        made = await api.create(THINGS, thing(f"t{index}", amount=amount))
        assert made["spec"]["amount"] == amount


async def test_an_update_needs_a_version(api: ClusterApi) -> None:
    """Custom objects are never replaced blindly."""
    await api.create(THINGS, thing())

    with pytest.raises(InvalidError, match="must be specified for an update"):
        await api.update(THINGS, thing(n=3))


async def test_status_is_a_resource_of_its_own(api: ClusterApi) -> None:
    """It is dropped on creation, kept by the main resource, and writes neither labels nor spec."""
    made = await api.create(THINGS, {**thing(), "status": {"phase": "No"}})
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"n": 2}, "status": {"phase": "Yes"}}
    status = await api.patch(THINGS, "t", change, namespace="default", subresource="status")

    assert "status" not in made
    assert (status["spec"], status["status"]) == ({"color": "red"}, {"phase": "Yes"})
    assert "labels" not in status["metadata"]
    assert status["metadata"]["generation"] == 1


async def test_columns_are_read_by_their_paths() -> None:
    """Plain paths, conditions by type, ages; nothing where there is nothing."""
    api = new_api()
    columns = [
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "N", "type": "integer", "jsonPath": ".spec.n"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
    ]
    await api.create(CRDS, definition(additionalPrinterColumns=columns))
    await api.create(THINGS, thing(n=3))
    ready = [{"type": "Old", "status": "False"}, {"type": "Ready", "status": "True"}]
    await api.patch(THINGS, "t", {"status": {"conditions": ready}}, namespace="default", subresource="status")
    await api.create(THINGS, thing("u"))

    kind = api.kind(THINGS)
    moment = Moment(api.clock.now())
    rows = [[column.cell(obj, moment) for column in kind.columns] for obj in api.list(THINGS)]

    assert [column.name for column in kind.columns] == ["Name", "Color", "N", "Ready", "Age"]
    assert rows == [["t", "red", 3, "True", "0s"], ["u", "red", None, None, "0s"]]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param(".a.b", [1], id="fields"),
        pytest.param("{.a.b}", [1], id="in-braces"),
        pytest.param(".l[0].n", ["x"], id="an-index"),
        pytest.param(".l[-1].n", ["y"], id="from-the-end"),
        pytest.param(".l[*].n", ["x", "y"], id="every-item"),
        pytest.param(".l[?(@.n=='y')].v", [2], id="a-filter"),
        pytest.param(r".labels.example\.com/x", ["z"], id="dots-in-a-name"),
        pytest.param(".labels['example.com/x']", ["z"], id="a-quoted-name"),
        pytest.param(".nope.b", [], id="nothing-there"),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    """The forms that printer columns use."""
    obj = {"a": {"b": 1}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "labels": {"example.com/x": "z"}}
    assert json_path.compiled(path)(obj) == found


async def test_versions_share_their_objects() -> None:
    """What is written in one version is read in the other, under its own name."""
    api = new_api()
    schema = {"openAPIV3Schema": THING_SCHEMA}
    versions: list[Object] = [
        {"name": "v1", "served": True, "storage": True, "schema": schema},
        {"name": "v1beta1", "served": True, "storage": False, "schema": schema},
        {"name": "v1alpha1", "served": False, "storage": False, "schema": schema},
    ]
    await api.create(CRDS, definition(versions=versions))
    old = GroupVersionResource("example.com", "v1beta1", "things")

    made = await api.create(old, thing(n=3))

    assert made["apiVersion"] == "example.com/v1beta1"
    assert api.get(THINGS, "t", namespace="default")["apiVersion"] == "example.com/v1"
    patched = await api.patch(old, "t", {"spec": {"n": 4}}, namespace="default")
    assert (patched["apiVersion"], patched["spec"]["n"]) == ("example.com/v1beta1", 4)
    with pytest.raises(NotFoundError):
        api.list(GroupVersionResource("example.com", "v1alpha1", "things"))


async def test_a_changed_definition_is_served_at_once(api: ClusterApi) -> None:
    """New rules hold from the next write on."""
    await api.create(THINGS, thing(word="ab"))
    changed = definition()
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    await api.update(CRDS, changed)

    made = await api.create(THINGS, thing("new", size=3, color="red"))

    assert made["spec"] == {"size": 3}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"metadata": {"name": "other.example.com"}}, "metadata.name", id="a-name-that-is-not-the-kinds"),
        pytest.param({"spec": {"scope": "Galactic"}}, "spec.scope", id="an-unknown-scope"),
        pytest.param({"spec": {"group": "nodots"}}, "spec.group", id="a-group-that-is-no-domain"),
        pytest.param(
            {"spec": {"conversion": {"strategy": "Webhook"}}}, "spec.conversion.webhook", id="a-webhook-without-address"
        ),
        pytest.param({"spec": {"versions": []}}, "spec.versions", id="no-version"),
    ],
)
async def test_a_definition_that_makes_no_sense_is_refused(change: Object, field: str) -> None:
    """The field is named."""
    obj = definition()
    for key, value in change.items():
        obj[key] = {**obj[key], **value}
    await refused(obj, field)


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        pytest.param({"type": "string"}, "type", id="no-object-at-the-root"),
        pytest.param({"type": "object", "properties": {"a": {}}}, "properties[a].type", id="a-field-without-type"),
        pytest.param({"type": "object", "properties": {"a": {"type": "array"}}}, "properties[a].items", id="no-items"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
            "properties[a].pattern",
            id="a-pattern-that-is-none",
        ),
    ],
)
async def test_a_schema_that_is_not_structural_is_refused(schema: Object, field: str) -> None:
    """The place in the schema is named."""
    await refused(definition(schema=schema), f"spec.versions[0].schema.openAPIV3Schema.{field}")


async def refused(obj: Object, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        await new_api().create(CRDS, obj)
    assert isinstance(caught.value, Detailed)
    assert field in [cause.field for cause in caught.value.details.causes]
