"""The client against a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from kqueue import errors
from kqueue.clock import FakeClock
from kqueue.runtime.client import Client, PatchType, connect
from kqueue.runtime.lane import Lane, LaneLimit
from kqueue.runtime.resources import LEASES, ResourceType
from kqueue.runtime.transport import ClientSettings, RequestRecord
from tests.unit.runtime.conftest import QUICK, Thing, eventually, running
from tests.unit.runtime.fake_server import THINGS, FakeServer, answers, drops, endless, hangs, html, sends, status

OpenClient = Callable[..., Client]

NODES = ResourceType("", "v1", "nodes", "Node", namespaced=False)


@pytest.mark.parametrize(
    ("resource", "args", "want"),
    [
        pytest.param(NODES, (None, "n1"), "/api/v1/nodes/n1", id="core-cluster-scoped"),
        pytest.param(THINGS, (None, None), "/apis/example.dev/v1/things", id="all-namespaces"),
        pytest.param(THINGS, ("a", "b", "status"), "/apis/example.dev/v1/namespaces/a/things/b/status", id="status"),
        pytest.param(THINGS, ("a", "b/c"), "/apis/example.dev/v1/namespaces/a/things/b%2Fc", id="name-is-quoted"),
    ],
)
def test_resources_have_paths(resource: ResourceType, args: tuple[str | None, ...], want: str) -> None:
    """A kind knows the paths of its collection, objects and subresources."""
    assert resource.path(*args) == want


@pytest.mark.parametrize(
    ("resource", "args"),
    [
        pytest.param(NODES, ("a", "n1"), id="cluster-scoped-with-namespace"),
        pytest.param(THINGS, (None, "b"), id="namespaced-object-without-namespace"),
    ],
)
def test_wrong_scope_is_a_bug_in_the_caller(resource: ResourceType, args: tuple[str | None, ...]) -> None:
    """A path that no server can have is refused before anything is sent."""
    with pytest.raises(ValueError, match="namespace"):
        resource.path(*args)


async def test_objects_are_created_read_patched_and_deleted(client: Client, server: FakeServer) -> None:
    """The verbs do what they say, and a struct or a dictionary comes back as asked."""
    made = await client.create(THINGS, {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"n": 1}})

    patched = await client.patch(THINGS, "a", {"spec": {"n": 2}}, "ns")
    read = await client.get(THINGS, "a", "ns", decode=Thing)
    await client.delete(THINGS, "a", "ns", uid="u", grace_seconds=0)

    assert made["metadata"]["resourceVersion"] == "101"
    assert patched["spec"] == {"n": 2}
    assert read.spec == {"n": 2}
    assert server.objects == {}


async def test_lists_follow_their_pages(client: Client, server: FakeServer) -> None:
    """All pages come as one list whose items say what they are."""
    for i in range(1100):
        server.put(f"t{i:04}", n=i)

    found = await client.list_json(THINGS, "ns", label_selector="a=b")

    assert len(found) == 1100
    assert found[0]["kind"] == "Thing"
    lists = [query for verb, _, query in server.requests if verb == "list"]
    assert [q.get("continue", "") for q in lists] == ["", "1200:500", "1200:1000"]
    assert all(q["labelSelector"] == "a=b" for q in lists)


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(answers(400, "BadRequest"), errors.InvalidError, id="400"),
        pytest.param(answers(403, "Forbidden"), errors.ForbiddenError, id="403"),
        pytest.param(answers(404, "NotFound"), errors.NotFoundError, id="404"),
        pytest.param(answers(409, "Conflict"), errors.ConflictError, id="409-conflict"),
        pytest.param(answers(409, "AlreadyExists"), errors.AlreadyExistsError, id="409-already-exists"),
        pytest.param(answers(410, "Expired"), errors.GoneError, id="410"),
        pytest.param(answers(422, "Invalid"), errors.InvalidError, id="422"),
        pytest.param(answers(501, "NotImplemented"), errors.ServerError, id="501"),
        pytest.param(html(403), errors.ServerError, id="a-proxys-page-is-not-the-servers-no"),
        pytest.param(html(200), errors.ServerError, id="a-page-instead-of-json"),
    ],
)
async def test_failures_become_our_errors_at_once(client: Client, server: FakeServer, fault, want) -> None:  # type: ignore[no-untyped-def]
    """What trying again cannot heal is raised after one request, as the error that callers catch."""
    server.fail("get", fault)

    with pytest.raises(errors.ApiError) as caught:
        await client.get_json(THINGS, "a", "ns")

    assert type(caught.value) is want
    assert "get things.example.dev ns/a" in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answers(500, "InternalError"), id="500"),
        pytest.param(answers(503, "ServiceUnavailable"), id="503"),
        pytest.param(answers(504, "Timeout"), id="504"),
        pytest.param(html(502), id="a-proxys-error-page"),
        pytest.param(answers(429, "TooManyRequests", {"Retry-After": "0"}), id="429"),
        pytest.param(drops, id="dropped-connection"),
    ],
)
@pytest.mark.parametrize("verb", ["get", "patch", "delete"])
async def test_passing_trouble_is_tried_again(client: Client, server: FakeServer, fault, verb: str) -> None:  # type: ignore[no-untyped-def]
    """Requests that may be repeated survive two failures without the caller noticing."""
    server.put("a", n=1)
    server.fail(verb, fault, fault)

    match verb:
        case "get":
            await client.get_json(THINGS, "a", "ns")
        case "patch":
            await client.patch(THINGS, "a", {"spec": {"n": 2}}, "ns")
        case _:
            await client.delete(THINGS, "a", "ns")

    assert len(server.requests) >= 3


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(answers(500, "InternalError"), errors.ServerError, id="500"),
        pytest.param(drops, errors.UnreachableError, id="lost-answer"),
    ],
)
async def test_a_create_that_may_have_happened_is_not_repeated(client: Client, server: FakeServer, fault, want) -> None:  # type: ignore[no-untyped-def]
    """With generated names a second try could make a second object, so the caller decides."""
    server.fail("create", fault)

    with pytest.raises(want):
        await client.create(THINGS, {"metadata": {"name": "a", "namespace": "ns"}})

    assert len(server.requests) == 1


async def test_a_create_that_was_refused_is_repeated(client: Client, server: FakeServer) -> None:
    """429 says that the server has not acted."""
    server.fail("create", answers(429, "TooManyRequests", {"Retry-After": "0"}))

    await client.create(THINGS, {"metadata": {"name": "a", "namespace": "ns"}})

    assert "a" in server.objects


async def test_deletion_counts_as_done_when_only_its_answer_was_lost(client: Client, server: FakeServer) -> None:
    """A retry that finds nothing means that the first attempt came through."""
    server.fail("delete", answers(503, "ServiceUnavailable"))

    await client.delete(THINGS, "a", "ns")

    assert len(server.requests) == 2


async def test_retries_end(client: Client, server: FakeServer) -> None:
    """After the last attempt the server's own words are raised."""
    server.fail("get", *[answers(503, "ServiceUnavailable", message="etcd is away")] * 9)

    with pytest.raises(errors.ServerError, match="etcd is away"):
        await client.get_json(THINGS, "a", "ns")

    assert len(server.requests) == QUICK.attempts


async def test_retry_after_is_waited_for(server: FakeServer, open_client: OpenClient) -> None:
    """The client comes back when the server said, not before, and not much later."""
    clock = FakeClock()
    client = open_client(ClientSettings(retry_base=0.1), clock=clock)
    server.put("a", n=1)
    server.fail("get", answers(429, "TooManyRequests", {"Retry-After": "3"}))

    async with running(client.get_json(THINGS, "a", "ns")):
        await eventually(lambda: clock.next_wake() is not None)
        waits = clock.next_wake()
        await clock.advance(4)
        await eventually(lambda: len(server.requests) == 2)

    assert waits is not None
    assert 3.05 <= waits <= 3.1


async def test_a_long_retry_after_is_for_the_caller_to_wait(client: Client, server: FakeServer) -> None:
    """A call does not sleep for minutes inside; the error says how long to stay away."""
    server.fail("get", answers(429, "TooManyRequests", {"Retry-After": "120"}))

    with pytest.raises(errors.TooManyRequestsError) as caught:
        await client.get_json(THINGS, "a", "ns")

    assert caught.value.retry_after == 120


async def test_a_hung_server_is_given_up(server: FakeServer, open_client: OpenClient) -> None:
    """Every call has a time limit."""
    client = open_client(ClientSettings(call_timeout=0.05))
    server.fail("get", hangs)

    with pytest.raises(errors.UnreachableError, match="timed out"):
        await client.get_json(THINGS, "a", "ns")


@pytest.mark.parametrize("code", [200, 404, 500])
async def test_an_answer_without_end_is_given_up(server: FakeServer, open_client: OpenClient, code: int) -> None:
    """The rest is not read: neither of an answer, nor of a refusal, nor of the refusal of a watch."""
    client = open_client(ClientSettings(call_timeout=30.0, attempts=1, answer_max=1 << 20))
    server.fail("get", endless(code))
    server.fail("watch", endless(code if code != 200 else 410))

    with pytest.raises(errors.ServerError, match=r"get things\S* ns/a: an answer of more than 1 MiB"):
        await client.get_json(THINGS, "a", "ns")
    with pytest.raises(errors.ServerError, match=r"watch things\S* ns: an answer of more than 1 MiB"):
        await client.open_watch(THINGS, "ns", params={})


async def test_an_answer_as_large_as_the_limit_is_read(server: FakeServer, open_client: OpenClient) -> None:
    """One byte more is too much, and it is not read where the server says how much it sends."""
    client = open_client(ClientSettings(attempts=1, answer_max=1 << 20))
    for more in (0, 1):
        server.fail("list", sends(b" " * (1 << 20) + b" " * more))

    assert len(await client.list_page(THINGS, params={})) == 1 << 20
    with pytest.raises(errors.ServerError, match="more than 1 MiB"):
        await client.list_page(THINGS, params={})


async def test_a_refused_connection_names_the_server(server: FakeServer) -> None:
    """Nobody listening is an UnreachableError with the address, also for a create."""
    async with Client("http://127.0.0.1:1", settings=QUICK) as client:
        with pytest.raises(errors.UnreachableError, match=r"http://127\.0\.0\.1:1"):
            await client.create(THINGS, {"metadata": {"name": "a", "namespace": "ns"}})


class _RotatingToken:
    """A token file whose content changed on disk."""

    def __init__(self, old: str, new: str) -> None:
        self.token, self.new, self.reloads = old, new, 0

    async def header(self) -> str:
        return f"Bearer {self.token}"

    async def reload(self) -> None:
        self.token = self.new
        self.reloads += 1


async def test_a_rotated_token_is_read_again(server: FakeServer, open_client: OpenClient) -> None:
    """401 makes the client read its credentials again, once for all that wait."""
    server.token = "new"
    server.put("a", n=1)
    token = _RotatingToken("old", "new")
    client = open_client(credentials=token)

    await asyncio.gather(*(client.get_json(THINGS, "a", "ns") for _ in range(5)))
    stream = await client.open_watch(THINGS, params={"resourceVersion": "1"})
    stream.close()

    assert token.reloads == 1


async def test_a_late_refusal_of_the_old_token_does_not_read_again(server: FakeServer, open_client: OpenClient) -> None:
    """A request that went out with the old token, and is refused after the new one is there, uses the new one."""
    server.token = "new"
    server.put("a", n=1)
    token = _RotatingToken("old", "new")
    client = open_client(credentials=token)
    hold = asyncio.Event()

    async def late(_: web.Request) -> web.StreamResponse:
        await hold.wait()
        return web.json_response(status(401, "Unauthorized"), status=401)

    server.fail("get", late)
    slow = asyncio.ensure_future(client.get_json(THINGS, "a", "ns"))
    await eventually(lambda: len(server.requests) == 1)
    await client.get_json(THINGS, "a", "ns")
    hold.set()
    await slow

    assert token.reloads == 1


async def test_credentials_that_stay_wrong_are_reported(server: FakeServer, open_client: OpenClient) -> None:
    """A second 401 is an error, not a loop."""
    server.token = "other"
    client = open_client(credentials=_RotatingToken("old", "new"))

    with pytest.raises(errors.UnauthorizedError):
        await client.get_json(THINGS, "a", "ns")

    assert len(server.requests) == 2


async def test_an_object_of_another_shape_names_the_field(client: Client, server: FakeServer) -> None:
    """What cannot be decoded says which field is wrong."""
    server.put("a", n="many")

    with pytest.raises(errors.InvalidObjectError, match="spec") as caught:
        await client.get(THINGS, "a", "ns", decode=Thing)

    assert "spec" in caught.value.errors[0].path


async def test_replace_is_never_blind(client: Client) -> None:
    """A whole object without the version it was read at is refused before it is sent."""
    with pytest.raises(ValueError, match="resourceVersion"):
        await client.replace(LEASES, {"metadata": {"name": "l", "namespace": "ns"}})


async def test_patches_carry_type_manager_and_force(client: Client, server: FakeServer) -> None:
    """Server-side apply says who applies, and whether by force."""
    server.put("a", n=1)

    await client.patch(THINGS, "a", {"spec": {"n": 2}}, "ns", subresource="status", content_type=PatchType.APPLY,
                       field_manager="kqueue", force=True)  # fmt: skip

    assert server.requests[-1] == (
        "patch",
        "/apis/example.dev/v1/namespaces/ns/things/a/status",
        {"fieldManager": "kqueue", "force": "true"},
    )


async def test_a_dry_run_asks_the_server_to_store_nothing(client: Client, server: FakeServer) -> None:
    """Each verb that writes says so, where the API server looks for it."""
    server.put("a", n=1)
    await client.create(THINGS, {"metadata": {"name": "b", "namespace": "ns"}}, dry_run=True)
    await client.patch(THINGS, "a", {"spec": {"n": 2}}, "ns", dry_run=True)
    await client.delete(THINGS, "a", "ns", dry_run=True)

    assert [query for _, _, query in server.requests] == [{"dryRun": "All"}, {"dryRun": "All"}, {}]
    assert server.delete_options[-1]["dryRun"] == ["All"]  # beside a body, the API server reads no query of a deletion


async def test_every_request_is_reported(server: FakeServer, open_client: OpenClient) -> None:
    """The hook sees each attempt with verb, kind, lane and status."""
    records: list[RequestRecord] = []
    client = open_client(on_request=records.append)
    server.put("a", n=1)
    server.fail("patch", answers(503, "ServiceUnavailable"))

    await client.patch(THINGS, "a", {}, "ns", subresource="status", lane=Lane.STATUS)

    seen = [(r.verb, r.resource, r.subresource, r.lane, r.status, r.attempt) for r in records]
    about = ("patch", "things.example.dev", "status", Lane.STATUS)
    assert seen == [(*about, 503, 1), (*about, 200, 2)]


async def test_a_full_lane_does_not_delay_another(server: FakeServer, open_client: OpenClient) -> None:
    """While a hundred pod patches hang, a lease renewal goes through."""
    client = open_client(ClientSettings(call_timeout=30, lanes={Lane.UNGATE: LaneLimit(4)}))
    server.put("a", n=1)
    server.fail("patch", *[hangs] * 100)

    async with running(*(client.patch(THINGS, "a", {}, "ns", lane=Lane.UNGATE) for _ in range(100))):
        await eventually(lambda: len(server.requests) == 4)
        async with asyncio.timeout(5):
            await client.get_json(THINGS, "a", "ns", lane=Lane.LEASE)

        assert Counter(verb for verb, _, _ in server.requests) == {"patch": 4, "get": 1}


async def test_a_request_that_has_a_place_waits_for_no_other(server: FakeServer, open_client: OpenClient) -> None:
    """The place is waited for before; requests beyond the first wait for the rate; the next caller waits for the end."""
    clock = FakeClock()
    client = open_client(ClientSettings(lanes={Lane.WORDS: LaneLimit(1)}, per_second=1, burst=2), clock=clock)
    server.put("a", n=1)
    waiting = 0

    async with client.placed(Lane.WORDS) as placed, running(client.get_json(THINGS, "a", "ns", lane=Lane.WORDS)):
        await placed.get_json(THINGS, "a", "ns", lane=Lane.WORDS)
        await placed.get_json(THINGS, "a", "ns", lane=Lane.WORDS)
        waiting = client.lanes.waiting(Lane.WORDS)
        async with running(placed.get_json(THINGS, "a", "ns", lane=Lane.WORDS)):
            await clock.advance(0.5)
            assert len(server.requests) == 2
            await clock.advance(0.6)
            await eventually(lambda: len(server.requests) == 3)

    assert (waiting, client.lanes.in_flight[Lane.WORDS]) == (1, 0)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: one, context: {{cluster: c, user: u}}}}]
"""


async def test_connect_reads_a_kubeconfig(server: FakeServer, tmp_path: Path) -> None:
    """Address and token come from the file."""
    server.token = "secret"
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.format(server=server.url))

    async with await connect(path) as client:
        assert (await client.version())["gitVersion"] == "v1.36.3"


async def test_connect_follows_the_environment(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KUBECONFIG may list several files, of which some may be missing."""
    (tmp_path / "config").write_text(KUBECONFIG.format(server=server.url))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{tmp_path / 'config'}")

    async with await connect() as client:
        assert client.server == server.url


@pytest.mark.parametrize(
    ("content", "context", "match"),
    [
        pytest.param(None, None, "does not exist: check --kubeconfig", id="missing"),
        pytest.param("a: [", None, "cannot be used", id="not-yaml"),
        pytest.param("just text", None, "cannot be used", id="not-a-mapping"),
        pytest.param("", None, "cannot be used", id="empty"),
        pytest.param(KUBECONFIG.format(server="https://x"), "two", "two", id="unknown-context"),
        pytest.param(KUBECONFIG.format(server="x.example"), None, "https://", id="server-is-no-url"),
        pytest.param(
            KUBECONFIG.format(server='https://x", certificate-authority: "/nowhere/ca.crt'), None, "/nowhere/ca.crt",
            id="ca-file-missing",
        ),
    ],
)  # fmt: skip
async def test_a_bad_kubeconfig_is_named(tmp_path: Path, content: str | None, context: str | None, match: str) -> None:
    """The error names the file and what is wrong with it."""
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)

    with pytest.raises(errors.ConfigError, match=match) as caught:
        await connect(path, context)

    assert str(path) in str(caught.value)


async def test_no_cluster_at_all_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any configuration the error says what to give."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(errors.ConfigError, match=r"--kubeconfig, set KUBECONFIG"):
        await connect()


# --- who may write


async def test_a_fenced_client_reads_always_and_writes_only_while_it_may(server: FakeServer, client: Client) -> None:
    """It is asked at each write; lease and events go out all the same; the client that it was made of is as before."""
    may = True
    fenced = client.fenced(lambda: may)
    server.put("a", n=1)
    await fenced.patch(THINGS, "a", {"spec": {"n": 2}}, "ns")
    may = False
    sent = len(server.requests)

    for write in (
        lambda: fenced.patch(THINGS, "a", {"spec": {"n": 3}}, "ns"),
        lambda: fenced.create(THINGS, {"metadata": {"name": "b", "namespace": "ns"}}),
        lambda: fenced.delete(THINGS, "a", "ns"),
    ):
        with pytest.raises(errors.NotLeadingError, match="does not lead"):
            await write()
    assert len(server.requests) == sent

    assert (await fenced.get_json(THINGS, "a", "ns"))["spec"] == {"n": 2}
    for lane in (Lane.LEASE, Lane.EVENTS):
        await fenced.patch(THINGS, "a", {"spec": {"n": 4}}, "ns", lane=lane)
    await client.patch(THINGS, "a", {"spec": {"n": 5}}, "ns")


async def test_a_write_is_not_repeated_by_who_may_not_write_any_more(
    server: FakeServer, open_client: OpenClient
) -> None:
    """The lead was lost between two attempts."""
    may = True
    server.put("a", n=1)

    async def fails(_: web.Request) -> web.StreamResponse:
        nonlocal may
        may = False
        return web.json_response(status(500, "InternalError"), status=500)

    server.fail("patch", fails)

    with pytest.raises(errors.NotLeadingError):
        await open_client().fenced(lambda: may).patch(THINGS, "a", {"spec": {"n": 2}}, "ns")


async def test_credentials_that_cannot_be_read_again_fail_one_call_and_not_the_next(
    server: FakeServer, open_client: OpenClient
) -> None:
    """A token file that is just being replaced."""
    server.token = "new"
    server.put("a", n=1)
    token = _RotatingToken("old", "new")
    whole, broken = token.reload, True

    async def reload() -> None:
        if broken:
            raise errors.ConfigError("the file is not there")
        await whole()

    token.reload = reload  # type: ignore[method-assign]
    client = open_client(credentials=token)

    with pytest.raises(errors.UnauthorizedError, match="the file is not there"):
        await client.get_json(THINGS, "a", "ns")
    broken = False
    await client.get_json(THINGS, "a", "ns")
