"""`kqueue get`, `describe`, `edit`, `patch`, and `delete` of other kinds than Workload: passed to kubectl unchanged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from kqueue.cli.ctl.kinds import kind_called, unknown_kind
from kqueue.cli.reaching import VALUE_FLAGS

_VERBS = {
    "get": "Print objects of our kinds",
    "describe": "Show details of our objects",
    "edit": "Change our objects in an editor",
    "patch": "Change fields of our objects",
}
_ANY = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
_HELP = ("-h", "--help")
_TAKES_VALUE = VALUE_FLAGS | {
    *("-o", "--output", "-l", "--selector", "--field-selector", "-p", "--patch", "--type", "-L", "--label-columns"),
    *("--sort-by", "--subresource", "--template", "--chunk-size", "--field-manager", "-v"),
}
"""Flags of kubectl that take the next word as their value."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb, about in _VERBS.items():
        app.command(verb, help=f"{about}, as kubectl does; all flags are its own.", context_settings=_ANY)(_for(verb))


def _for(verb: str) -> Callable[..., None]:
    def command(
        context: typer.Context,
        arguments: Annotated[
            list[str] | None,
            typer.Argument(metavar="KIND [NAME] [kubectl's flags]", help="KIND may also be KIND/NAME or KIND,KIND."),
        ] = None,
    ) -> None:
        given = arguments or []
        if not given or given[0] in _HELP:
            print(context.get_help())
            raise typer.Exit(0 if given else 2)
        hand_over(verb, given)

    return command


def hand_over(verb: str, arguments: Sequence[str]) -> None:
    """Replace this process by kubectl; does not return.

    Raises:
        ConfigError: the arguments name no kind, or a kind of another API; or kubectl is not installed.
    """
    from kqueue.errors import ConfigError

    words = with_full_kinds(arguments)
    program = shutil.which("kubectl")
    if program is None:
        raise ConfigError(
            f"kubectl is not on PATH, and {verb} is kubectl's work: install it (list, create, stop, resume and "
            "delete workload do without)"
        )
    os.execv(program, ["kubectl", verb, *words])  # noqa: S606  # replaces this process on purpose, without a shell


def with_full_kinds(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with full names of kqueue's kinds, which match no other kind.

    The kind is the first argument that names one of kqueue's; flags with their values may come before it.

    Raises:
        ConfigError: no argument names one.
    """
    from kqueue.errors import ConfigError

    words = [position for position, _ in enumerate(arguments) if _may_be_kind(arguments, position)]
    for position in words:
        full = _full(arguments[position])
        if full is not None:
            return [*arguments[:position], full, *arguments[position + 1 :]]
    raise ConfigError(unknown_kind(arguments[words[0]].partition("/")[0] if words else ""))


def _may_be_kind(arguments: Sequence[str], position: int) -> bool:
    """Whether an argument is neither a flag nor the value of one."""
    before = arguments[position - 1] if position else ""
    return not arguments[position].startswith("-") and before not in _TAKES_VALUE


def _full(argument: str) -> str | None:
    """Return `cq,lq` or `cq/NAME` with full names; None if a part is not one of our kinds."""
    names, slash, rest = argument.partition("/")
    kinds = [kind_called(name) for name in names.split(",")]
    if any(kind is None for kind in kinds):
        return None
    return ",".join(kind.full for kind in kinds if kind is not None) + slash + rest
