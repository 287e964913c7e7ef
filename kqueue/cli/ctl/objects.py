"""Printing objects in the format of `-o`, and reading lists of objects in pages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.ctl.completing import names_of
from kqueue.cli.output import printable

if TYPE_CHECKING:
    from kqueue.cli.ctl.kinds import CommandKind
    from kqueue.runtime.client import Client
    from kqueue.runtime.resources import ResourceType

Object = Mapping[str, Any]

_PAGE = 100
_PAGE_VARIABLE = "KUEUECTL_LIST_REQUEST_LIMIT"
_LIST_ATTEMPTS = 3


class ObjectOutput(StrEnum):
    """Formats of `-o`; TEXT is a table for lists, and a sentence for changes."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class ListOutput(StrEnum):
    """Formats of `-o` for lists; WIDE is the table with more columns."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_table(self) -> bool:
        """Whether the format is a table for people."""
        return self in (ListOutput.TEXT, ListOutput.WIDE)


class DryRun(StrEnum):
    """Values of --dry-run."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


def is_name(text: str) -> bool:
    """Whether a text is safe as the name of an object in a URL."""
    return text not in ("", ".", "..") and not {"/", "%"} & set(text)


def checked_name(name: str) -> str:
    """Return `name` after a check.

    Raises:
        ConfigError: no object can have this name; in a URL it would have another meaning.
    """
    if not is_name(name):
        from kqueue.errors import ConfigError

        raise ConfigError(f"{name!r} is no name of an object: give the name alone, without kind and /")
    return name


OutputOption = Annotated[
    ObjectOutput, typer.Option("-o", "--output", help="How to print.", case_sensitive=False, show_default=False)
]
ListOutputOption = Annotated[
    ListOutput, typer.Option("-o", "--output", help="How to print.", case_sensitive=False, show_default=False)
]
DryRunOption = Annotated[
    DryRun,
    typer.Option("--dry-run", help="client sends nothing; server checks and stores nothing.", case_sensitive=False),
]
SelectorOption = Annotated[str, typer.Option("--selector", "-l", help="Only objects with these labels.")]
FieldSelectorOption = Annotated[str, typer.Option("--field-selector", help="Only objects with these fields.")]


def existing(kind: CommandKind) -> Any:
    """Return the argument that names one object of a kind, with completion in shells."""
    return typer.Argument(metavar="NAME", show_default=False, callback=checked_name, autocompletion=names_of(kind))


def checked_target(text: str) -> str:
    """Return `text` after a check: the name of a Workload, or KIND/NAME of the object it was made for.

    Raises:
        ConfigError: the text is neither.
    """
    kind, slash, name = text.partition("/")
    checked_name(name if slash and kind else text)
    return text


NewName = Annotated[str, typer.Argument(metavar="NAME", show_default=False, callback=checked_name)]
"""The argument that names an object to create."""


AllNamespacesOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")]


def print_done(kind: CommandKind, obj: Object, done: str, output: ObjectOutput, dry_run: DryRun = DryRun.NONE) -> None:
    """Print the change of one object as a sentence, or the object itself."""
    match output:
        case ObjectOutput.TEXT:
            print(f"{_name(kind, obj)} {done}{ran(dry_run)}")
        case ObjectOutput.NAME:
            print(_name(kind, obj))
        case _:
            print_json(obj, output)


def ran(dry_run: DryRun) -> str:
    """Return the addition to sentences about a dry run."""
    return "" if dry_run is DryRun.NONE else f" ({dry_run.value} dry run)"


def print_objects(resource: ResourceType, name: str, objects: Sequence[Object], output: ListOutput) -> None:
    """Print a list in a format for programs; `name` is the singular for `-o name`."""
    if output is ListOutput.NAME:
        full = f"{name}.{resource.group}" if resource.group else name
        for obj in objects:
            print(f"{full}/{printable(obj['metadata']['name'])}")
        return
    listed = {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": {}, "items": objects}
    print_json(listed, ObjectOutput(output.value))


def print_json(value: Object, output: ObjectOutput) -> None:
    """Print JSON or YAML; all characters outside ASCII are escaped, so that they cannot control a terminal."""
    if output is ObjectOutput.YAML:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False), end="")
    else:
        import json

        print(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def _name(kind: CommandKind, obj: Object) -> str:
    group = kind.full.removeprefix(f"{kind.plural}.")
    return f"{kind.name}.{group}/{printable(obj['metadata']['name'])}"


async def listed(
    client: Client, resource: ResourceType, namespace: str | None = None, *, labels: str = "", fields: str = ""
) -> list[dict[str, Any]]:
    """Return all matching objects of a namespace (None: of all), read a page at a time.

    If the token for the next page expires, the list is read again from the start, three times at most.

    Raises:
        ConfigError: the page size in the environment is invalid.
    """
    from kqueue.errors import GoneError

    page = page_size()
    for attempt in range(_LIST_ATTEMPTS):
        try:
            return await client.list_json(resource, namespace, label_selector=labels, field_selector=fields, page=page)
        except GoneError:
            if attempt + 1 == _LIST_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def page_size() -> int:
    """Return the number of objects per request.

    Raises:
        ConfigError: the value in the environment is no number above 0.
    """
    from kqueue.errors import ConfigError

    text = os.environ.get(_PAGE_VARIABLE, "")
    if not text:
        return _PAGE
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise ConfigError(f"{_PAGE_VARIABLE}={text!r}: must be a whole number from 1; unset it for {_PAGE}")
    return int(text)
