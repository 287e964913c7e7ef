"""The `kqueue` command: registers all commands, and turns failures into exit codes.

Each command lives in a file of this room with `register(app)`. These files import no heavy module at their top, so that
`--help` stays fast: a command imports its modules in its body.

Exit codes: 0 the command succeeded; 1 it failed; 2 the call, a setting or a file is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kqueue.cli.output import printable
from kqueue.cli.reaching import flags_behind_name
from kqueue.errors import ConfigError, KqueueError

_FAILED, _MISUSED = 1, 2

_COMMANDS = (
    "ctl.verbs",
    "ctl.kubectl_commands",
    "explain",
    "simulate",
    "what_if",
    "quota",
    "top",
    "topology",
    "page",
    "defrag",
    "drain",
    "doctor",
    "controller",
    "webhook",
    "sandbox",
    "demo",
    "place",
    "record",
    "replay",
    "report",
    "migrate",
    "import_pods",
    "uninstall",
    "settings",
    "version",
    "ctl.completion",
)
"""Files of this room, in the order of the help page."""

_FIRST = (
    *("explain", "simulate", "what-if", "list", "quota", "top", "topology", "dashboard", "defrag", "drain", "doctor"),
    *("create", "stop", "resume", "delete", "get", "describe", "edit", "patch"),
)
"""Commands at the head of the help page."""

_ABOUT = """Batch admission control for Kubernetes: when a job starts, and in which rack.

Run "kqueue demo" for a simulated cluster with a story of jobs on it."""


@dataclass(slots=True)
class _Options:
    """The flags before the command's name, and the cluster flags that the command accepts."""

    debug: bool = False
    files: Sequence[str] = _COMMANDS
    """The subset of `_COMMANDS` that is imported for this call."""


class _Root(TyperGroup):
    """All commands; flags of the cluster may precede a command's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move flags of the cluster behind the command's name, so that the command parses them."""
        return super().parse_args(ctx, flags_behind_name(args))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help page: commands of daily use come first."""
        first = [name for name in _FIRST if name in self.commands]
        return [*first, *(name for name in self.commands if name not in first)]


_PROCESSES = ("controller", "webhook")
"""Commands that run in pods.  For them only the file of the called command is imported, which saves 20 ms of CPU."""


def build(options: _Options | None = None) -> typer.Typer:
    """Return the application with the commands of the chosen files, by default all."""
    chosen = options or _Options()
    app = typer.Typer(
        name="kqueue",
        cls=_Root,
        help=_ABOUT,
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help takes 0.1 s; the boxed one imports a Markdown parser and takes 0.4 s
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    ) -> None:
        chosen.debug = debug

    for name in chosen.files:
        import_module(f"kqueue.cli.{name}").register(app)
    return app


def command_of(app: typer.Typer) -> Any:
    """Return the application as one command; lists of its commands have whole first sentences."""
    command = typer.main.get_command(app)
    _keep_whole_sentences(command)
    return command


def _keep_whole_sentences(command: Any) -> None:
    """Give every command a short help: typer cuts the summaries of commands that have none, and wraps the others."""
    for below in command.commands.values() if isinstance(command, TyperGroup) else ():
        below.short_help = below.short_help or _first_sentence(below.help or "")
        _keep_whole_sentences(below)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."


def run(arguments: Sequence[str], program: str = "kqueue") -> int:
    """Run one command line; return the exit code. Mistakes of users raise nothing.

    `program` is the called name, for usage lines. A bug (any error but KqueueError) is raised with its traceback.
    """
    options = _Options(files=arguments[:1] if arguments and arguments[0] in _PROCESSES else _COMMANDS)
    command = command_of(build(options))
    try:
        command.main(args=list(arguments), prog_name=program)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else _FAILED if e.code else 0
    except KqueueError as e:
        if options.debug:
            raise
        text = "\n".join(map(printable, str(e).splitlines()))  # may contain text of servers and webhooks
        print(f"kqueue: {text}", file=sys.stderr)
        return _MISUSED if isinstance(e, ConfigError) else _FAILED
    return 0
