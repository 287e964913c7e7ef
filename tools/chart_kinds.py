"""Write the parts of the Helm chart that follow from the table of kinds.  `--check` only compares.

The table is `kqueue/kinds.py`.  A kind that is added there gets the rights that following owners and counting objects
need, and may be named in the chart's values.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from kqueue.kinds import FRAMEWORKS, OWNERS, Kind

CHART = Path(__file__).resolve().parent.parent / "charts" / "kqueue"
TEMPLATE = CHART / "templates" / "_kinds.tpl"
SCHEMA = CHART / "values.schema.json"


def template() -> str:
    """The named templates of rules, of all kinds."""
    counted = [kind for kind in FRAMEWORKS.values() if kind.framework != "pod"]
    return "\n".join(
        [
            "{{/* Written by `make reference` from kqueue/kinds.py; do not edit. */}}",
            "",
            "{{/* Kinds above a job through which owners are followed, whether they are queued or not. */}}",
            '{{- define "kqueue.followedKinds" -}}',
            *_rules(OWNERS.values(), "get"),
            "{{- end }}",
            "",
            "{{/* Kinds whose labelled objects are counted where the kind is switched off. */}}",
            '{{- define "kqueue.countedKinds" -}}',
            *_rules(counted, "list"),
            "{{- end }}",
            "",
        ]
    )


def _rules(kinds: Iterable[Kind], verb: str) -> list[str]:
    """One rule for each API group, in the order of the table."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    lines: list[str] = []
    for group, plurals in groups.items():
        lines += [
            f"- apiGroups: [{group or json.dumps(group)}]",
            f"  resources: [{', '.join(plurals)}]",
            f"  verbs: [{verb}]",
        ]
    return lines


def schema(text: str) -> str:
    """The values' schema with the names of all frameworks."""
    parsed = json.loads(text)
    configuration = parsed["properties"]["configuration"]["properties"]
    configuration["integrations"]["properties"]["frameworks"]["items"]["enum"] = list(FRAMEWORKS)
    return json.dumps(parsed, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write, or say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is not up to date")
    check = parser.parse_args().check
    wanted = {TEMPLATE: template(), SCHEMA: schema(SCHEMA.read_text(encoding="utf-8"))}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if not check:
        for path in stale:
            path.write_text(wanted[path], encoding="utf-8")
        return 0
    for path in stale:
        print(f"{path.relative_to(CHART.parent.parent)} is not what the table of kinds says; run `make reference`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
