"""Compares the requests of kqueue's processes with the rights that the chart grants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:%(namespace)s"]
  - level: None
"""
"""Only what our ServiceAccounts ask for."""


class Right(NamedTuple):
    """Something that an account may do."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of an account."""

    right: Right
    code: int
    said: str


def flags(folder: Path, namespace: str) -> list[str]:
    """What the API server is told about the log."""
    policy = folder / "audit-policy.yaml"
    policy.write_text(POLICY % {"namespace": namespace})
    return [f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}", "--audit-log-mode=blocking"]


def asked(folder: Path, namespace: str) -> list[Asked]:
    """All requests so far, but those for what everybody may see."""
    found = []
    for line in (folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef") or {}
        if not reference:
            continue
        account = event["user"]["username"].removeprefix(f"system:serviceaccount:{namespace}:")
        resource = "/".join(part for part in (reference["resource"], reference.get("subresource")) if part)
        status = event.get("responseStatus") or {}
        right = Right(account, reference.get("apiGroup", ""), resource, event["verb"])
        found.append(Asked(right, status.get("code", 0), status.get("message", "")))
    return found


def refused(requests: Iterable[Asked]) -> list[str]:
    """Those that were forbidden: rights that the chart does not give."""
    return sorted({f"{each.right}: {each.said}" for each in requests if each.code == 403})


def granted(manifests: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What roles and bindings of the chart let our accounts do."""
    objects = [obj for obj in manifests if obj]
    rules = {
        (obj["kind"], obj["metadata"]["name"]): obj.get("rules") or ()
        for obj in objects
        if obj["kind"] in ("Role", "ClusterRole")
    }
    return {
        Right(subject["name"], group, resource, verb)
        for obj in objects
        if obj["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in obj["subjects"]
        for rule in rules.get((obj["roleRef"]["kind"], obj["roleRef"]["name"]), ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def unused(may: Iterable[Right], requests: Iterable[Asked]) -> set[Right]:
    """What nobody asked for."""
    return set(may) - {each.right for each in requests}
