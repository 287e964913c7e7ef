"""Finds mistakes of a configuration that only the installed packages can tell, as the start of a controller does."""

from __future__ import annotations

from kqueue.config import Configuration
from kqueue.errors import ConfigError, FieldError
from kqueue.manager.plugins import load_plugins
from kqueue.manager.rules import policies_of
from kqueue.record.s3 import problem_with_package
from kqueue.scheduling.joint.extensions import load_policies


def mistakes_at_start(configuration: Configuration) -> list[FieldError]:
    """Return the mistakes with which a controller with the packages of this machine would not start.

    The mistakes that `kqueue.config.load` finds are not among them.  This imports the packages with policies of joint
    placement, and those of the enabled plugins.

    Raises:
        ConfigError: a package with a policy cannot be used.
    """
    found: list[FieldError] = []
    load_policies()
    if configuration.enabled("JointPlacement"):
        _, problem = policies_of(configuration.joint)
        found += [FieldError("joint.policies", problem)] if problem else []
    try:
        load_plugins(configuration.plugins)
    except ConfigError as e:
        found.append(FieldError("plugins", str(e)))
    if configuration.decision_record.upload.bucket and (problem := problem_with_package()):
        found.append(FieldError("decisionRecord.upload", problem))
    return found
