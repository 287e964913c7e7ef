"""Joint placement in a controller process: its rounds, and which workloads take part."""

from __future__ import annotations

from typing import Protocol

import structlog

from kqueue import model
from kqueue.api.wire.meta import ObjectMeta
from kqueue.controllers.watches import Watches
from kqueue.core.topology.placers import JOINT
from kqueue.manager import rules
from kqueue.manager.controller_manager import ControllerManager
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.scheduling.joint.rounds import JointRounds
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.state.joint_profiles import JointProfiles

_log = structlog.get_logger(__name__)

_GATE = "JointPlacement"


def make_rounds(manager: ControllerManager, loop: SchedulingLoop) -> JointRounds | None:
    """Let the loop plan workloads jointly; None: the feature gate is off."""
    joint, watches = manager.config.joint, manager.watches
    if not manager.config.enabled(_GATE):
        _GateRemark(default=joint.default).watch(watches)
        return None

    def profile_of_flavor(name: str) -> str | None:
        flavor = watches.flavors.store.get(name)
        topology = watches.topologies.store.get(flavor.spec.topology_name or "") if flavor is not None else None
        return model.profile_name(topology.metadata) if topology is not None else None

    profiles = JointProfiles(manager.cache.quota, profile_of_flavor=profile_of_flavor, default=joint.default)
    return loop.plan_jointly(PlanningProcess(), profiles.is_joint, rules.round_settings(joint))


class _Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the object."""
        ...


class _GateRemark:
    """Says once in the log that the profile `joint` means best fit, because the feature gate is off."""

    def __init__(self, *, default: bool) -> None:
        self._is_said = False
        if default:
            self._say("the setting joint.default")

    def watch(self, watches: Watches) -> None:
        """Look at all objects that may name a profile."""
        watches.workloads.subscribe(lambda _old, new: self._look("Workload", new))
        watches.cluster_queues.subscribe(lambda _old, new: self._look("ClusterQueue", new))
        watches.cohorts.subscribe(lambda _old, new: self._look("Cohort", new))
        watches.topologies.subscribe(lambda _old, new: self._look("Topology", new))

    def _look(self, kind: str, obj: _Named | None) -> None:
        if not self._is_said and obj is not None and model.profile_name(obj.metadata) == JOINT:
            self._say(f"{kind} {obj.metadata.name}")

    def _say(self, by: str) -> None:
        self._is_said = True
        _log.warning("profile joint means best fit, because the feature gate is off", gate=_GATE, named_by=by)
