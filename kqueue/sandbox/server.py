"""The HTTP front of a `ClusterApi`: the Kubernetes protocol, by default on loopback."""

from __future__ import annotations

import errno
import hmac
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import structlog
from aiohttp import ClientConnectionResetError, web

from kqueue.errors import ApiError, ConfigError
from kqueue.isolation import isolated
from kqueue.sandbox import (
    access,
    body,
    discovery,
    failure,
    listing,
    openapi,
    reviews,
    route,
    scale,
    subresources,
    table,
    watching,
)
from kqueue.sandbox.aggregation import Aggregator
from kqueue.sandbox.api import APPLY_PATCH, Object
from kqueue.sandbox.builtin import BUILTIN_KINDS
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.deletion import Deleted, Preconditions
from kqueue.sandbox.objects import WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.route import ResourcePath
from kqueue.sandbox.store import StoredObject
from kqueue.sandbox.usage_metrics import GROUP, VERSION, OtherGroups, SimulatedUse

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
READY_PATHS = ("/healthz", "/livez", "/readyz")
SHUTDOWN_SECONDS = 2.0
PROPAGATIONS = ("Background", "Foreground", "Orphan")
_encode = msgspec.json.Encoder().encode
log = structlog.get_logger(__name__)


class ApiServer:
    """Serves one `ClusterApi`.

    Args:
        api: the API to serve.
        host: name or address to listen on.
        port: 0 takes a free one; the property `port` has it after `start`.
        tls: certificates for HTTPS; None means plain HTTP.
        token: bearer token that clients must send; None admits every client.
        measures_use: whether the simulated use of nodes and pods is served as metrics.k8s.io.
    """

    def __init__(
        self,
        api: ClusterApi,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        measures_use: bool = False,
    ) -> None:
        self.api, self.host, self.port = api, host, port
        self._tls, self._token = tls, token
        self._expected = f"Bearer {token}".encode() if token is not None else b""
        self._tokens = {} if token is None else {token: access.ADMIN}
        """Users by token; tokens of ServiceAccounts are added when they are created."""
        self._aggregator = Aggregator(api)
        self._usage = SimulatedUse(api) if measures_use else None
        self._others = OtherGroups((self._aggregator, *([] if self._usage is None else [self._usage])))
        self._runner: web.ServerRunner | None = None
        self._stopping = False

    @property
    def url(self) -> str:
        """URL of the server, after `start`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen.  Raises ConfigError if the port is taken or the address is not of this machine."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self.host, self.port, ssl_context=self._tls, backlog=512)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(_no_listening(self.host, self.port, error)) from error
        self._runner = runner
        self._stopping = False
        self.port = int(runner.addresses[0][1])
        await self._aggregator.start()

    async def stop(self) -> None:
        """Stop listening, end all watches, and answer running requests.  Does nothing before `start`."""
        if self._runner is None:
            return
        self._stopping = True
        self.api.wake()
        await self._aggregator.stop()
        await self._runner.cleanup()
        await self.api.admission.close()
        self._runner = None

    # --- one request ------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with isolated(partial(_log_unless_cut, request)) as answer:
            return await self._answer_or_refuse(request)
        return _failed(failure.internal(repr(answer.error)))

    async def _answer_or_refuse(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except failure.UnknownPathError as error:
            # As the real server: paths of built-in groups get a Status, paths of custom and unknown groups plain text.
            if _is_built_in(request.path):
                return _failed(error)
            return web.Response(text="404 page not found\n", status=404)
        except ApiError as error:
            return _failed(error)
        except RecursionError:
            return _failed(failure.bad_request("the body is nested too deeply"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._token is not None and not self._knows(request):
            raise failure.unauthorized()
        found, user = route.parse(request.path), self._user(request)
        if user != access.ADMIN and not access.allows(self.api, user, wanted := access.attempt(request, found)):
            raise access.refusal(user, wanted)
        if self._aggregator.claims(request.path):
            return await self._aggregator.passed_on(request, user)
        if found is None:
            return self._about(request)
        if self._usage is not None and (found.resource.group, found.resource.version) == (GROUP, VERSION):
            if request.method != "GET":
                raise failure.wrong_method()
            return _json(self._usage.answer(found, request.query))
        kind = self.api.registry.find(found.resource)
        if kind is None:
            return await self._review(request, found, user)
        if kind.namespaced and not found.namespace and (found.name or request.method == "POST"):
            raise failure.unknown_path()
        if not kind.namespaced and found.namespace:
            raise failure.unknown_path()
        if found.subresource and not _has_subresource(kind, found.subresource):
            raise failure.unknown_path() if kind.custom is None else failure.not_found(kind.resource, found.name)
        method = _METHODS.get((request.method, bool(found.name)))
        if method is None:
            raise failure.wrong_method()
        response = await method(self, request, found, kind)
        if kind.deprecation and not response.prepared:
            said = [response.headers["Warning"]] if "Warning" in response.headers else []
            response.headers["Warning"] = ", ".join([_warning(kind.deprecation), *said])
        return response

    def _knows(self, request: web.BaseRequest) -> bool:
        sent = request.headers.get("Authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(sent, self._expected) or request.path in READY_PATHS

    def _user(self, request: web.BaseRequest) -> access.SandboxUser:
        """Return the user of an authenticated request: the token's user, or the one that it impersonates."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return access.impersonated(request) or self._tokens.get(token, access.ADMIN)

    def _about(self, request: web.BaseRequest) -> web.Response:
        """Answer paths that are no objects: health, version, discovery, schemas."""
        if request.method != "GET":
            known = request.path.startswith(("/api", "/openapi", "/version"))
            raise failure.wrong_method() if known else failure.unknown_path()
        registry, path = self.api.registry, request.path.rstrip("/")
        wants_all = "as=APIGroupDiscoveryList" in request.headers.get("Accept", "") and "v=v2;" in request.headers.get(
            "Accept", ""
        )
        if path in READY_PATHS or path.startswith(tuple(f"{each}/" for each in READY_PATHS)):
            return web.Response(text="ok")
        if path == "/openapi/v2" and "protobuf" in request.headers.get("Accept", ""):
            return web.Response(body=openapi.VERSION_2_BYTES, headers={"Content-Type": openapi.VERSION_2_PROTOBUF})
        if path in ("/api", "/apis") and wants_all:
            return _json(discovery.aggregated(registry, self._others, core=path == "/api"), content_type=AGGREGATED)
        parts = path.strip("/").split("/")
        found: Object | None = None
        match parts:
            case ["version"]:
                found = discovery.VERSION
            case ["api"]:
                found = discovery.core_versions()
            case ["apis"]:
                found = discovery.group_list(registry, self._others)
            case ["api", version]:
                found = discovery.resource_list(registry, "", version)
            case ["apis", group]:
                found = discovery.group(registry, group, self._others)
            case ["apis", group, version]:
                found = discovery.resource_list(registry, group, version) or self._others.resources(group, version)
            case ["openapi", "v2"]:
                found = openapi.VERSION_2
            case ["openapi", "v3"]:
                found = openapi.index(registry, self._aggregator.groups())
            case ["openapi", "v3", "api", version]:
                found = openapi.document(registry, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = openapi.document(registry, group, version)
            case [""]:
                found = {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
            case _:
                pass
        if found is None:
            raise failure.unknown_path()
        return _json(found)

    async def _review(self, request: web.BaseRequest, found: ResourcePath, user: access.SandboxUser) -> web.Response:
        resource = found.resource
        kind = reviews.find(resource.group, resource.version, resource.plural)
        if kind is None:
            raise failure.unknown_path()
        if request.method != "POST":
            raise failure.wrong_method()
        asked = await self._object(request)
        allows = partial(access.allows, self.api)
        answer = reviews.answer(resource.group, kind, asked, user, tokens=self._tokens, allows=allows)
        return _json(answer, status=201)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _get(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        subresources.refuse_stream(self.api, kind, found.name, found.namespace, found.subresource)
        if found.subresource not in ("", "status", scale.NAME):
            raise failure.wrong_method()
        if route.flag(request.query, "watch"):
            return await self._watch(request, found, kind)
        record = self.api.record(kind, found.name, found.namespace)
        await self.api.forms.prepare(kind, [record])
        if found.subresource == scale.NAME:
            return _json(scale.shown(kind, kind.shown(record)))
        if (form := _form(request)) == "":
            return web.Response(body=listing.encoded(kind, record), content_type=body.JSON)
        version = record.obj["metadata"]["resourceVersion"]
        return _json(self._in_form(request, kind, [record], {"resourceVersion": version}, form, single=True))

    async def _list(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        if route.flag(request.query, "watch"):
            return await self._watch(request, found, kind)
        chosen = route.selection(found, kind, request.query)
        page = await listing.page(self.api, kind, chosen, request.query)
        if (form := _form(request)) == "":
            return web.Response(body=listing.joined(kind, page), content_type=body.JSON)
        return _json(self._in_form(request, kind, page.records, page.metadata(), form))

    def _in_form(
        self,
        request: web.BaseRequest,
        kind: ServedKind,
        records: Iterable[StoredObject],
        metadata: Object,
        form: str,
        *,
        single: bool = False,
    ) -> Object:
        """Return objects as a Table, or as their metadata alone."""
        objects = [kind.shown(record) for record in records]
        if form == "Table":
            moment = table.Moment(self.api.clock.now())
            include = request.query.get("includeObject", "Metadata")
            rows = [table.row(kind.columns, obj, moment, include) for obj in objects]
            return table.table(kind.columns, rows, metadata=metadata)
        partial = [table.partial(obj) for obj in objects]
        return partial[0] if single else table.partial_list(partial, metadata)

    async def _watch(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        chosen = route.selection(found, kind, request.query)
        wanted = watching.request(kind, chosen, request.query, self._renderer(request, kind))
        response = web.StreamResponse(headers={"Content-Type": body.JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        stream = watching.stream(self.api, wanted, lambda: self._stopping or self.api.stopped)
        try:
            async for portion in stream:
                await response.write(portion)
            await response.write_eof()
        except (ClientConnectionResetError, ConnectionResetError):
            pass  # the watcher closed its connection
        finally:
            await stream.aclose()
        return response

    def _renderer(self, request: web.BaseRequest, kind: ServedKind) -> watching.Render:
        form = _form(request)
        if form == "":
            return listing.encoded
        heads = True

        def render(kind: ServedKind, record: StoredObject) -> bytes:
            nonlocal heads
            metadata = {"resourceVersion": record.obj["metadata"]["resourceVersion"]}
            out = self._in_form(request, kind, [record], metadata, form, single=True)
            if form == "Table" and not heads:
                out["columnDefinitions"] = None
            heads = False
            return _encode(out)

        return render

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _object(self, request: web.BaseRequest) -> Object:
        found = body.decode(await body.read(request), _content_type(request))
        if not isinstance(found, dict):
            raise failure.bad_request("the body must be one object")
        return found

    def _options(self, request: web.BaseRequest) -> WriteOptions:
        kind = _OPTIONS.get(request.method, "CreateOptions")
        options = route.write_options(request.query, request.headers.get("User-Agent", ""), access.ADMIN.name, kind)
        user = self._user(request)
        return replace(options, user=user.name, groups=user.groups)

    async def _create(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        options = self._options(request)
        obj = await self._object(request)
        new = await self.api.create_owned(kind, obj, found.namespace or None, options)
        return self._written(kind, new, options, status=201)

    async def _create_below(
        self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind
    ) -> web.StreamResponse:
        if not found.subresource:
            raise failure.wrong_method()
        subresources.refuse_stream(self.api, kind, found.name, found.namespace, found.subresource)
        options = self._options(request)
        sent = await self._object(request)
        answer = await subresources.create(
            self.api, kind, found.name, found.namespace, found.subresource, sent, options
        )
        if found.subresource == "token":
            self._tokens[answer["status"]["token"]] = access.account(found.namespace, found.name)
        return _json(answer, status=201, warnings=options.warnings)

    async def _update(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        if found.subresource not in ("", "status", "finalize", scale.NAME):
            raise failure.wrong_method()
        options = self._options(request)
        obj = await self._object(request)
        if found.subresource == scale.NAME:
            scaled = await scale.replace(self.api, kind, found.name, found.namespace, obj, options)
            return _json(scaled, warnings=options.warnings)
        new = await self.api.update_owned(kind, obj, found.name, found.namespace, found.subresource, options)
        return self._written(kind, new, options)

    async def _patch(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        if found.subresource not in ("", "status", scale.NAME):
            raise failure.wrong_method()
        options = self._options(request)
        content_type = request.content_type
        raw = await body.read(request)
        if found.subresource == scale.NAME:
            wanted = body.from_json(raw)
            scaled = await scale.patch(self.api, kind, found.name, found.namespace, wanted, content_type, options)
            return _json(scaled, warnings=options.warnings)
        if content_type == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                raise failure.bad_request("fieldManager is required for apply patch")
            wanted = body.from_yaml(raw)
            existed = self.api.store(kind).get(found.namespace, found.name) is not None
        else:
            wanted, existed = body.from_json(raw), True
        new = await self.api.patch(
            kind.resource,
            found.name,
            wanted,
            namespace=found.namespace,
            subresource=found.subresource,
            content_type=content_type,
            options=options,
        )
        return self._written(kind, new, options, status=200 if existed else 201)

    async def _delete(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        if found.subresource:
            raise failure.wrong_method()
        wanted, options = await self._delete_options(request)
        done = await self.api.delete_owned(kind, found.name, found.namespace, options=options, **wanted)
        return self._deleted(kind, done, options)

    async def _delete_all(self, request: web.BaseRequest, found: ResourcePath, kind: ServedKind) -> web.StreamResponse:
        chosen = route.selection(found, kind, request.query)
        wanted, options = await self._delete_options(request)
        page = await listing.page(self.api, kind, chosen, {})
        deleted = []
        for record in page.records:
            done = await self.api.delete_each(kind, record, options=options, **wanted)
            if done is not None:
                deleted.append(done.obj)
        metadata = {"resourceVersion": str(self.api.versions.current)}
        out = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": deleted}
        return _json(out, warnings=options.warnings)

    async def _delete_options(self, request: web.BaseRequest) -> tuple[dict[str, Any], WriteOptions]:
        """Return the options of a deletion, from the body or else the query.  Raises InvalidError (400)."""
        raw = await body.read(request)
        sent = body.decode(raw, _content_type(request)) if raw else {}
        if not isinstance(sent, dict):
            raise failure.bad_request("the body must be DeleteOptions")
        options = self._options(request)
        if raw:
            options.dry_run = sent.get("dryRun") == ["All"]
        grace = sent.get("gracePeriodSeconds") if raw else route.number(request.query, "gracePeriodSeconds")
        if grace is not None and (type(grace) is not int or grace < 0):
            raise failure.bad_request(
                f"gracePeriodSeconds must be a whole number that is not negative, found {grace!r}"
            )
        said = sent if raw else request.query
        propagation = said.get("propagationPolicy") or None
        orphan = said.get("orphanDependents")
        if propagation is None and orphan is not None:
            propagation = "Orphan" if orphan in (True, "true") else "Background"
        if propagation is not None and propagation not in PROPAGATIONS:
            problem = failure.unsupported("propagationPolicy", propagation, list(PROPAGATIONS))
            raise failure.invalid_object("meta.k8s.io", "DeleteOptions", "", [problem])
        found = sent.get("preconditions") or {}
        preconditions = Preconditions(uid=found.get("uid"), resource_version=found.get("resourceVersion"))
        wanted = {"propagation": propagation, "grace_period_seconds": grace, "preconditions": preconditions}
        return wanted, options

    def _written(self, kind: ServedKind, new: Object, options: WriteOptions, *, status: int = 200) -> web.Response:
        metadata = new["metadata"]
        record = self.api.store(kind).get(metadata.get("namespace", ""), metadata["name"])
        encoded = record.encoded if record is not None and record.obj is new else _encode(new)
        return web.Response(body=encoded, status=status, content_type=body.JSON, headers=_warnings(options.warnings))

    def _deleted(self, kind: ServedKind, done: Deleted, options: WriteOptions) -> web.Response:
        metadata = done.obj["metadata"]
        if not done.gone or kind.returns_deleted:
            return _json(done.obj, warnings=options.warnings)
        details = failure.Details(
            name=metadata["name"], group=kind.resource.group, kind=kind.resource.plural, uid=metadata["uid"]
        )
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details.as_json(),
        }
        return _json(status, warnings=options.warnings)


_OPTIONS = {"PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
Method = Callable[[ApiServer, web.BaseRequest, ResourcePath, ServedKind], Awaitable[web.StreamResponse]]
_METHODS: dict[tuple[str, bool], Method] = {
    ("GET", False): ApiServer._list,  # noqa: SLF001 -- the class's own table
    ("GET", True): ApiServer._get,  # noqa: SLF001
    ("POST", False): ApiServer._create,  # noqa: SLF001
    ("POST", True): ApiServer._create_below,  # noqa: SLF001
    ("PUT", True): ApiServer._update,  # noqa: SLF001
    ("PATCH", True): ApiServer._patch,  # noqa: SLF001
    ("DELETE", True): ApiServer._delete,  # noqa: SLF001
    ("DELETE", False): ApiServer._delete_all,  # noqa: SLF001
}


def _has_subresource(kind: ServedKind, name: str) -> bool:
    return (name == "status" and kind.status) or name in kind.subresources


_BUILT_IN_GROUPS = {*(kind.resource.group for kind in BUILTIN_KINDS), *(review[0] for review in reviews.REVIEWS)}


def _is_built_in(path: str) -> bool:
    match path.strip("/").split("/"):
        case ["api", *_]:
            return True
        case ["apis", group, *_]:
            return group in _BUILT_IN_GROUPS
        case _:
            return False


def _content_type(request: web.BaseRequest) -> str:
    """Return the body's content type; JSON by default."""
    return request.content_type if "Content-Type" in request.headers else body.JSON


def _form(request: web.BaseRequest) -> str:
    """Return `Table` or `Partial` if the client prefers that form; "" for plain objects."""
    accept = request.headers.get("Accept", "")
    if "as=Table" in accept:
        return "Table"
    return "Partial" if "as=PartialObjectMetadata" in accept else ""


def _warnings(texts: list[str]) -> dict[str, str] | None:
    """Return the Warning header with all texts in one value, as HTTP allows; None without texts."""
    if not texts:
        return None
    return {"Warning": ", ".join(map(_warning, texts))}


def _warning(text: str) -> str:
    shown = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{shown}"'


def _json(
    found: Any, *, status: int = 200, content_type: str = body.JSON, warnings: list[str] | None = None
) -> web.Response:
    headers = {"Content-Type": content_type, **(_warnings(warnings or []) or {})}
    return web.Response(body=_encode(found), status=status, headers=headers)


def _failed(error: ApiError) -> web.Response:
    status = failure.status_object(error)
    headers = {"Content-Type": body.JSON}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, int(error.retry_after)))
    response = web.Response(body=_encode(status), status=error.status, headers=headers)
    if error.status == 413:
        response.force_close()  # the rest of the body is not read
    return response


def _no_listening(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: stop what listens there, choose another port, or 0 for a free one"
    return f"cannot listen on {host} port {port}: {error.strerror or error}; choose an address of this machine"


def _log_unless_cut(request: web.BaseRequest, error: Exception) -> None:
    """Log a bug; raise the error again if the client closed the connection, because no client reads an answer."""
    if isinstance(error, ConnectionResetError):
        raise error
    log.error("request failed", method=request.method, path=request.path, exc_info=error)
