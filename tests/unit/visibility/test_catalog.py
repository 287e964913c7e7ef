"""What the API server is told of what is served."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.visibility.catalog import Catalog, CatalogResource
from kqueue.visibility.question import JSON, AuthorizedQuestion


async def view(asked: AuthorizedQuestion) -> JSON:
    raise AssertionError("asked")


def resource(name: str, kind: str, version: str = "v1", **more: Any) -> CatalogResource:
    return CatalogResource(group="g.example", version=version, name=name, kind=kind, view=view, **more)


CATALOG = Catalog(
    [
        resource("queues", "Waiting", "v2", subresource="waiting", namespaced=True),
        resource("queues", "Waiting", "v1", subresource="waiting", namespaced=True),
        resource("summaries", "SummaryList", is_list=True),
        resource("summaries", "Summary"),
    ]
)


def test_a_subresource_is_listed_below_something_that_cannot_be_asked_for() -> None:
    """Clients take a list of resources apart by their names."""
    assert CATALOG.document("/apis/g.example/v2") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "g.example/v2",
        "resources": [
            {"name": "queues", "singularName": "queue", "namespaced": True, "kind": "Waiting", "verbs": []},
            {"name": "queues/waiting", "singularName": "", "namespaced": True, "kind": "Waiting", "verbs": ["get"]},
        ],
    }


def test_what_is_listed_and_got_is_one_resource() -> None:
    """With the kind of the single one."""
    found = CATALOG.document("/apis/g.example/v1")
    assert found is not None
    assert found["resources"][2] == {
        "name": "summaries", "singularName": "summary", "namespaced": False, "kind": "Summary", "verbs": ["list", "get"],
    }  # fmt: skip


def test_a_list_of_one_namespace_and_of_all_is_one_resource() -> None:
    """Namespaced, with each verb once; each path leads to its own view."""
    every = [
        resource("gangs", "GangList", is_list=True),
        resource("gangs", "GangList", is_list=True, namespaced=True),
        resource("gangs", "Gang", namespaced=True),
    ]
    catalog = Catalog(every)
    document = catalog.document("/apis/g.example/v1")
    assert document is not None
    assert document["resources"] == [
        {"name": "gangs", "singularName": "gang", "namespaced": True, "kind": "Gang", "verbs": ["list", "get"]}
    ]
    paths = ("gangs", "namespaces/ns/gangs", "namespaces/ns/gangs/g")
    found = [catalog.find(f"/apis/g.example/v1/{path}") for path in paths]
    assert [one.resource for one in found if one is not None] == every
    assert catalog.find("/apis/g.example/v1/gangs/g") is None


def test_the_version_that_was_added_first_is_preferred() -> None:
    """In the group and in the list of groups."""
    group = CATALOG.document("/apis/g.example")
    groups = CATALOG.document("/apis")
    assert group is not None
    assert groups is not None
    assert group["preferredVersion"] == {"groupVersion": "g.example/v2", "version": "v2"}
    assert [each["version"] for each in groups["groups"][0]["versions"]] == ["v2", "v1"]
    assert CATALOG.group_versions() == [("g.example", "v2"), ("g.example", "v1")]


@pytest.mark.parametrize(
    "path", ["/apis/other", "/apis/g.example/v3", "/openapi/v3/apis/g.example/v3", "/openapi", "/", "", "/api/v1"]
)
def test_of_anything_else_nothing_is_told(path: str) -> None:
    """The server makes a 404 of it."""
    assert CATALOG.document(path) is None


def test_schemas_name_every_path_once() -> None:
    """Operations of one document have names of their own; parameters stand as each version has them."""
    two, three = CATALOG.document("/openapi/v2"), CATALOG.document("/openapi/v3/apis/g.example/v1")
    index = CATALOG.document("/openapi/v3")
    assert two is not None
    assert three is not None
    assert index is not None
    operations = [path["get"]["operationId"] for path in two["paths"].values()]
    assert len(set(operations)) == len(operations) == 4
    below = "/apis/g.example/v1/namespaces/{namespace}/queues/{name}/waiting"
    assert [each["name"] for each in two["paths"][below]["get"]["parameters"]] == ["namespace", "name"]
    assert two["paths"][below]["get"]["parameters"][0]["type"] == "string"
    assert three["paths"][below]["get"]["parameters"][0]["schema"] == {"type": "string"}
    assert set(index["paths"]) == {"apis/g.example/v1", "apis/g.example/v2"}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/apis/g.example/v2/namespaces/a/queues/b/waiting", ("a", "b", "get", "waiting"), id="below"),
        pytest.param("/apis/g.example/v1/summaries", ("", "", "list", ""), id="a-list"),
        pytest.param("/apis/g.example/v1/summaries/namespaces", ("", "namespaces", "get", ""), id="an-odd-name"),
        pytest.param("/apis/g.example/v1/summaries/a.b-c", ("", "a.b-c", "get", ""), id="a-subdomain"),
    ],
)
def test_paths_lead_to_resources(path: str, want: tuple[str, str, str, str]) -> None:
    """With what one has to be allowed for them."""
    found = CATALOG.find(path)
    assert found is not None
    action = found.action
    assert (action.namespace, action.name, action.verb, action.subresource) == want


@pytest.mark.parametrize(
    "path",
    [
        "/apis/g.example/v1/namespaces/a/summaries",
        "/apis/g.example/v1/namespaces/a",
        "/apis/g.example/v1/summaries/A",
        "/apis/g.example/v1/summaries/-a",
        "/apis/g.example/v1/summaries/a/waiting",
        "/apis/g.example/v1/summaries/",
        f"/apis/g.example/v1/summaries/{'a' * 254}",
    ],
)
def test_other_paths_lead_nowhere(path: str) -> None:
    """A name that no object can have is not looked for."""
    assert CATALOG.find(path) is None


def test_a_question_that_is_posted_has_the_verb_create() -> None:
    """Its path has no name, and a path with one leads nowhere."""
    catalog = Catalog([resource("wishes", "Wish", namespaced=True, most_bytes=10)])
    found = catalog.document("/apis/g.example/v1")
    schema = catalog.document("/openapi/v2")
    asked = catalog.find("/apis/g.example/v1/namespaces/a/wishes")
    assert found is not None
    assert schema is not None
    assert asked is not None
    assert found["resources"][0]["verbs"] == ["create"]
    assert list(schema["paths"]["/apis/g.example/v1/namespaces/{namespace}/wishes"]) == ["post"]
    assert (asked.action.verb, asked.action.name) == ("create", "")
    assert catalog.find("/apis/g.example/v1/namespaces/a/wishes/b") is None
