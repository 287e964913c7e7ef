"""Users of the sandbox who are not its administrator may what roles say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from kqueue.clock import FakeClock
from kqueue.errors import InvalidError
from kqueue.sandbox import access
from kqueue.sandbox.access import AccessAttempt, SandboxUser, account
from kqueue.sandbox.api import NAMESPACES, GroupVersionResource
from kqueue.sandbox.cluster_api import ClusterApi

Object = dict[str, Any]
ALICE = SandboxUser("alice", ("devs", "system:authenticated"))


def rules(*found: Object) -> list[Object]:
    return list(found)


def rule(verbs: str = "get", resources: str = "pods", groups: str = "", **more: Any) -> Object:
    return {"verbs": verbs.split(","), "resources": resources.split(","), "apiGroups": groups.split(","), **more}


@pytest.fixture
async def api() -> AsyncIterator[ClusterApi]:
    """Roles, and who has them."""
    made = ClusterApi(FakeClock())
    for name in ("a", "b"):
        await made.create(NAMESPACES, {"metadata": {"name": name}})

    async def role(kind: str, name: str, found: list[Object], namespace: str = "", **more: Any) -> None:
        resource = GroupVersionResource(access.RBAC, "v1", f"{kind.lower()}s")
        obj = {"kind": kind, "metadata": {"name": name, **more.pop("metadata", {})}, "rules": found, **more}
        await made.create(resource, obj, namespace=namespace or None)

    async def bind(name: str, to: str, subject: Object, namespace: str = "") -> None:
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        resource = GroupVersionResource(access.RBAC, "v1", f"{kind.lower()}s")
        reference = {"apiGroup": access.RBAC, "kind": to, "name": name}
        obj = {"kind": kind, "metadata": {"generateName": "b-"}, "roleRef": reference, "subjects": [subject]}
        await made.create(resource, obj, namespace=namespace or None)

    await role("Role", "pods", [rule("get,list"), rule("get", "jobs/status", "batch")], "a")
    await bind("pods", "Role", {"kind": "User", "name": "alice"}, "a")
    await role("ClusterRole", "nodes", [rule("*", "nodes"), rule("get", "secrets", resourceNames=["one"])])
    await bind("nodes", "ClusterRole", {"kind": "Group", "name": "devs"})
    await role("ClusterRole", "status", [rule("patch", "*/status", "*")])
    await bind("status", "ClusterRole", {"kind": "ServiceAccount", "namespace": "b", "name": "bot"}, "b")
    await role("ClusterRole", "part", [rule("get", "maps", "x")], metadata={"labels": {"to": "whole"}})
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"to": "whole"}}]}
    await role("ClusterRole", "whole", [], aggregationRule=selectors)
    await bind("whole", "ClusterRole", {"kind": "User", "name": "alice"})
    await role("ClusterRole", "paths", [{"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}])
    await bind("paths", "ClusterRole", {"kind": "User", "name": "alice"})
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("user", "attempt", "want"),
    [
        pytest.param(
            access.ADMIN, AccessAttempt(verb="delete", resource="nodes"), True, id="the-administrator-everything"
        ),
        pytest.param(
            ALICE, AccessAttempt(verb="get", resource="pods", namespace="a"), True, id="role-in-its-namespace"
        ),
        pytest.param(ALICE, AccessAttempt(verb="get", resource="pods", namespace="b"), False, id="role-in-another"),
        pytest.param(ALICE, AccessAttempt(verb="list", resource="pods"), False, id="role-is-not-for-all-namespaces"),
        pytest.param(ALICE, AccessAttempt(verb="delete", resource="pods", namespace="a"), False, id="another-verb"),
        pytest.param(
            ALICE, AccessAttempt(verb="get", resource="pods", group="x", namespace="a"), False, id="another-group"
        ),
        pytest.param(
            ALICE,
            AccessAttempt(verb="get", resource="pods", subresource="log", namespace="a"),
            False,
            id="a-subresource",
        ),
        pytest.param(
            ALICE,
            AccessAttempt(verb="get", group="batch", resource="jobs", subresource="status", namespace="a"),
            True,
            id="its-subresource",
        ),
        pytest.param(
            ALICE,
            AccessAttempt(verb="get", group="batch", resource="jobs", namespace="a"),
            False,
            id="not-the-whole-of-it",
        ),
        pytest.param(ALICE, AccessAttempt(verb="watch", resource="nodes"), True, id="by-group-all-verbs"),
        pytest.param(
            ALICE, AccessAttempt(verb="get", resource="secrets", name="one", namespace="b"), True, id="by-name"
        ),
        pytest.param(
            ALICE, AccessAttempt(verb="get", resource="secrets", name="two", namespace="b"), False, id="other-name"
        ),
        pytest.param(ALICE, AccessAttempt(verb="get", group="x", resource="maps"), True, id="aggregated"),
        pytest.param(ALICE, AccessAttempt(verb="get", path="/logs/x"), True, id="path-below"),
        pytest.param(ALICE, AccessAttempt(verb="get", path="/metrics/x"), False, id="path-beside"),
        pytest.param(ALICE, AccessAttempt(verb="get", path="/apis/x"), True, id="what-is-served"),
        pytest.param(
            SandboxUser("x", ()), AccessAttempt(verb="get", path="/apis/x"), False, id="not-for-who-is-nobody"
        ),
        pytest.param(
            account("b", "bot"),
            AccessAttempt(verb="patch", group="y", resource="things", subresource="status", namespace="b"),
            True,
            id="service-account-any-status",
        ),
        pytest.param(
            account("a", "bot"),
            AccessAttempt(verb="patch", group="y", resource="things", subresource="status", namespace="b"),
            False,
            id="service-account-of-another-namespace",
        ),
    ],
)
def test_roles_say_who_may_what(api: ClusterApi, user: SandboxUser, attempt: AccessAttempt, want: bool) -> None:
    """As RBAC does it."""
    assert access.allows(api, user, attempt) is want


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param({}, None, id="as-themselves"),
        pytest.param({"Impersonate-User": "bob"}, SandboxUser("bob", ("system:authenticated",)), id="a-user"),
        pytest.param(
            {"Impersonate-User": "bob", "Impersonate-Group": "g", "Impersonate-Uid": "1", "Impersonate-Extra-Team": "x"},
            SandboxUser("bob", ("g", "system:authenticated"), "1", (("team", ("x",)),)),
            id="with-all",
        ),
        pytest.param(
            {"Impersonate-User": "system:serviceaccount:a:bot"}, account("a", "bot"), id="a-service-account-has-groups"
        ),
    ],
)  # fmt: skip
def test_the_administrator_may_ask_as_somebody_else(headers: dict[str, str], want: SandboxUser | None) -> None:
    """By the headers of impersonation."""
    assert access.impersonated(make_mocked_request("GET", "/api", headers=headers)) == want


def test_groups_without_a_user_are_refused() -> None:
    """As of a real API server."""
    with pytest.raises(InvalidError, match="without a user"):
        access.impersonated(make_mocked_request("GET", "/api", headers={"Impersonate-Group": "g"}))
