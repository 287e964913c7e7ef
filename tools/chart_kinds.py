"""Write the parts of the Helm chart that follow from the table of kinds.  `--check` only compares.

The table is `kqueue/kinds.py`, with the adapters of `kqueue/jobs/catalog.py`.  A kind that is added there gets the
rights that kqueue needs for it and roles for its users, and may be named in the chart's values.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from kqueue.controllers.leftovers import READ_IN_BULK
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.gang.batch_process import FRAMEWORK as BATCH_PROCESSES
from kqueue.jobs.gang.batch_process import WORKSPACE_KIND
from kqueue.jobs.gang.dialect import Dialect
from kqueue.jobs.gang.registry import dialect_of
from kqueue.kinds import ALL_VIEWERS, FRAMEWORKS, GANG_DIALECTS, OWNERS, Kind, ReadKind, kinds_between

CHART = Path(__file__).resolve().parent.parent / "charts" / "kqueue"
TEMPLATE = CHART / "templates" / "_kinds.tpl"
SCHEMA = CHART / "values.schema.json"


def template() -> str:
    """Return the named templates of rules, of all kinds."""
    counted = [kind for kind in FRAMEWORKS.values() if kind.framework != "pod"]
    return "\n".join(
        [
            "{{/* Written by `make reference` from kqueue/kinds.py; do not edit. */}}",
            "",
            "{{/* Kinds that kqueue reads to follow the owners of jobs, enabled or not. */}}",
            '{{- define "kqueue.followedKinds" -}}',
            *_rules(OWNERS.values(), "get"),
            "{{- end }}",
            "",
            "{{/* Kinds whose labelled objects are counted if the kind is disabled. */}}",
            '{{- define "kqueue.countedKinds" -}}',
            *_rules(counted, "list"),
            "{{- end }}",
            "",
            '{{/* Rights for objects of enabled kinds: (dict "frameworks" list "deletes" bool). */}}',
            '{{- define "kqueue.queuedKinds" -}}',
            *(line for kind in FRAMEWORKS.values() for line in _queued(kind)),
            "{{- end }}",
            "",
            '{{/* Rights of the controller for group objects of enabled gang dialects: (dict "frameworks" list). */}}',
            '{{- define "kqueue.groupObjects" -}}',
            *(line for dialect in _with_objects() for line in group_objects(dialect)),
            "{{- end }}",
            "",
            '{{/* Group objects that webhooks look up for the queue of a gang: (dict "frameworks" list). */}}',
            '{{- define "kqueue.readGroupObjects" -}}',
            *(line for dialect in _with_objects() for line in _where(dialect, _group_rule(dialect, "get"))),
            "{{- end }}",
            "",
            '{{/* Objects that jobs of enabled kinds refer to, for webhooks: (dict "frameworks" list). */}}',
            '{{- define "kqueue.readOthers" -}}',
            *(line for kind in FRAMEWORKS.values() for line in _read_by_webhooks(kind)),
            "{{- end }}",
            "",
            "{{/* Kinds whose objects are searched for leftovers before kqueue is removed. */}}",
            '{{- define "kqueue.startedKinds" -}}',
            *(line for name in BY_FRAMEWORK for line in _started(FRAMEWORKS[name])),
            "{{- end }}",
            "",
            "{{/* Roles of users, as JSON: path of the kind, and viewers as in user-roles.yaml. */}}",
            '{{- define "kqueue.kindRoles" -}}',
            json.dumps(_roles(), indent=2),
            "{{- end }}",
            "",
        ]
    )


def _queued(kind: Kind) -> list[str]:
    """Return the controller's rights for an enabled kind; empty for kinds that other rules cover."""
    is_on = f"has {json.dumps(kind.framework)} .frameworks"
    rules: list[str] = []
    if kind.framework in BY_FRAMEWORK:
        rules += _rule(kind, "get, list, watch, patch{{ if .deletes }}, delete{{ end }}")
        rules += _rule(kind, "patch", "/status") if kind.stop_writes_status else []
        read: list[Kind | ReadKind] = [*kind.reads, *kinds_between(kind.framework)]
        rules += [line for other in read for line in _seen(other)]
    elif kind.watched:
        rules += _rule(kind, "get, list, watch")
    elif kind.framework == "pod":  # rights for pods do not depend on enabled kinds
        through = [name for name, row in FRAMEWORKS.items() if row.through_pods]
        is_on = "or " + " ".join(f"(has {json.dumps(name)} .frameworks)" for name in ("pod", *through, *GANG_DIALECTS))
    else:
        return []
    return [f"{{{{- if {is_on} }}}}", *rules, *_rule(kind, "update", "/finalizers"), "{{- end }}"]


def _seen(kind: Kind | ReadKind) -> list[str]:
    """Return the rights for objects that are only watched, because jobs refer to them or own them."""
    return _rule_for(kind.group, kind.plural, "get, list, watch")


def _read_by_webhooks(kind: Kind) -> list[str]:
    """Return the rights of webhooks for objects that jobs of an enabled kind refer to."""
    rules = [line for other in kind.reads for line in _rule_for(other.group, other.plural, "get")]
    return [f"{{{{- if has {json.dumps(kind.framework)} .frameworks }}}}", *rules, "{{- end }}"] if rules else []


def _started(kind: Kind) -> list[str]:
    """Return the rights to remove gates from templates, for kinds that are read in bulk only."""
    return _rule(kind, "get, list, patch" if kind.group_kind in READ_IN_BULK else "list")


def _with_objects() -> list[Dialect]:
    """Return the dialects of gangs that have a group object."""
    return [dialect for name in GANG_DIALECTS if (dialect := dialect_of(name)).kinds]


def _where(dialect: Dialect, rules: list[str]) -> list[str]:
    """Return rules that hold where the dialect is on."""
    return [f"{{{{- if has {json.dumps(dialect.framework)} .frameworks }}}}", *rules, "{{- end }}"]


def _group_rule(dialect: Dialect, verbs: str, subresource: str = "") -> list[str]:
    return _rule_for(dialect.kinds[0].group, dialect.plural, verbs, subresource)


def _workspace(plural: str) -> list[str]:
    """Return the rights for BatchProcesses of workspaces, which are copied to BatchProcesses of kqueue."""
    return [
        *_rule_for(WORKSPACE_KIND.group, plural, "get, list, watch, delete"),
        *_rule_for(WORKSPACE_KIND.group, plural, "patch", "/status"),
        *_rule_for(WORKSPACE_KIND.group, plural, "update", "/finalizers"),
    ]


def group_objects(dialect: Dialect) -> list[str]:
    """Return the controller's rights for group objects of a dialect; a Workload blocks the deletion of its owner."""
    rules = _group_rule(dialect, "get, list, watch")
    if dialect.framework == BATCH_PROCESSES:  # kqueue creates the pods, and deletes objects some time after their end
        rules += _group_rule(dialect, "create, patch, delete")
        rules += [*_rule_for("", "pods", "create"), *_rule_for("", "services", "get, create")]
        rules += _workspace(dialect.plural)
    if dialect.writes_status or dialect.framework == BATCH_PROCESSES:
        rules += _group_rule(dialect, "patch", "/status")
    return _where(dialect, [*rules, *_group_rule(dialect, "update", "/finalizers")])


def _roles() -> dict[str, dict[str, str]]:
    """Return the roles of users by kind; group objects of several groups with one kind share a role."""
    roles = {
        kind.kind.lower(): {"path": f"{kind.group}/{kind.plural}", "viewers": kind.viewers}
        for kind in FRAMEWORKS.values()
        if kind.viewers
    }
    groups: dict[tuple[str, str], list[str]] = {}
    for dialect in _with_objects():
        groups.setdefault((dialect.kinds[0].kind.lower(), dialect.plural), []).append(dialect.kinds[0].group)
    for (kind, plural), found in groups.items():
        roles[kind] = {"path": f"{', '.join(found)}/{plural}", "viewers": ALL_VIEWERS}
    return roles


def _rule(kind: Kind, verbs: str, subresource: str = "") -> list[str]:
    return _rule_for(kind.group, kind.plural, verbs, subresource)


def _rule_for(group: str, plural: str, verbs: str, subresource: str = "") -> list[str]:
    return [
        f"- apiGroups: [{group or json.dumps(group)}]",
        f"  resources: [{plural}{subresource}]",
        f"  verbs: [{verbs}]",
    ]


def _rules(kinds: Iterable[Kind], verb: str) -> list[str]:
    """Return one rule for each API group, in the order of the table."""
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
    """Return the values' schema with the names of all frameworks."""
    parsed = json.loads(text)
    configuration = parsed["properties"]["configuration"]["properties"]
    configuration["integrations"]["properties"]["frameworks"]["items"]["enum"] = [*FRAMEWORKS, *GANG_DIALECTS]
    return json.dumps(parsed, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the files, or with --check print the differing ones; return the exit code."""
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
        print(f"{path.relative_to(CHART.parent.parent)} differs from the table of kinds; run `make reference`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
