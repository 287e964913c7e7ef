"""The verbs whose subcommands are kinds. Their modules are imported when a verb is called."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from kqueue.cli.ctl.kinds import GANGS, OURS, PODS, WORKLOAD, CommandKind, is_near, kind_called, unknown_kind
from kqueue.cli.reaching import flags_behind_name

_VERBS = {
    "create": ("create", "Create a queue or a flavor from flags."),
    "list": ("list", "List queues, workloads, flavors, gangs, or the pods of a job."),
    "stop": ("stop", "Stop a workload, or a queue and its admitted workloads."),
    "resume": ("stop", "Undo a stop."),
    "delete": ("delete", "Delete workloads with their jobs, or our other objects."),
}
"""The file of a verb, which has `add_commands(group, verb)`, and its line on the help page."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb, (_, about) in _VERBS.items():
        app.add_typer(typer.Typer(name=verb, help=about, cls=_Verb, no_args_is_help=True, rich_markup_mode=None))


_TAKE_OWNERS = ("stop", "resume", "delete")
"""Verbs that accept KIND/NAME of an object that Workloads were made for."""


class _Verb(TyperGroup):
    """A verb: it accepts any name of a kind, and flags of the cluster may precede the kind."""

    _kinds: tuple[CommandKind, ...] = (*OURS, PODS, GANGS)
    _built: MutableMapping[str, Any] | None = None

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """The commands by the name of their kind.

        They are built on first use: building all commands takes as long as the rest of `kqueue --help`.
        """
        if self._built is None:
            group = typer.Typer(rich_markup_mode=None)
            verb = str(self.name)
            import_module(f"kqueue.cli.ctl.{_VERBS[verb][0]}").add_commands(group, verb)
            self._built = typer.main.get_group(group).commands
        return self._built

    @commands.setter
    def commands(self, empty: MutableMapping[str, Any]) -> None:
        """Ignore the dict that typer sets, which is empty at this time."""

    def _owner_of_workloads(self, args: list[str]) -> list[str] | None:
        """Return arguments for Workloads if `KIND/NAME` or `KIND NAME` names their object, else None."""
        if self.name not in _TAKE_OWNERS or args[0].startswith("-"):
            return None
        if "/" in args[0]:
            return args
        if len(args) > 1 and not args[1].startswith("-") and not is_near(args[0], self._kinds):
            return [f"{args[0]}/{args[1]}", *args[2:]]
        return None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move flags of the cluster behind the kind, so that the kind's command parses them."""
        return super().parse_args(ctx, flags_behind_name(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the kind's command, by any name of the kind."""
        kind = kind_called(args[0], self._kinds)
        if kind is not None and kind.name in self.commands:
            args = [kind.name, *args[1:]]
        elif (owner := self._owner_of_workloads(args)) is not None:
            args = [WORKLOAD.name, *owner]
        elif not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(unknown_kind(args[0], [k for k in self._kinds if k.name in self.commands]))
        return super().resolve_command(ctx, args)
