"""The catalogue of kinds: what one row and one adapter are enough for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from kqueue import kinds
from kqueue.config import ConfigFileError, Configuration, parse
from kqueue.config.policy import Integrations
from kqueue.jobs import catalog
from kqueue.jobs.ancestry import managed_ancestor, owner_kinds
from kqueue.jobs.catalog import BY_FRAMEWORK, REVIEWED, register, webhook_path
from kqueue.jobs.kind import GroupVersionKind
from kqueue.jobs.registry import kinds_for
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.unmanaged import kinds_not_queued, remedy
from kqueue.jobs.workload import Priority, workload_for
from kqueue.kinds import FRAMEWORKS, OWNERS, Kind
from tests.unit.jobs.builders import make_job
from tests.unit.toys import toy_kind
from tests.unit.webhooks.test_routes import at_once
from webhooks.accounts import Accounts
from webhooks.configuration import WebhookEndpoint, WebhookScope, webhook_configurations
from webhooks.review import Request, RequestUser
from webhooks.routes import routes

TARGET = WebhookEndpoint(ca_bundle=b"ca", url="https://kqueue/")
NAME = toy_kind.ROW.framework


@pytest.fixture
def toy() -> Iterator[None]:
    """The kind is registered with one line, for one test."""
    tables: list[dict[Any, Any]] = [
        kinds._frameworks, kinds._owners, catalog._jobs, catalog._jobs_by_kind, catalog._reviewed
    ]  # fmt: skip
    before = [dict(table) for table in tables]
    register(toy_kind.ROW, toy_kind.Toy())
    yield
    for table, former in zip(tables, before, strict=True):
        table.clear()
        table.update(former)


def make_toy() -> dict[str, Any]:
    return {**make_job(suspend=False), "apiVersion": "toys.example.com/v1", "kind": "Toy"}


def review(path: str, obj: dict[str, Any]) -> Any:
    request = Request(uid="u", operation="CREATE", obj=obj, old=None)
    return at_once(routes([NAME], JobFeatures())[path], request)


@pytest.mark.usefixtures("toy")
def test_a_kind_of_one_file_is_queued() -> None:
    """Configuration knows it, its webhooks suspend its objects, and a Workload is built for each."""
    configuration = Configuration(integrations=Integrations(frameworks=(NAME,)))
    (adapter,) = kinds_for(configuration)

    assert isinstance(adapter, toy_kind.Toy)
    assert review("/mutate-toys-example-com-v1-toy", make_toy()).patch == {"spec": {"suspend": True}}
    workload = workload_for(adapter, make_toy(), priority=Priority(), switches=JobFeatures())
    assert workload["spec"]["podSets"][0]["count"] == 4
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "Toy"


@pytest.mark.usefixtures("toy")
def test_its_webhooks_are_registered() -> None:
    (mutating, _validating) = webhook_configurations(TARGET, WebhookScope(frameworks=(NAME,), own_namespace="ns"))
    (hook,) = [h for h in mutating["webhooks"] if h["name"] == "mtoy.kb.io"]
    assert hook["rules"][0]["resources"] == ["toys"]
    assert hook["clientConfig"]["url"].endswith("/mutate-toys-example-com-v1-toy")


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(("child", "found"), [(kinds.POD, "Toy"), (("batch", "Job"), None)], ids=["pod", "job"])
async def test_owners_are_followed_through_it(child: tuple[str, str], found: str | None) -> None:
    """What it makes is queued with it; what its controller never makes is not."""
    toy = {**make_toy(), "metadata": {**make_toy()["metadata"], "name": "top"}}
    reference = {"apiVersion": "toys.example.com/v1", "kind": "Toy", "name": "top", "controller": True}
    below = {
        "metadata": {
            "name": "x",
            "namespace": "team",
            "ownerReferences": [{**reference, "uid": toy["metadata"]["uid"]}],
        }
    }

    async def fetch(*_: Any) -> dict[str, Any]:
        return toy

    ancestor = await managed_ancestor(below, child=child, known=owner_kinds([NAME]), manages_all=False, fetch=fetch)
    assert (ancestor.gvk.kind if ancestor is not None else None) == found


@pytest.mark.usefixtures("toy")
def test_where_it_is_off_the_remedy_names_it() -> None:
    off = Integrations(frameworks=("batch/job",))
    assert "Toy" in [owner.gvk.kind for owner in kinds_not_queued(off)]
    assert remedy(toy_kind.Toy.gvk) == f"add {NAME} to configuration.integrations.frameworks of the chart's values"


def with_row(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The facts of the toy kind are known for one test, with these fields."""
    row = dataclasses.replace(toy_kind.ROW, **changes)
    monkeypatch.setitem(kinds._frameworks, NAME, row)
    monkeypatch.setitem(kinds._owners, row.group_kind, row)


def test_a_kind_with_a_gate_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate is named where the kind is on without it."""
    with_row(monkeypatch, gate="SparkApplicationIntegration")
    text = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: [{NAME}]}}\n"

    with pytest.raises(ConfigFileError, match=f"{NAME} needs feature gate SparkApplicationIntegration"):
        parse(text, source="f")
    assert parse(f"{text}featureGates: {{SparkApplicationIntegration: true}}\n", source="f").integrations.frameworks


def test_the_account_of_its_controller_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one in kube-system, operators of other namespaces are; with one, no other account is."""
    kind, operator = toy_kind.ROW.group_kind, RequestUser(name="system:serviceaccount:toys:operator")
    kubernetes = RequestUser(name="system:serviceaccount:kube-system:toy-controller")
    assert Accounts().makes(operator, kind, "team")

    with_row(monkeypatch, account="toy-controller")
    assert (Accounts().makes(operator, kind, "team"), Accounts().makes(kubernetes, kind, "team")) == (False, True)


def test_what_owners_pass_through_belongs_to_the_kind_above() -> None:
    """A pod of a ReplicaSet is one of a Deployment; a ReplicaSet is no framework itself."""
    assert (kinds.framework_above("apps", "ReplicaSet"), kinds.framework_of("apps", "ReplicaSet")) == (
        "deployment",
        None,
    )
    assert (kinds.framework_above("batch", "Job"), kinds.framework_above("example.com", "Other")) == ("batch/job", None)


def test_without_its_line_it_is_unknown() -> None:
    with pytest.raises(ValidationError):
        Integrations(frameworks=(NAME,))
    assert NAME not in BY_FRAMEWORK


@pytest.mark.usefixtures("toy")
def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match="one is taken"):
        register(toy_kind.ROW, toy_kind.Toy())


def test_an_adapter_belongs_to_its_row() -> None:
    with pytest.raises(ValueError, match="does not belong"):
        register(toy_kind.ROW, BY_FRAMEWORK["batch/job"])


@pytest.mark.parametrize("row", FRAMEWORKS.values(), ids=lambda row: row.framework)
def test_rows_and_adapters_agree(row: Kind) -> None:
    """Every kind has an adapter."""
    adapter = REVIEWED[row.framework]
    assert adapter.gvk == GroupVersionKind(row.group, row.version, row.kind)
    assert (adapter.resource, webhook_path(adapter)) == (row.plural, row.webhook_path)
    assert OWNERS[row.group_kind] is row
