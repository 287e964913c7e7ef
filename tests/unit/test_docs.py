"""What the pages say is there: links, commands, manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from kqueue.cli.app import build

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_COMMAND = re.compile(r"(?:^ {4,}|`)kqueue ((?:[a-z-]+ ?)+)", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def anchors(text: str) -> set[str]:
    """As code hosts make them of headings."""
    words = (re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")) for title in _HEADING.findall(text))
    return {title.replace(" ", "-") for title in words}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist, and headings in them, too."""
    broken = []
    for link in _LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)

    assert broken == []


def known_commands() -> dict[str, Any]:
    """Name to its subcommands; None where it has none, or works without."""

    def below(command: Any) -> Any:
        found = getattr(command, "commands", None)
        by_itself = getattr(command, "invoke_without_command", False)  # then other words are its arguments
        return {name: below(sub) for name, sub in found.items()} if found and not by_itself else None

    found: dict[str, Any] = below(typer.main.get_command(build()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_exist(page: Path) -> None:
    """A page does not send its reader to a command that is not there."""
    known, missing = known_commands(), []
    text = page.read_text() if page.parent.name != "decisions" else ""
    shell = "".join(block for language, block in _FENCE.findall(text) if language == "sh")
    for found in [*_COMMAND.findall(text), *re.findall(r"^kqueue ((?:[a-z-]+ ?)+)", shell, re.MULTILINE)]:
        level: Any = known
        for word in found.split():
            if level is None:
                break
            if word not in level and "show" not in level:  # a group that shows what is named
                missing.append(found)
                break
            level = level.get(word)

    assert missing == []


def manifests(text: str) -> Iterator[dict[str, Any]]:
    """Our own kinds that a page shows, also those inside of commands."""
    for language, block in _FENCE.findall(text):
        inside = re.findall(r"<<'EOF'\n(.*?)^EOF$", block, re.MULTILINE | re.DOTALL) if language == "sh" else [block]
        for part in inside if language in ("yaml", "sh") else ():
            for document in yaml.safe_load_all(part):
                if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith("kueue.x-k8s.io/"):
                    yield document


def schemas() -> dict[str, Any]:
    """Schema by kind."""
    found = {}
    for path in (ROOT / "config" / "crd").glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        found[spec["names"]["kind"]] = strict(spec["versions"][0]["schema"]["openAPIV3Schema"])
    return found


def strict(schema: Any) -> Any:
    """As the API server warns: no fields but those that there are."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(part) for key, part in schema.items()}
    if isinstance(found.get("properties"), dict) and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_manifests_are_valid(page: Path) -> None:
    """What a reader copies is accepted."""
    known = schemas()
    for manifest in manifests(page.read_text()):
        body = {key: part for key, part in manifest.items() if key in ("spec", "value", "description")}
        fields = {key: part for key, part in known[manifest["kind"]]["properties"].items() if key in body}
        jsonschema.validate(body, {"type": "object", "properties": fields, "additionalProperties": False})


def test_there_are_manifests() -> None:
    """Or the test above would be empty."""
    assert sum(1 for page in PAGES for _ in manifests(page.read_text())) > 5
