"""The webhook configurations that make the API server ask us: who is asked about what, and about what never.

Only objects that carry the queue label are sent, so an outage of kqueue cannot stop a stranger's job.  kube-system and
kqueue's own namespace are left out, so that what kqueue needs to come back never waits for kqueue.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.jobs.kind import ReviewedKind
from kqueue.jobs.registry import REVIEWED
from webhooks.routes import FRAMEWORK_PATHS

JSON = dict[str, Any]

MUTATING_NAME = "kueue-mutating-webhook-configuration"
VALIDATING_NAME = "kueue-validating-webhook-configuration"
_OURS = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the API server finds us: a base `url`, or a service by `namespace` and `name`."""

    ca_bundle: bytes
    url: str = ""
    service: str = ""
    namespace: str = ""

    def client_config(self, path: str) -> JSON:
        """As it stands in a webhook."""
        bundle = {"caBundle": base64.b64encode(self.ca_bundle).decode()}
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", **bundle}
        return {"service": {"name": self.service, "namespace": self.namespace, "path": path}, **bundle}


def webhook_configurations(target: Target, *, frameworks: Iterable[str], own_namespace: str) -> list[JSON]:
    """The mutating and the validating configuration.  Kinds that are not enabled have no webhook."""
    enabled = [f for f in FRAMEWORK_PATHS if f in set(frameworks) and f in REVIEWED]
    jobs = [(REVIEWED[f], FRAMEWORK_PATHS[f]) for f in enabled]
    mutating = [_job_hook("m", kind, rest, _defaulted_on(kind), target, own_namespace) for kind, rest in jobs]
    validating = [_job_hook("v", kind, rest, ["CREATE", "UPDATE"], target, own_namespace) for kind, rest in jobs]
    for kind, resources in (("clusterqueue", ["clusterqueues"]), ("resourceflavor", ["resourceflavors"])):
        mutating.append(_own_hook("m", kind, resources, ["CREATE"], target))
    mutating.append(_own_hook("m", "workload", ["workloads"], ["CREATE"], target))
    for kind, resources in (
        ("clusterqueue", ["clusterqueues"]),
        ("resourceflavor", ["resourceflavors"]),
        ("cohort", ["cohorts"]),
        ("workload", ["workloads", "workloads/status"]),
    ):
        validating.append(_own_hook("v", kind, resources, ["CREATE", "UPDATE"], target))
    return [
        _configuration("MutatingWebhookConfiguration", MUTATING_NAME, mutating),
        _configuration("ValidatingWebhookConfiguration", VALIDATING_NAME, validating),
    ]


def _defaulted_on(kind: ReviewedKind) -> list[str]:
    return ["CREATE", "UPDATE"] if kind.defaults_on_update else ["CREATE"]


def _configuration(kind: str, name: str, hooks: list[JSON]) -> JSON:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": hooks,
    }


def _hook(letter: str, kind: str, path: str, rule: JSON, target: Target) -> JSON:
    return {
        "name": f"{letter}{kind}.kb.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": target.client_config(path),
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": [rule],
    }


def _word(letter: str) -> str:
    return "mutate" if letter == "m" else "validate"


def _job_hook(
    letter: str, kind: ReviewedKind, rest: str, verbs: Sequence[str], target: Target, own_namespace: str
) -> JSON:
    rule = {
        "apiGroups": [kind.gvk.group],
        "apiVersions": [kind.gvk.version],
        "resources": [kind.resource],
        "operations": list(verbs),
    }
    hook = _hook(letter, kind.gvk.kind.lower(), f"/{_word(letter)}-{rest}", rule, target)
    excluded = sorted({"kube-system", own_namespace})
    hook["namespaceSelector"] = {
        "matchExpressions": [{"key": names.NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": excluded}]
    }
    hook["objectSelector"] = {"matchExpressions": [{"key": names.QUEUE_NAME_LABEL, "operator": "Exists"}]}
    return hook


def _own_hook(letter: str, kind: str, resources: Sequence[str], verbs: Sequence[str], target: Target) -> JSON:
    rule = {
        "apiGroups": [names.GROUP],
        "apiVersions": [names.VERSION],
        "resources": list(resources),
        "operations": list(verbs),
    }
    return _hook(letter, kind, f"/{_word(letter)}-{_OURS}-{kind}", rule, target)
