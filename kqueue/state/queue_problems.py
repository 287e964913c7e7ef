"""Reasons for which a ClusterQueue is inactive: objects that are missing, inactive or contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.workload import Flavor, QueueSpec
from kqueue.state.checks import missing_controller, missing_controller_message


@dataclass(frozen=True, slots=True)
class Inactive:
    """The reason for which a ClusterQueue may not admit, as in its condition Active=False, and a sentence."""

    reason: str
    message: str


def problems(
    queue: wire.ClusterQueue,
    spec: QueueSpec,
    *,
    flavors: Mapping[str, Flavor],
    topologies: Mapping[str, object],
    checks: Mapping[str, wire.AdmissionCheck],
) -> Iterator[Inactive]:
    """Yield all problems with objects that a ClusterQueue names, in the order of the compatible system.

    `spec` is the ClusterQueue in the form of planning; the other arguments are all existing objects by name.
    """
    if queue.metadata.deletion_timestamp is not None:
        yield Inactive(names.REASON_TERMINATING, "it is being deleted")
    if queue.spec.stop_policy != "None":
        yield Inactive(names.REASON_STOPPED, f"its stopPolicy is {queue.spec.stop_policy}")
    named = [f for group in spec.groups for f in group.flavors]
    missing = [f for f in named if f not in flavors]
    if missing:
        yield Inactive(names.REASON_FLAVOR_NOT_FOUND, f"ResourceFlavor {_listed(missing)} not found; create it")
    strategy = queue.spec.admission_checks_strategy
    rules = strategy.admission_checks if strategy is not None else ()
    if rules:
        yield from _check_problems(rules, checks)
    if not _answered_by(names.MULTIKUEUE_CONTROLLER, rules, checks):
        yield from _topology_problems(named, flavors, topologies)


def _check_problems(
    rules: Iterable[wire.AdmissionCheckRule], checks: Mapping[str, wire.AdmissionCheck]
) -> Iterator[Inactive]:
    wanted = [rule.name for rule in rules]
    missing = [name for name in wanted if name not in checks]
    if missing:
        yield Inactive(
            names.REASON_ADMISSION_CHECK_NOT_FOUND, f"AdmissionCheck {_listed(missing)} not found; create it"
        )
    inactive = [n for n in wanted if n not in missing and not model.is_active(checks[n].status.conditions)]
    if inactive:
        yield Inactive(names.REASON_ADMISSION_CHECK_INACTIVE, _inactive_checks(sorted(inactive), checks))
    remote = _answered_by(names.MULTIKUEUE_CONTROLLER, rules, checks)
    if len(remote) > 1:
        yield Inactive(
            names.REASON_MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS,
            f"AdmissionChecks {_listed(r.name for r in remote)} are all of MultiKueue; keep one",
        )
    some = [rule.name for rule in remote if rule.on_flavors]
    if some:
        yield Inactive(
            names.REASON_MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR,
            f"AdmissionCheck {_listed(some)} of MultiKueue must be for all flavors; remove its onFlavors",
        )
    local = _answered_by(names.PROVISIONING_REQUEST_CONTROLLER, rules, checks)
    if remote and local:
        yield Inactive(
            names.REASON_MULTIKUEUE_WITH_PROVISIONING_REQUEST,
            f"AdmissionCheck {_listed(r.name for r in local)} asks for nodes here, and "
            f"{_listed(r.name for r in remote)} sends workloads elsewhere; remove one of them",
        )


def _inactive_checks(inactive: Iterable[str], checks: Mapping[str, wire.AdmissionCheck]) -> str:
    """Return a sentence about the checks that are not active, with the missing controller of each check without
    condition Active.
    """
    missing = {name: controller for name in inactive if (controller := missing_controller(checks[name])) is not None}
    parts = [f"AdmissionCheck {name}: {missing_controller_message(c)}" for name, c in missing.items()]
    others = [name for name in inactive if name not in missing]
    return "; ".join([f"AdmissionCheck {_listed(others)} is not active", *parts] if others else parts)


def _answered_by(
    controller: str, rules: Iterable[wire.AdmissionCheckRule], checks: Mapping[str, wire.AdmissionCheck]
) -> list[wire.AdmissionCheckRule]:
    """Return the checks of one controller."""
    return [
        rule
        for rule in rules
        if (check := checks.get(rule.name)) is not None
        and check.spec is not None
        and check.spec.controller_name == controller
    ]


def _topology_problems(
    named: Iterable[str], flavors: Mapping[str, Flavor], topologies: Mapping[str, object]
) -> Iterator[Inactive]:
    missing = [
        f"{flavor.topology} (flavor {flavor.name})"
        for flavor in map(flavors.get, named)
        if flavor is not None and flavor.topology is not None and flavor.topology not in topologies
    ]
    if missing:
        yield Inactive(names.REASON_TOPOLOGY_NOT_FOUND, f"Topology {_listed(missing)} not found; create it")


def _listed(items: Iterable[str]) -> str:
    return ", ".join(sorted(items))
