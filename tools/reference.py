"""Write the reference pages of docs/reference from the product's sources.  `--check` only compares.

api.md              kinds and their fields, from config/crd
labels.md           labels, annotations, gates, finalizers, conditions, reasons: names of api, kube and sandbox
configuration.md    fields and feature gates of the configuration file, from kqueue/config
commands.md         every command with its options, from the command line itself
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
_MADE = "<!-- written by `make reference`; do not edit -->"
Schema = Mapping[str, Any]

KINDS = (
    "clusterqueues", "localqueues", "cohorts", "resourceflavors", "topologies", "workloads", "workloadpriorityclasses",
    "admissionchecks", "provisioningrequestconfigs", "multikueueconfigs", "multikueueclusters",
    "defragmentationplans", "reservations",
)  # fmt: skip
"""Plurals of the kinds, in the order of the page."""


def _cell(text: object) -> str:
    """Return the text of a table's cell: one line, with `|` escaped."""
    return " ".join(str(text).split()).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return [*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows), ""]


# --- api.md ------------------------------------------------------------------------------------------------------


def api() -> str:
    """Kinds and their fields."""
    lines = [
        "# API",
        _MADE,
        "",
        "Group `kueue.x-k8s.io`, version `v1beta2`; of DefragmentationPlan and Reservation `kqueue.dev`, "
        "version `v1alpha1`. "
        "`kubectl explain clusterqueues.spec --recursive` says the same of "
        "the cluster that you look at. Of a pod template, which is a plain Kubernetes one, the fields are left out.",
        "",
    ]
    for name in KINDS:
        crd = yaml.safe_load((ROOT / "config" / "crd" / f"{name}.yaml").read_text())
        spec, version = crd["spec"], crd["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        short = ", ".join(spec["names"].get("shortNames", ()))
        lines += [f"## {spec['names']['kind']}", "", schema.get("description", ""), ""]
        lines += [f"{spec['scope']}; `kubectl get {spec['names']['plural']}`{f' ({short})' if short else ''}.", ""]
        for part in ("spec", "status"):
            fields = schema["properties"].get(part)
            if fields is not None:
                rows = [(f"`{path}`", kind, rule, meaning) for path, kind, rule, meaning in _fields(fields, part)]
                lines += _table(("Field", "Type", "Rules", "Meaning"), rows)
    return "\n".join(lines)


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        yield below, _type(field), _rules(field, needed=name in required), field.get("description", "")
        yield from _below(field, below)


def _below(field: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    if field.get("type") == "array":
        yield from _below(field["items"], f"{path}[]")
    elif isinstance(field.get("additionalProperties"), Mapping):
        yield from _below(field["additionalProperties"], f"{path}.*")
    elif "properties" in field:
        yield from _fields(field, path)


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), Mapping):
        return f"map of {_type(field['additionalProperties'])}"
    if "anyOf" in field:
        return " or ".join(_type(choice) for choice in field["anyOf"] if choice.get("type") != "null")
    return str(field.get("type", "any"))


_BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
}
"""Of a schema, in words."""


def _rules(field: Schema, *, needed: bool) -> str:
    rules = ["required"] if needed else []
    if "default" in field:
        rules.append(f"default `{_literal(field['default'])}`")
    items = field.get("items", {})
    if "enum" in field or "enum" in items:
        rules.append("one of " + ", ".join(f"`{choice}`" for choice in field.get("enum", items.get("enum"))))
    rules += [f"{word} {field[key]}" for key, word in _BOUNDS.items() if key in field]
    rules += [rule.get("message", rule["rule"]) for rule in field.get("x-kubernetes-validations", ())]
    return "; ".join(rules)


def _literal(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...").strip()


# --- labels.md ---------------------------------------------------------------------------------------------------


def labels() -> str:
    """Names in objects, section by section of the modules that define them."""
    lines = [
        "# Labels, annotations, conditions and reasons",
        _MADE,
        "",
        "Every name that kqueue reads or writes in objects; most are Kueue's.",
        "",
    ]
    folder = ROOT / "kqueue"
    first, *others = sorted((folder / "api").glob("*names.py"), key=lambda path: (path.name != "names.py", path.name))
    for module in (first, *others, folder / "kube" / "names.py", folder / "sandbox" / "names.py"):
        lines += _names_of(module.read_text())
    return "\n".join(lines)


def _names_of(source: str) -> list[str]:
    """Return the sections of one module; the first line of its docstring is the title of names before any section."""
    lines: list[str] = []
    section: list[tuple[str, ...]] = []
    title = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")
    titles = {n: line.strip("# -") for n, line in enumerate(source.splitlines(), 1) if line.startswith("# ----")}
    body = ast.parse(source).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        before = [text for number, text in titles.items() if number < node.lineno]
        if before and before[-1] != title:
            lines += _section(title, section)
            title, section = before[-1], []
        value, meaning = getattr(node, "value", None), _docstring(following)
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(value, ast.Constant)
            and isinstance(value.value, str)
            and meaning
        ):
            section.append((f"`{value.value}`", meaning))
    return [*lines, *_section(title, section)]


def _section(title: str, rows: list[tuple[str, ...]]) -> list[str]:
    return [f"## {title}", "", *_table(("Name", "Meaning"), rows)] if title and rows else []


# --- configuration.md --------------------------------------------------------------------------------------------


def configuration() -> str:
    """Fields of the file with type, default and meaning; feature gates with their stage."""
    from kqueue.config.gates import GATES
    from kqueue.config.model import Configuration
    from kqueue.config.without_effect import acts, idle_fields

    idle = tuple(idle_fields())
    rows = [
        (
            f"`{path}`",
            kind,
            default,
            meaning + (" No effect here." if path in idle or path.startswith(tuple(f"{i}." for i in idle)) else ""),
        )
        for path, kind, default, meaning in _settings(Configuration, "")
    ]
    gates = [
        (
            f"`{name}`",
            gate.stage.value,
            "on" if gate.on else "off",
            ", ".join(f"`{need}`" for need in gate.needs),
            "acts" if acts(name) else "accepted, no effect",
        )
        for name, gate in sorted(GATES.items())
    ]
    return "\n".join(
        [
            "# Configuration file",
            _MADE,
            "",
            "Kind `Configuration` of `config.kueue.x-k8s.io/v1beta2`, given by `--config`. All fields may be left out. "
            "`kqueue config check FILE` finds mistakes in one, all at once; `kqueue config show` prints what a "
            "controller would run with. Fields that are read and have no effect here are reported at the start, and by "
            "`config check`.",
            "",
            "## Fields",
            "",
            *_table(("Field", "Type", "Default", "Meaning"), rows),
            "## Feature gates",
            "",
            "`featureGates` of the file, or `--feature-gates Gate=true,Other=false`.",
            "",
            *_table(("Gate", "Stage", "Default", "Needs", "Here"), gates),
        ]
    )


def _settings(model: Any, path: str) -> Iterator[tuple[str, str, str, str]]:
    from pydantic_core import PydanticUndefined

    schema = model.model_json_schema(by_alias=True)
    docstrings = _field_docstrings(model)
    for name, field in model.model_fields.items():
        alias = field.alias or name
        below = f"{path}.{alias}" if path else alias
        inner, many = _section_of(field.annotation)
        plain = _resolved(schema["properties"].get(alias, {}), schema.get("$defs", {}))
        default = field.get_default(call_default_factory=True)
        shown = "" if inner is not None or default in (PydanticUndefined, None) else f"`{_shown(default)}`"
        kind = (
            ("list of sections" if many else "section") if inner is not None else _config_type(field.annotation, plain)
        )
        meaning = docstrings.get(name, "") or (inspect.getdoc(inner) if inner is not None else "") or ""
        yield below, kind, shown, re.sub(r"\bNone\b", "absent", meaning)
        if inner is not None:
            yield from _settings(inner, f"{below}[]" if many else below)


def _section_of(annotation: Any) -> tuple[Any, bool]:
    """Return the section in a field, and whether the field is a list of sections; (None, False) without a section."""
    from typing import get_args

    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    many = getattr(annotation, "__origin__", None) in (list, tuple)
    for part in get_args(annotation):
        found, inside = _section_of(part)
        if found is not None:
            return found, many or inside
    return None, False


def _resolved(field: Schema, definitions: Schema) -> Schema:
    if "$ref" in field:
        return _resolved(definitions[field["$ref"].rpartition("/")[2]], definitions)
    return field


def _config_type(annotation: Any, field: Schema) -> str:
    if "timedelta" in str(annotation):
        return "duration"
    if "ObjectPath" in str(annotation):
        return "path"
    if "enum" in field:
        return " or ".join(f"`{choice}`" for choice in field["enum"])
    return _type(field) if field.get("type") or "anyOf" in field else "text"


def _shown(value: object) -> str:
    from datetime import timedelta

    from kqueue.config.duration import duration_text

    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, Mapping):
        value = dict(value)
    return _literal(value) if isinstance(value, str | int | float | bool | list | dict) else str(value)


def _field_docstrings(model: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not base.__module__.startswith("kqueue."):
            continue
        body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base)).lstrip()).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and (text := _docstring(after)):
                found[node.target.id] = text
    return found


def _docstring(node: ast.stmt | None) -> str:
    """Return the text of a statement that is only a string; empty for other statements."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


# --- commands.md -------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command with its `--help`."""
    import typer

    from kqueue.cli.app import build

    root = typer.main.get_command(build())
    make_context = type(root.make_context("kqueue", [], resilient_parsing=True))
    lines = ["# Commands", _MADE, "", "Also installed as `kubectl-kqueue`, for `kubectl kqueue ...`.", ""]

    def walk(command: Any, name: str, depth: int) -> None:
        context = make_context(command, info_name=name)
        if command.hidden:
            return
        about = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\b", "")
        arguments = " ".join((p.metavar or p.name).upper() for p in command.params if p.param_type_name == "argument")
        lines.extend([f"{'#' * min(depth, 4)} `{f'{name} {arguments}'.strip()}`", "", about, ""])
        rows = [
            (", ".join(f"`{text}`" for text in record[0].split(", ")), record[1])
            for param in command.params
            if param.param_type_name == "option" and (record := param.get_help_record(context)) is not None
        ]
        if rows:
            lines.extend(_table(("Option", "Meaning"), rows))
        for sub, found in getattr(command, "commands", {}).items():
            walk(found, f"{name} {sub}", depth + 1)

    walk(root, "kqueue", 1)
    lines[lines.index("# `kqueue`")] = "## `kqueue`"
    return "\n".join(lines)


PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": api,
    "labels.md": labels,
    "configuration.md": configuration,
    "commands.md": commands,
}


def page_text(name: str) -> str:
    """Return the text that `make reference` writes into a page."""
    return PAGES[name]().rstrip("\n") + "\n"


def main() -> int:
    """Write the pages, or with --check compare them; return 1 if a page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page is out of date")
    only_compare = parser.parse_args().check
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = 0
    for name in PAGES:
        path, text = FOLDER / name, page_text(name)
        if not only_compare:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"docs/reference/{name} is out of date: run `make reference`", file=sys.stderr)
            found = 1
    return found


if __name__ == "__main__":
    sys.exit(main())
