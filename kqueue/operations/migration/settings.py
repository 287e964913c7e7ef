"""Checks a Configuration of Kueue for the settings that kqueue reads, and the values for its chart."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kqueue.config import Configuration, parse
from kqueue.config.compatible import from_v1beta1
from kqueue.config.load import ConfigFileError, document_of, drop_nulls
from kqueue.config.policy import AdmissionCheckSettings
from kqueue.kinds import CHECK_CONTROLLERS
from kqueue.operations.migration.findings import Level, MigrationFinding, converts, note, work

JSON = dict[str, Any]
_FILLED_IN = (
    ("namespace",),
    ("webhook",),
    ("internalCertManagement",),
    ("visibilityServer",),
    ("pprofBindAddress",),
    ("health", "healthProbeBindAddress"),
    ("metrics", "bindAddress"),
    ("leaderElection", "resourceNamespace"),
)
"""Fields that the chart sets itself, and refuses in its values."""
_NEEDED = {
    "multiKueue.externalFrameworks": "declare the kinds in integrations.declaredKinds, or keep Kueue for them",
}
"""Fields without effect that jobs may depend on, each with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedSettings:
    """The result of the check of a Configuration."""

    findings: tuple[MigrationFinding, ...]
    values: JSON = field(default_factory=dict)
    """Values of kqueue's chart."""
    configuration: Configuration | None = None
    """The parsed Configuration; None if kqueue would not start with it."""


def settings_in(text: str, *, source: str, above: str = "") -> MigratedSettings:
    """Convert the Configuration in `text`.

    Args:
        text: the whole file.
        source: its name in errors.
        above: the prefix of paths in findings, such as a key of a values file.

    Raises:
        ConfigError: the text is not YAML, or not a Configuration of a supported version.
    """
    document = document_of(text, source)
    found = [] if document["apiVersion"].endswith("/v1beta2") else [_old_version(above)]
    values, filled = _values_of(document, above)
    try:
        configuration = parse(text, source=source)
    except ConfigFileError as e:
        found += [
            work(f"{above}{p.path}", p.problem, f"correct {p.path}; the rest was not checked") for p in e.problems
        ]
        return MigratedSettings(findings=(*found, *filled), values=values)
    found += [_as_finding(warning, above) for warning in configuration.warnings]
    found += [converts(f"{above}{name}", f"configuration.{name}") for name in sorted(values["configuration"])]
    if values["configuration"].get("multiKueue"):  # Kueue runs this controller without being asked
        values["configuration"]["admissionChecks"] = {"controllers": list(CHECK_CONTROLLERS)}
        checks = AdmissionCheckSettings(controllers=CHECK_CONTROLLERS)
        configuration = configuration.model_copy(update={"admission_checks": checks})
        found.append(converts(f"{above}multiKueue", "configuration.admissionChecks.controllers"))
    integrations = values["configuration"].setdefault("integrations", {})
    if not integrations.get("frameworks"):  # Kueue then queues Jobs only; the default of kqueue's chart has more kinds
        integrations["frameworks"] = list(configuration.integrations.frameworks)
    return MigratedSettings(findings=(*found, *filled), values=values, configuration=configuration)


def _old_version(above: str) -> MigrationFinding:
    return MigrationFinding(
        level=Level.CONVERTS,
        field=f"{above}apiVersion",
        why="v1beta1 is read with the defaults of v1beta1; the findings below use the names of v1beta2",
        remedy="take it from `values` of -o json, where it is written as v1beta2",
    )


def _as_finding(warning: str, above: str) -> MigrationFinding:
    """Return a sentence about a setting without effect as a finding."""
    where, _, why = warning.partition(": ")
    if where in _NEEDED:
        return work(f"{above}{where}", why, _NEEDED[where])
    return note(f"{above}{where}", why, f"leave {where} out of the configuration")


def _values_of(document: JSON, above: str) -> tuple[JSON, list[MigrationFinding]]:
    """Return values for kqueue's chart, and findings about settings that the chart fills in."""
    data = copy.deepcopy(document)
    version = data.pop("apiVersion")
    del data["kind"]
    drop_nulls(data)
    found: list[MigrationFinding] = []
    if version.endswith("/v1beta1"):
        from_v1beta1(data)
        if "waitForPodsReady" in data and data["waitForPodsReady"] is None:  # on by default in v1beta2
            del data["waitForPodsReady"]
            data["featureGates"] = {**(data.get("featureGates") or {}), "DisableWaitForPodsReady": True}
            found.append(
                converts(f"{above}waitForPodsReady", "configuration.featureGates.DisableWaitForPodsReady=true")
            )
    values: JSON = {"configuration": data}
    management = data.get("internalCertManagement")
    if isinstance(management, dict) and management.get("enable") is False:
        values["certManager"] = {"enable": True}
    return values, [*found, *_taken_out(data, above)]


def _taken_out(data: JSON, above: str) -> Iterator[MigrationFinding]:
    """Remove settings that the chart fills in."""
    for path in _FILLED_IN:
        section = data if len(path) == 1 else data.get(path[0])
        if not isinstance(section, dict) or path[-1] not in section:
            continue
        value, name = section.pop(path[-1]), ".".join(path)
        if len(path) > 1 and not section:
            del data[path[0]]
        if name == "internalCertManagement" and isinstance(value, dict) and value.get("enable") is False:
            yield converts(f"{above}{name}.enable", "certManager.enable=true")
        else:
            yield note(f"{above}{name}", "kqueue's chart sets this to match its other objects", "leave it out")
