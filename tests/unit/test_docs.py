"""What the pages say is there: links, commands, manifests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from kqueue.cli.app import build
from tests.fast_yaml import documents

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


@cache
def top() -> Any:
    """`kqueue` itself."""
    return typer.main.get_command(build())


@cache
def known_commands() -> dict[str, Any]:
    """Name to its subcommands; None where it has none, or works without."""

    def below(command: Any) -> Any:
        found = getattr(command, "commands", None)
        by_itself = getattr(command, "invoke_without_command", False)  # then other words are its arguments
        return {name: below(sub) for name, sub in found.items()} if found and not by_itself else None

    found: dict[str, Any] = below(top())
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


_INVOCATION = re.compile(r"(?<![\w./-])(?:kqueue|kubectl[ -]kqueue) (?P<rest>[a-z][^`\n|;&#)]*)")
_CODE = re.compile(r"^(?:```\w*\n.*?^```| {4,}[^\n]*$)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_FLAG = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)")
_UsageError: Any = typer.BadParameter.__base__
_PASSED_ON = ("get", "describe", "edit", "patch")
"""Commands whose flags are kubectl's."""


def flags_of(command: Any) -> set[str]:
    """What may stand behind a command, but for help."""
    return {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)} | {"--help"}


def invocations(text: str) -> Iterator[str]:
    """Calls of our commands in the code of a page, each on one line, without `kqueue`."""
    for code in _CODE.findall(text.replace("\\\n", " ")):
        for found in _INVOCATION.finditer(code):
            if found["rest"].split()[0] in top().commands:  # or it is Helm that is called, with our name
                yield found["rest"]


def leaf(call: str) -> tuple[Any, list[str]]:
    """The command of a call, and the words behind it."""
    command: Any = top()
    words = call.split()
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if "show" in getattr(command, "commands", {}):  # a group that shows what is named
        command = command.commands["show"]
    return command, words


def unknown_flags(call: str) -> list[str]:
    """Flags of a call that its command does not have."""
    command, words = leaf(call)
    if command.name in _PASSED_ON:
        return []
    known = flags_of(command)
    return [flag for flag in _FLAG.findall(" ".join(words)) if flag not in known]


def wrong_values(call: str) -> str:
    """What the command says of the words behind it, if they are not what it takes; empty where it takes them."""
    command, words = leaf(call)
    try:
        words = shlex.split(" ".join(words))
        command.make_context("kqueue", words)
    except (typer.BadParameter, ValueError) as e:
        return "" if "Missing parameter" in str(e) else str(e)  # a sentence need not name everything
    except (_UsageError, typer.Exit):  # help, and words of the sentence behind it
        return ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_flags_exist(page: Path) -> None:
    """A page shows no flag that its command does not have, and no value that it does not take."""
    text = page.read_text() if page.parent.name != "decisions" else ""
    generated = page.parent.name == "reference"  # names arguments by what they mean
    wrong = {
        call: flags
        for call in invocations(text)
        if (flags := unknown_flags(call) or (not generated and wrong_values(call)))
    }

    assert wrong == {}


def test_flags_are_found_wherever_they_stand() -> None:
    """Or the test above would be empty."""
    page = (
        "Call `kqueue top --once --odd`, or\n\n    $ kubectl kqueue topology dc --level rack --odder\n\n"
        "```sh\nkqueue place --input a.json \\\n  --oddest | less --no\n```\n"
    )

    assert [unknown_flags(call) for call in invocations(page)] == [["--odd"], ["--odder"], ["--oddest"]]
    assert "nobody" in wrong_values("list workload --status nobody")
    assert wrong_values("list workload --status pending") == ""
    assert sum("-" in call for page in PAGES for call in invocations(page.read_text())) > 30


_PATH = re.compile(r"`([\w.-]+(?:/[\w.*-]+)*/?)`")
_FOLDERS = ("kqueue/", "docs/", "tests/", "config/", "charts/", "examples/", "tools/", "webhooks/", ".ci/")
_INSIDE = ("", "kqueue", "kqueue/core", "kqueue/sandbox", "docs", "tests")
"""Where paths of a page may begin; its own folder is one more."""


def missing_paths(text: str, page: Path) -> list[str]:
    """Files and folders of the project that a page names in backticks, and that are not there."""
    named = [path for path in _PATH.findall(_FENCE.sub("", text)) if is_path(path)]
    return [path for path in named if not is_there(path, page)]


def is_there(path: str, page: Path) -> bool:
    """Whether the project has it; a bare name may be that of a file in any folder of ours."""
    starts = (page.parent, *(ROOT / start for start in _INSIDE))
    return path in file_names() or any(any(start.glob(path.rstrip("/"))) for start in starts)


@cache
def file_names() -> frozenset[str]:
    """Of all modules and tests."""
    return frozenset(path.name for folder in ("kqueue", "webhooks", "tests") for path in (ROOT / folder).rglob("*.py"))


def is_path(word: str) -> bool:
    """Whether a word means a file or a folder of the project; NAME, KIND and NNNN are placeholders."""
    if re.search(r"\b(NAME|KIND|NNNN)\b", word):
        return False
    return word.startswith(_FOLDERS) or re.search(r"\.(py|md|toml|lock|sh)$", word) is not None or word == "Dockerfile"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_files_exist(page: Path) -> None:
    """A page names no file that is not there; decisions tell what was true when they were taken."""
    if page.parent.name != "decisions":
        assert missing_paths(page.read_text(), page) == []


def test_files_are_found() -> None:
    """Or the test above would be empty."""
    assert missing_paths("`kqueue/cli/app.py`, `kqueue/none/` and `docs/none.md` of `batch/job`", PAGES[0]) == [
        "kqueue/none/",
        "docs/none.md",
    ]
    assert sum(is_path(path) for page in PAGES for path in _PATH.findall(page.read_text())) > 30


def manifests(text: str) -> Iterator[dict[str, Any]]:
    """Our own kinds that a page shows, also those inside of commands."""
    for language, block in _FENCE.findall(text):
        inside = re.findall(r"<<'EOF'\n(.*?)^EOF$", block, re.MULTILINE | re.DOTALL) if language == "sh" else [block]
        for part in inside if language in ("yaml", "sh") else ():
            for document in yaml.safe_load_all(part):
                if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith("kueue.x-k8s.io/"):
                    yield document


@cache
def schemas() -> dict[str, Any]:
    """Schema by kind."""
    found = {}
    for path in (ROOT / "config" / "crd").glob("*.yaml"):
        spec = documents(path.read_text())[0]["spec"]
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
