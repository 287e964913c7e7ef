"""`kqueue quota` as people see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.cli.dashboard.quotas import heading, print_quotas
from kqueue.errors import ApiError, ForbiddenError, NotFoundError
from kqueue.runtime.client import Client
from tests.unit.visibility.test_queue_quotas import OWN, answer, company
from tests.unit.visibility.worlds import GPU

JSON = dict[str, Any]


async def told(*, fair_sharing: bool = True, **params: Any) -> JSON:
    """`mine` holds 8 of 24 GPUs of `team`; two of its workloads wait."""
    place, view = company(fair_sharing=fair_sharing)
    place.hold("a", "b0-r0-h0", namespace="mine")
    place.hold("b", "b0-r0-h1", "b0-r1-h0", namespace="secret")
    place.wait("mine/one", local_queue=OWN, since=20)
    place.wait("mine/two", local_queue=OWN, since=10)
    return await answer(view, **{"localQueue": "main", **params})


async def test_a_queue_has_a_heading_its_amounts_and_its_waiting_workloads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_quotas(await told(), "mine")
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "LocalQueue main, ClusterQueue team, share 250",
        "1 admitted, 2 waiting (2 in the ClusterQueue)",
        "FLAVOR RESOURCE QUOTA OWN IN USE BORROWED BORROWABLE",
        f"gpu {GPU} 16 8 24 8 8",
        "",
        "WAITING POSITION IN CLUSTERQUEUE PRIORITY",
        "one 1 of 2 1 of 2 0",
        "two 2 of 2 2 of 2 0",
    ]


async def test_workloads_beyond_the_limit_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    print_quotas(await told(limit="1"), "mine")
    assert capsys.readouterr().out.endswith("\nand 1 more; --limit shows more\n")


async def test_usual_names_fit_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    found = await told()
    (column,) = found["items"][0]["resources"]
    column |= {"flavor": "h100-reserved-eu", "nominal": "1023999", "borrowable": "1023999"}
    found["items"][0]["waiting"][0]["name"] = "job-train-llama-70b-4f2a1"
    print_quotas(found, "mine")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


async def test_a_share_stands_only_where_shares_decide() -> None:
    (item,) = (await told(fair_sharing=False))["items"]
    assert heading(item)[0] == "LocalQueue main, ClusterQueue team"


async def test_what_is_left_of_budgets_is_in_the_heading() -> None:
    (item,) = (await told())["items"]
    item["budgets"] = [{"of": "mine", "message": "4 of 10 h of cpu are left until T"}]
    assert heading(item)[2:] == ["budget of mine: 4 of 10 h of cpu are left until T"]


async def test_a_queue_that_admits_nothing_says_why() -> None:
    (item,) = (await told())["items"]
    item |= {"active": False, "message": "LocalQueue is stopped"}
    assert heading(item)[-1] == "not active: LocalQueue is stopped"


async def test_names_cannot_drive_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    found = await told()
    (item,) = found["items"]
    item |= {"active": False, "message": "x\x1b[2J"}
    item["waiting"][0]["name"] = "w\x1b[2J"
    print_quotas(found, "mine")
    out = capsys.readouterr().out
    assert (out.count("\\x1b"), out.count("\x1b")) == (2, 0)


def test_a_namespace_without_queues_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    print_quotas({"items": [], "left": 0}, "mine")
    assert capsys.readouterr() == ("", "No resources found in mine namespace.\n")


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, found: JSON | Exception) -> Iterator[list[tuple[str, Any]]]:
    """The controller answers so; what it was asked is on the list."""
    asked: list[tuple[str, Any]] = []

    async def ask(client: object, path: str, params: Any = None) -> JSON:
        asked.append((path, params))
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("kqueue.cli.dashboard.queries.ask", ask)
    yield asked


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Of a cluster that is never asked."""
    text = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(text))
    return str(path)


def test_json_is_the_answer_of_the_namespace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kubeconfig: str
) -> None:
    found = {"items": [], "left": 0}
    with answering(monkeypatch, found) as asked:
        code = run(["quota", "main", "-o", "json", "--kubeconfig", kubeconfig])
    assert (code, json.loads(capsys.readouterr().out)) == (0, found)
    path = "/apis/visibility.kqueue.dev/v1alpha1/namespaces/mine/queuequotas"
    assert asked == [(path, {"limit": "20", "localQueue": "main"})]


REFUSED = 'workloads "any" is forbidden: User "ann" cannot get resource "workloads"'


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        pytest.param(ForbiddenError(REFUSED, status=403), True, id="a refusal names the role and the user"),
        pytest.param(NotFoundError("none", status=404), False, id="a right that was granted meanwhile says nothing"),
    ],
)
def test_without_positions_the_missing_role_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kubeconfig: str, failure: ApiError, told: bool
) -> None:
    item = {
        "metadata": {"name": "main"}, "clusterQueue": "team", "admitted": 0, "pending": 1, "clusterQueuePending": 1,
        "resources": [],
    }  # fmt: skip

    async def get_json(*_: object) -> JSON:
        raise failure

    monkeypatch.setattr(Client, "get_json", get_json)
    with answering(monkeypatch, {"items": [item], "left": 0}):
        code = run(["quota", "--kubeconfig", kubeconfig])
    err = capsys.readouterr().err
    assert code == 0
    assert ("--clusterrole=kueue-workload-viewer-role --user=ann" in err, bool(err)) == (told, told)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["quota", "a", "b"], id="two queues"),
        pytest.param(["quota", "--limit", "0"], id="a limit below one"),
        pytest.param(["quota", "-o", "table"], id="an unknown format"),
        pytest.param(["quota", "-n", "a/b"], id="a namespace that is none"),
    ],
)
def test_a_wrong_call_is_exit_code_2(arguments: list[str], kubeconfig: str) -> None:
    assert run([*arguments, "--kubeconfig", kubeconfig]) == 2
