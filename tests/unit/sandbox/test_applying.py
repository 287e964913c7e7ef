from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import ConflictError
from kqueue.sandbox.api import APPLY_PATCH, JOBS, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.objects import WriteOptions
from tests.unit.sandbox.objects import CONFIG_MAPS, CRDS, THINGS, config_map, definition, job, new_api, thing


@pytest.fixture
async def api() -> ClusterApi:
    api = new_api()
    await api.create(CRDS, definition())
    return api


async def apply(
    api: ClusterApi, manager: str, *, force: bool = False, subresource: str | None = None, **spec: Any
) -> Object:
    options = WriteOptions(manager=manager, force=force)
    wanted: Object = {"metadata": {"name": "t"}, "status" if subresource else "spec": spec}
    return await api.patch(
        THINGS, "t", wanted, namespace="default", content_type=APPLY_PATCH, options=options, subresource=subresource
    )


def owners(obj: Object) -> dict[str, Object]:
    return {entry["manager"]: entry["fieldsV1"].get("f:spec", {}) for entry in obj["metadata"]["managedFields"]}


def part(name: str, **more: Any) -> Object:
    return {"name": name, **more}


async def test_the_first_apply_creates(api: ClusterApi) -> None:
    """The object is there, and the manager owns what it said and nothing that was defaulted."""
    made = await apply(api, "one", n=3, parts=[part("a", size=1)], tags=["x"])

    assert made["spec"] == {"color": "red", "n": 3, "parts": [{"name": "a", "size": 1}], "tags": ["x"]}
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("one", "Apply", "example.com/v1")
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:n": {},
            "f:parts": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:size": {}}},
            "f:tags": {'v:"x"': {}},
        }
    }


async def test_applying_the_same_again_changes_nothing(api: ClusterApi) -> None:
    """Not even the version."""
    first = await apply(api, "one", n=3)

    assert await apply(api, "one", n=3) is first


async def test_what_a_manager_no_longer_applies_goes(api: ClusterApi) -> None:
    """Fields, items of keyed lists and members of sets, unless somebody else applies them too."""
    await apply(api, "one", n=3, parts=[part("a", size=1), part("b")], tags=["x", "y"], word="abc")
    await apply(api, "two", tags=["y", "z"], word="abc")

    left = await apply(api, "one", parts=[part("b")])

    assert left["spec"] == {"color": "red", "parts": [{"name": "b", "size": 7}], "tags": ["y", "z"], "word": "abc"}


async def test_managers_share_lists(api: ClusterApi) -> None:
    """Each has its items; neither sees the other's as its own."""
    await apply(api, "one", parts=[part("a")], tags=["x"])
    both = await apply(api, "two", parts=[part("b")], tags=["y"])

    assert [each["name"] for each in both["spec"]["parts"]] == ["a", "b"]
    assert both["spec"]["tags"] == ["x", "y"]
    assert list(owners(both)["two"]["f:parts"]) == ['k:{"name":"b"}']


async def test_taking_a_field_from_another_manager_is_a_conflict(api: ClusterApi) -> None:
    """It is named with its owner; force takes it; equal values are shared in peace."""
    await apply(api, "one", n=3, parts=[part("a", size=1)])
    await apply(api, "two", n=3)

    with pytest.raises(ConflictError, match=r'conflicts? with "one"') as caught:
        await apply(api, "three", n=4, parts=[part("a", size=2)])
    assert ".spec.n" in str(caught.value)
    assert '.spec.parts[name="a"].size' in str(caught.value)
    taken = await apply(api, "three", n=4, force=True)

    assert taken["spec"]["n"] == 4
    assert "f:n" not in owners(taken)["one"]
    assert "two" not in owners(taken)
    assert owners(taken)["three"] == {"f:n": {}}


async def test_a_plain_write_takes_what_it_changes(api: ClusterApi) -> None:
    """After an update the field is its manager's, so the next apply of another value is a conflict."""
    await apply(api, "one", n=3, word="abc")
    patched = await api.patch(
        THINGS, "t", {"spec": {"n": 5}}, namespace="default", options=WriteOptions(manager="editor")
    )

    assert owners(patched) == {"one": {"f:word": {}}, "editor": {"f:n": {}}}
    with pytest.raises(ConflictError, match=r'"editor" using example.com/v1: .spec.n'):
        await apply(api, "one", n=3, word="abc")


async def test_what_was_there_before_the_first_apply_belongs_to_somebody(api: ClusterApi) -> None:
    """An object that nobody tracked is not taken over silently; equal values are no conflict."""
    await api.create(THINGS, thing(n=3))

    with pytest.raises(ConflictError, match="before-first-apply"):
        await apply(api, "one", n=4)
    assert (await apply(api, "one", n=3))["spec"]["n"] == 3


async def test_status_is_applied_through_its_own_door(api: ClusterApi) -> None:
    """The main resource does not write it, the subresource writes nothing else."""
    await apply(api, "one", n=3)
    done = await apply(api, "status-writer", subresource="status", phase="Good")

    assert (done["spec"]["n"], done["status"]) == (3, {"phase": "Good"})
    assert [(e["manager"], e.get("subresource")) for e in done["metadata"]["managedFields"]] == [
        ("one", None),
        ("status-writer", "status"),
    ]


async def test_built_in_kinds_know_their_lists(api: ClusterApi) -> None:
    """Containers merge by name, and quantities compare by amount, not by spelling."""
    body = job(pod_spec={"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}]})
    how: dict[str, Any] = {"namespace": "default", "content_type": APPLY_PATCH}
    first = await api.patch(JOBS, "j", body, options=WriteOptions(manager="one"), **how)
    second = await api.patch(JOBS, "j", body, options=WriteOptions(manager="two"), **how)

    assert second["spec"] == first["spec"]
    (entry,) = [e for e in second["metadata"]["managedFields"] if e["manager"] == "two"]
    assert 'k:{"name":"c"}' in entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]


async def test_objects_that_nobody_applies_carry_no_bookkeeping(api: ClusterApi) -> None:
    """Plain creates and updates leave managedFields out."""
    await api.create(CONFIG_MAPS, config_map(managedFields=[{"manager": "x"}]))
    patched = await api.patch(CONFIG_MAPS, "c", {"data": {"b": "2"}}, namespace="default")

    assert "managedFields" not in patched["metadata"]


KUBECTL = WriteOptions(manager="kubectl-client-side-apply")


async def test_what_kubectl_applies_by_itself_is_tracked_from_the_start(api: ClusterApi) -> None:
    """All that it sent, but nothing that the server itself adds, so that a later apply does not take that away."""
    made = await api.create(JOBS, job(suspend=True), options=KUBECTL)

    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl-client-side-apply", "Update")
    assert "f:suspend" in entry["fieldsV1"]["f:spec"]
    assert "f:selector" not in entry["fieldsV1"]["f:spec"]


async def test_applying_by_kubectl_itself_again_changes_nothing(api: ClusterApi) -> None:
    """Not even for an object that nobody tracked before."""
    made = await api.create(CONFIG_MAPS, config_map())

    same = await api.patch(CONFIG_MAPS, "c", {"data": {"a": "1"}}, namespace="default", options=KUBECTL)

    assert same is made


@pytest.mark.parametrize(
    ("sent", "managers"),
    [
        pytest.param([{"manager": "new", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {}}}], ["new"], id="its-own-stand"),
        pytest.param([], ["kubectl-client-side-apply"], id="an-empty-list-says-nothing"),
        pytest.param([{}], None, id="an-empty-entry-ends-the-tracking"),
        pytest.param([{"manager": "half"}], ["kubectl-client-side-apply"], id="half-an-entry-is-passed-over"),
    ],
)  # fmt: skip
async def test_a_client_may_write_the_bookkeeping(
    api: ClusterApi, sent: list[Object], managers: list[str] | None
) -> None:
    """As kubectl does when it hands its fields over."""
    await api.create(CONFIG_MAPS, config_map(), options=KUBECTL)

    new = await api.patch(CONFIG_MAPS, "c", {"metadata": {"managedFields": sent}}, namespace="default")

    found = new["metadata"].get("managedFields")
    assert (None if found is None else [entry["manager"] for entry in found]) == managers
