"""AdmissionCheck: a condition that another controller must confirm before a workload starts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kqueue.api.fields import DNS_LABEL_PATTERN, DNS_SUBDOMAIN_PATTERN, Conditions
from kqueue.api.model import ApiModel, Resource, Rule, Served


class CheckParameters(ApiModel):
    """Object that tunes a check."""

    api_group: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN_PATTERN)]
    """API group of the object."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")]
    """Kind of the object."""
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]
    """Name of the object."""


class AdmissionCheckSpec(ApiModel):
    """The controller of the check, and its parameters."""

    controller_name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Rule(cel="self == oldSelf", message="controllerName cannot be changed; create another AdmissionCheck instead"),
    ]
    """Controller that answers for this check, such as kueue.x-k8s.io/provisioning-request.  Cannot be changed."""
    parameters: CheckParameters | None = None
    """Object that tunes the check."""


class AdmissionCheckStatus(ApiModel):
    """Whether the check can be used."""

    conditions: Conditions = ()
    """Condition Active: whether the controller is ready to answer."""


class AdmissionCheck(Resource):
    """A condition that another controller must confirm between quota and start, such as new nodes being there."""

    served: ClassVar = Served(plural="admissionchecks", short_names=("ac",))
    kind: str = "AdmissionCheck"
    """Kind of the object."""
    spec: AdmissionCheckSpec | None = None
    """The controller of the check, and its parameters."""
    status: AdmissionCheckStatus = AdmissionCheckStatus()
    """Whether the check can be used."""
