"""The controllers of AdmissionChecks that kqueue contains.  A new one is one file with a `setup`, and one row here."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.api import names
from kqueue.controllers import multikueue_setup, provisioning
from kqueue.controllers.manager import Manager, Setup

CHECK_CONTROLLERS: Mapping[str, Setup] = {
    names.PROVISIONING_REQUEST_CONTROLLER: provisioning.setup,
    names.MULTIKUEUE_CONTROLLER: multikueue_setup.setup,
}
"""By the name in `spec.controllerName` of an AdmissionCheck, and in `admissionChecks.controllers`."""


def setup(manager: Manager) -> None:
    """Add the controllers that the configuration names."""
    for name in manager.config.check_controllers():
        CHECK_CONTROLLERS[name](manager)
