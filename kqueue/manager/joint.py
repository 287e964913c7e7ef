"""Joint placement in a controller process: its rounds, and which workloads take part."""

from __future__ import annotations

from kqueue import model
from kqueue.manager import rules
from kqueue.manager.controller_manager import ControllerManager
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.scheduling.joint.rounds import JointRounds
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.state.joint_profiles import JointProfiles


def make_rounds(manager: ControllerManager, loop: SchedulingLoop) -> JointRounds | None:
    """Let the loop plan workloads jointly; None: the feature gate is off."""
    if not manager.config.enabled("JointPlacement"):
        return None
    watches = manager.watches

    def profile_of_flavor(name: str) -> str | None:
        flavor = watches.flavors.store.get(name)
        topology = watches.topologies.store.get(flavor.spec.topology_name or "") if flavor is not None else None
        return model.profile_name(topology.metadata) if topology is not None else None

    joint = manager.config.joint
    profiles = JointProfiles(manager.cache.quota, profile_of_flavor=profile_of_flavor, default=joint.default)
    return loop.plan_jointly(PlanningProcess(), profiles.is_joint, rules.round_settings(joint))
