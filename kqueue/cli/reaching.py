"""The flags for the cluster, the user and the namespace of a command: kubectl's flags as far as possible.

```python
@app.command("explain")
@reaches_cluster
def explain(name: str, *, reach: Reach) -> None: ...

async with reach.session() as session:
    session.client, session.namespace
```
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kqueue.runtime.client import Client


@dataclass(frozen=True, slots=True)
class Session:
    """An open client, and the namespace to work in."""

    client: Client
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachFlags:
    """The values of the flags; empty without the flag."""

    namespace: str = ""
    kubeconfig: Path | None = None
    context: str | None = None
    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = ""
    act_as: str = ""
    act_as_group: tuple[str, ...] = ()
    request_timeout: str = ""

    @asynccontextmanager
    async def session(self, *, quick: bool = False) -> AsyncIterator[Session]:
        """Open a client for the cluster and close it in the end.  `quick`: five seconds, and no second try.

        Raises:
            ConfigError: the kubeconfig has no such cluster, or a flag is wrong.
        """
        from kqueue.errors import ConfigError
        from kqueue.runtime.client import client_of
        from kqueue.runtime.kubeconfig import Overrides, find_cluster
        from kqueue.runtime.transport import ClientSettings

        timeout = self._timeout()
        if self.namespace in (".", "..") or {"/", "%"} & set(self.namespace):
            raise ConfigError(f"--namespace {self.namespace!r} is no name of a namespace")
        overrides = Overrides(
            cluster=self.cluster,
            user=self.user,
            server=self.server,
            token=self.token,
            act_as=self.act_as,
            act_as_groups=self.act_as_group,
        )
        found = await find_cluster(self.kubeconfig, self.context, overrides)
        settings = ClientSettings(call_timeout=timeout or 30.0)
        if quick:
            settings = ClientSettings(call_timeout=timeout or 5.0, attempts=1)
        async with client_of(found, settings) as client:
            yield Session(client, self.namespace or found.namespace)

    def _timeout(self) -> float | None:
        """Return seconds, or None for no limit (flag absent, or 0 as in kubectl)."""
        text = self.request_timeout
        if text in ("", "0"):
            return None
        from kqueue.config.duration import parse_duration  # imports all of the configuration: 0.1 s
        from kqueue.errors import ConfigError

        try:
            seconds = parse_duration(f"{text}s" if text.isdecimal() else text).total_seconds()
        except ValueError as e:
            raise ConfigError(f"--request-timeout {text}: {e}") from e
        if seconds < 0:
            raise ConfigError(f"--request-timeout {text}: must not be negative")
        return seconds or None


def _flag(*names: str, about: str, shown: bool = False, **more: Any) -> Any:
    return typer.Option(*names, help=about, hidden=not shown, **more)


_PARAMETERS: dict[str, tuple[Any, Any]] = {
    "namespace": (
        Annotated[str, _flag("--namespace", "-n", about="Namespace; else that of the context.", shown=True)],
        "",
    ),
    "kubeconfig": (
        Annotated[
            Path | None, _flag("--kubeconfig", about="Else KUBECONFIG, the pod's account, ~/.kube/config.", shown=True)
        ],
        None,
    ),
    "context": (Annotated[str | None, _flag("--context", about="Context of the kubeconfig.", shown=True)], None),
    "cluster": (Annotated[str, _flag("--cluster", about="Cluster entry of the kubeconfig.")], ""),
    "user": (Annotated[str, _flag("--user", about="User entry of the kubeconfig.")], ""),
    "server": (Annotated[str, _flag("--server", "-s", about="URL of the API server.")], ""),
    "token": (Annotated[str, _flag("--token", about="Bearer token.")], ""),
    "act_as": (Annotated[str, _flag("--as", about="User to act as.")], ""),
    "act_as_group": (Annotated[list[str] | None, _flag("--as-group", about="Group to act as; may be repeated.")], None),
    "request_timeout": (Annotated[str, _flag("--request-timeout", about="Limit of one request, such as 5s.")], ""),
}

VALUE_FLAGS = frozenset(
    {
        *("--namespace", "-n", "--kubeconfig", "--context", "--cluster", "--user", "--server", "-s", "--token"),
        *("--as", "--as-group", "--request-timeout"),
    }
)
"""The spellings of the flags; each flag takes a value."""


def reaches_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags to a command, which gets them as its keyword argument `reach`.

    Rare flags are accepted, but not listed by --help.
    """

    @wraps(command)
    def with_flags(**given: Any) -> None:
        from kqueue.cli.light_imports import import_structlog

        import_structlog()  # commands in a terminal log no tracebacks for rich to draw
        own = {name: value for name, value in given.items() if name not in _PARAMETERS}
        command(**own, reach=reach_of(given))

    shown = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in shown.parameters.values() if parameter.name != "reach"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in _PARAMETERS.items()
    ]
    with_flags.__signature__ = shown.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
    del with_flags.__wrapped__  # so that typer reads this signature, not the command's own
    return with_flags


def reach_of(given: Mapping[str, Any]) -> ReachFlags:
    """Return the values of the flags among a command's parameters."""
    flags = {name: given[name] for name in _PARAMETERS if given.get(name)}
    return ReachFlags(**{**flags, "act_as_group": tuple(flags.get("act_as_group", ()))})


def flags_behind_name(arguments: list[str]) -> list[str]:
    """Move flags from before a command's name to behind it: `-n team list pods` becomes `list -n team pods`.

    Other options keep their places. Without a name the arguments do not change.
    """
    front: list[str] = []
    moved: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        flag = rest.pop(0)
        name = flag.partition("=")[0] if flag.startswith("--") else flag[:2]
        if name not in VALUE_FLAGS:
            front.append(flag)
            continue
        moved.append(flag)
        if flag == name and rest:
            moved.append(rest.pop(0))
    return [*front, rest[0], *moved, *rest[1:]] if rest else arguments
