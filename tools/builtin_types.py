"""Write `kqueue/sandbox/builtin_types.txt`: names, wire numbers and list keys of the fields of built-in kinds.

Reads the interface definitions (`generated.proto`) of the pinned Kubernetes modules in Go's module cache, which
`make controlplane` fills.  Run it when the pinned version changes: `python tools/builtin_types.py`.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "v0.36.3"
OUTPUT = Path(__file__).parent.parent / "kqueue" / "sandbox" / "builtin_types.txt"
PACKAGES = {
    "meta": "apimachinery/pkg/apis/meta/v1",
    "core": "api/core/v1",
    "apps": "api/apps/v1",
    "batch": "api/batch/v1",
    "events": "api/events/v1",
    "coordination": "api/coordination/v1",
    "admissionregistration": "api/admissionregistration/v1",
    "apiextensions": "apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "rbac": "api/rbac/v1",
    "scheduling": "api/scheduling/v1",
    "node": "api/node/v1",
    "discovery": "api/discovery/v1",
    "policy": "api/policy/v1",
    "networking": "api/networking/v1",
    "authentication": "api/authentication/v1",
    "authorization": "api/authorization/v1",
    "storage": "api/storage/v1",
    "resource": "api/resource/v1",
}
ROOTS = [
    "core.Namespace",
    "core.Node",
    "core.Pod",
    "core.PodTemplate",
    "core.Service",
    "core.ConfigMap",
    "core.Secret",
    "core.ServiceAccount",
    "core.Event",
    "core.Endpoints",
    "core.LimitRange",
    "core.ResourceQuota",
    "core.PersistentVolumeClaim",
    "core.PersistentVolume",
    "core.ReplicationController",
    "core.Binding",
    "apps.Deployment",
    "apps.DaemonSet",
    "apps.StatefulSet",
    "apps.ReplicaSet",
    "apps.ControllerRevision",
    "batch.Job",
    "batch.CronJob",
    "events.Event",
    "coordination.Lease",
    "admissionregistration.MutatingWebhookConfiguration",
    "admissionregistration.ValidatingWebhookConfiguration",
    "apiextensions.CustomResourceDefinition",
    "rbac.Role",
    "rbac.RoleBinding",
    "rbac.ClusterRole",
    "rbac.ClusterRoleBinding",
    "scheduling.PriorityClass",
    "node.RuntimeClass",
    "discovery.EndpointSlice",
    "policy.PodDisruptionBudget",
    "policy.Eviction",
    "networking.Ingress",
    "networking.IngressClass",
    "networking.NetworkPolicy",
    "storage.StorageClass",
    "resource.DeviceClass",
    "resource.ResourceClaim",
    "resource.ResourceClaimTemplate",
    "resource.ResourceSlice",
    "authentication.TokenReview",
    "authentication.TokenRequest",
    "authentication.SelfSubjectReview",
    "authorization.SelfSubjectAccessReview",
    "authorization.SelfSubjectRulesReview",
    "authorization.SubjectAccessReview",
    "authorization.LocalSubjectAccessReview",
    "meta.DeleteOptions",
]
SCALARS = {"string": "s", "bool": "b", "int32": "i", "int64": "i", "double": "d", "bytes": "y"}
SPECIAL = {
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "Q",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "X",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "R",
    "meta.Time": "T",
    "meta.MicroTime": "M",
    "meta.Duration": "s",
    "meta.FieldsV1": "R",
    "apiextensions.JSONSchemaProps": "R",
    "apiextensions.JSON": "R",
    "authorization.ExtraValue": "R",
    "authentication.ExtraValue": "R",
}
INLINE = {
    "volumeSource",
    "persistentVolumeSource",
    "handler",
    "ephemeralContainerCommon",
    "rule",
    "ingressRuleValue",
    "localObjectReference",
}
"""Messages whose fields are inlined in the JSON of the enclosing object."""
JSON_NAMES = {"Webhooks": "webhooks", "aPIGroup": "apiGroup"}
"""JSON names of fields that differ from the protobuf name."""

_MESSAGE = re.compile(r"((?:^//[^\n]*\n)*)^message (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
ATOMIC = "// +structType=atomic"
_FIELD = re.compile(
    r"^\s*(optional|repeated|map<string, (?P<value>[^>]+)>)\s*(?P<type>[.\w]+)?\s+(?P<name>\w+) = (?P<number>\d+);"
)
_MARK = re.compile(r"^\s*// \+(\w+)(?:=(\S+))?")


@dataclass(slots=True)
class Marks:
    """The markers in the comments of a field."""

    keys: list[str] = field(default_factory=list)
    list_type: str = ""
    merge_key: str = ""
    strategy: str = ""
    atomic: bool = False

    def read(self, name: str, value: str) -> None:
        """Read `+name=value` of a comment."""
        match name:
            case "listMapKey":
                self.keys.append(value)
            case "listType":
                self.list_type = value
            case "patchMergeKey":
                self.merge_key = value
            case "patchStrategy":
                self.strategy = value
            case "mapType" | "structType":
                self.atomic = value == "atomic"
            case _:
                pass

    def flags(self) -> str:
        """Return the marks in the form of the data file."""
        out = ""
        if self.list_type == "map":
            out += ":map=" + ",".join(self.keys)
        elif self.list_type == "set":
            out += ":set"
        if self.atomic:
            out += ":atomic"
        if self.merge_key:
            out += ":key=" + self.merge_key
        if "merge" in self.strategy and not self.merge_key:
            out += ":merge"
        if "retainKeys" in self.strategy:
            out += ":retain"
        return out


def main() -> None:
    """Read all packages, keep messages that the roots use, write one line per message."""
    cache = Path(subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip())
    messages: dict[str, list[str]] = {}
    for short, path in PACKAGES.items():
        module, _, rest = path.partition("/")
        text = (cache / "k8s.io" / f"{module}@{VERSION}" / rest / "generated.proto").read_text()
        for comment, name, body in _MESSAGE.findall(text):
            messages[f"{short}.{name}"] = (["!"] if ATOMIC in comment else []) + fields(body, short)
    lines = [f"# Fields of built-in kinds, Kubernetes {VERSION}.  Written by tools/builtin_types.py."]
    lines += [f"{name} {' '.join(messages[name])}" for name in reached(messages)]
    OUTPUT.write_text("\n".join(lines) + "\n")
    print(f"{OUTPUT}: {len(lines) - 1} messages")


def fields(body: str, package: str) -> list[str]:
    """Return `name=number/type:flags` of each field."""
    found, marks = [], Marks()
    for line in body.splitlines():
        if mark := _MARK.match(line):
            marks.read(mark[1], mark[2] or "")
        elif match := _FIELD.match(line):
            shape = {"repeated": "[]", "optional": ""}.get(match[1], "{}")
            kind = type_name(match["value"] or match["type"], package)
            name = JSON_NAMES.get(match["name"], match["name"])
            inline = name in INLINE and "." in kind  # RuntimeClass has a plain field named handler
            found.append(f"{name}={match['number']}/{shape}{kind}{marks.flags()}{':inline' if inline else ''}")
            marks = Marks()
    return found


def type_name(text: str, package: str) -> str:
    """Return the data file's short name of a type."""
    if text in SCALARS:
        return SCALARS[text]
    full = text.lstrip(".")
    if full in SPECIAL:
        return SPECIAL[full]
    for short, path in PACKAGES.items():
        prefix = "k8s.io." + path.replace("/", ".").replace("-", "_") + "."
        if full.startswith(prefix):
            full = f"{short}.{full.removeprefix(prefix)}"
            break
    else:
        full = f"{package}.{full}"
    return SPECIAL.get(full, full)


def reached(messages: dict[str, list[str]]) -> list[str]:
    """Return the roots and all messages that they use, directly or not, sorted."""
    found: set[str] = set()
    todo = list(ROOTS)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for each in messages[name]:
            if each == "!":
                continue
            kind = each.split("/", 1)[1].split(":")[0].removeprefix("[]").removeprefix("{}")
            if "." in kind:
                todo.append(kind)
    return sorted(found)


if __name__ == "__main__":
    main()
