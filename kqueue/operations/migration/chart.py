"""Values of Kueue's chart, as values of kqueue's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kqueue.config.gates import GATES, GROUPS, gate_problems
from kqueue.config.load import mapping_of
from kqueue.config.names import nearest
from kqueue.errors import ConfigError
from kqueue.operations.migration.findings import MigrationFinding, converts, note, work
from kqueue.operations.migration.settings import MigratedSettings, settings_in

JSON = dict[str, Any]
GET_VALUES = "write the file by: helm get values kueue -n kueue-system --all -o yaml"
"""`--all` includes the defaults of Kueue's chart, which have an effect, too."""
_CONFIGURATION = "managerConfig.controllerManagerConfigYaml"
_GATES = "controllerManager.featureGates"

_SAME: Mapping[str, tuple[str, ...]] = {
    "nameOverride": ("nameOverride",),
    "fullnameOverride": ("fullnameOverride",),
    "enablePrometheus": ("monitoring.serviceMonitor",),
    "enableCertManager": ("certManager.enable",),
    "controllerManager.replicas": ("controller.replicas",),
    "controllerManager.imagePullSecrets": ("imagePullSecrets",),
    "controllerManager.readinessProbe": ("controller.readinessProbe", "webhook.readinessProbe"),
    "controllerManager.livenessProbe": ("controller.livenessProbe", "webhook.livenessProbe"),
    "controllerManager.nodeSelector": ("nodeSelector",),
    "controllerManager.tolerations": ("tolerations",),
    "controllerManager.topologySpreadConstraints": ("topologySpreadConstraints",),
    "controllerManager.manager.priorityClassName": ("priorityClassName",),
    "controllerManager.manager.image.pullPolicy": ("image.pullPolicy",),
    "metricsService.annotations": ("serviceAnnotations.metrics",),
    "webhookService.annotations": ("serviceAnnotations.webhook",),
}
"""Path of a value, and the paths of the equivalent values in kqueue's chart."""

_FIXED = "kqueue's chart has no such value"
_LEFT: Mapping[str, tuple[str, str]] = {
    "controllerManager.manager.image": ("it names Kueue's image", "set image.repository and image.tag to kqueue's"),
    "controllerManager.manager.resources": (
        "kqueue needs other amounts than Kueue; its defaults were measured",
        "set controller.resources and webhook.resources if the defaults do not fit",
    ),
    "controllerManager.manager.podAnnotations": (
        _FIXED,
        "annotate the pods by a policy of the cluster, or leave it out",
    ),
    "controllerManager.manager.podSecurityContext": ("pods of kqueue always run restricted", "leave it out"),
    "controllerManager.manager.containerSecurityContext": ("pods of kqueue always run restricted", "leave it out"),
    "controllerManager.podDisruptionBudget": ("kqueue's chart always makes one for each Deployment", "leave it out"),
    "enableVisibilityAPF": (_FIXED, "leave it out: kqueue limits concurrent requests itself"),
    "enableKueueViz": (
        "kqueue has no dashboard of its own",
        "use kqueue top, kqueue topology, or monitoring.dashboard=true",
    ),
    "kueueViz": ("kqueue has no dashboard of its own", "use kqueue top, kqueue topology, or monitoring.dashboard=true"),
    "kubernetesClusterDomain": ("kqueue's certificates need no domain of the cluster", "leave it out"),
    "metricsService": (_FIXED, "create a Service of your own if you need other ports, labels or types"),
    "webhookService": (_FIXED, "leave it out: the API server reaches Service kueue-webhook-service on port 443"),
    "mutatingWebhook": (_FIXED, "leave it out: kqueue's webhooks write their configurations themselves"),
    "validatingWebhook": (_FIXED, "leave it out: kqueue's webhooks write their configurations themselves"),
    "metrics": ("kqueue's chart creates its ServiceMonitor in its own namespace", "set monitoring.labels, if need be"),
}
"""Path of a value or of a whole section: the reason that it is left behind, and the remedy."""

_SECTIONS = ("controllerManager", "controllerManager.manager", "managerConfig", "metricsService", "webhookService")
_IMAGE = "controllerManager.manager.image"
_KNOWN = frozenset(path.partition(".")[0] for path in (*_SAME, *_LEFT, *_SECTIONS))


@dataclass(slots=True)
class _Conversion:
    """Values and findings so far."""

    source: str
    values: JSON
    findings: list[MigrationFinding]
    settings: MigratedSettings | None = None


def chart_in(text: str, *, source: str) -> MigratedSettings:
    """Convert a values file of Kueue's chart.

    Raises:
        ConfigError: the text is no YAML, no values file of that chart, or its Configuration is invalid.
    """
    given = mapping_of(text, source, begins="has values of Kueue's chart, such as controllerManager")
    _check(given, source)
    found = _Conversion(source, {}, [])
    for path, value in _leaves(given):
        _convert(found, path, value)
    inner = found.settings
    if inner is None:
        why = "the file has no Configuration, so the default of Kueue's chart is in effect, which is not known here"
        found.findings.append(work(_CONFIGURATION, why, GET_VALUES))
    return MigratedSettings(
        findings=(*found.findings, *(inner.findings if inner else ())),
        values=_joined(inner.values if inner else {}, found.values),
        configuration=inner.configuration if inner else None,
    )


def _check(given: JSON, source: str) -> None:
    if "apiVersion" in given and "kind" in given:
        raise ConfigError(f"{source}: is a {given['kind']}, not a values file; give a Configuration by --config")
    if not _KNOWN & given.keys():
        raise ConfigError(f"{source}: has no value of Kueue's chart, such as controllerManager; {GET_VALUES}")
    for path in _SECTIONS:
        section = _at(given, path)
        if section is not None and not isinstance(section, dict):
            raise ConfigError(f"{source}: {path}: must be a mapping, got {section!r}")
    text = _at(given, _CONFIGURATION)
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"{source}: {_CONFIGURATION}: must be text with a Configuration; begin it with |-")
    gates = _at(given, _GATES)
    if gates is not None and not (isinstance(gates, list) and all(map(_is_gate, gates))):
        raise ConfigError(f"{source}: {_GATES}: must be a list of {{name: GATE, enabled: true or false}}")


def _is_gate(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("enabled"), bool)


def _at(given: Any, path: str) -> Any:
    for name in path.split("."):
        given = given.get(name) if isinstance(given, dict) else None
    return given


def _leaves(given: JSON, above: str = "") -> Iterator[tuple[str, Any]]:
    """Return the given settings, section by section, without empty values."""
    for name, value in given.items():
        path = f"{above}{name}"
        if path in (*_SECTIONS, _IMAGE) and isinstance(value, dict):
            yield from _leaves(value, f"{path}.")
        elif value not in (None, "", False, [], {}):
            yield path, value


def _convert(found: _Conversion, path: str, value: Any) -> None:
    if path == _CONFIGURATION:
        if not value.strip():
            return
        found.settings = settings_in(value, source=f"{found.source}: {path}", above=f"{path}: ")
    elif path == _GATES:
        _convert_gates(found, value)
    elif path in _SAME:
        for target in _SAME[path]:
            _put(found.values, target, value)
        found.findings.append(converts(path, " and ".join(_SAME[path])))
    elif left := _left(path):
        found.findings.append(note(path, *left))
    else:
        known = [*_SAME, *_LEFT, _CONFIGURATION, _GATES]
        why = f"it is not a known value of Kueue's chart{nearest(path, known)}"
        found.findings.append(
            work(path, why, "correct the name, or find the equivalent value: helm show values charts/kqueue")
        )


def _left(path: str) -> tuple[str, str] | None:
    while path:
        if path in _LEFT:
            return _LEFT[path]
        path = path.rpartition(".")[0]
    return None


def _convert_gates(found: _Conversion, gates: list[JSON]) -> None:
    wanted = {gate["name"]: gate["enabled"] for gate in gates}
    wrong = gate_problems(wanted)
    found.findings += [
        work(f"{_GATES}[{name}]", why, f"remove {name} from the list, or correct it") for name, why in wrong
    ]
    known = [{"name": name, "enabled": on} for name, on in wanted.items() if name in GATES or name in GROUPS]
    if known:
        found.values["featureGates"] = known
        found.findings.append(converts(_GATES, "featureGates"))


def _put(values: JSON, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for name in above:
        values = values.setdefault(name, {})
    values[last] = value


def _joined(first: JSON, second: JSON) -> JSON:
    """Return the gates of both sources; the list wins, because Kueue gets it as a flag."""
    joined = {**first, **second}
    listed = {gate["name"] for gate in second.get("featureGates", ())}
    configuration = joined.get("configuration") or {}
    gates = configuration.get("featureGates")
    if listed and isinstance(gates, dict):
        configuration["featureGates"] = {name: on for name, on in gates.items() if name not in listed}
    return joined
