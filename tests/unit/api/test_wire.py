"""The structs read in bulk are in step with the models: same names, same defaults, nothing else."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from kqueue.api.definitions import KINDS
from kqueue.api.multikueue_cluster import MultiKueueCluster
from kqueue.api.multikueue_config import MultiKueueConfig
from kqueue.api.provisioning_request_config import ProvisioningRequestConfig
from kqueue.api.wire import core, multikueue, provisioning
from kqueue.api.wire import kueue as wire
from kqueue.controllers.watches import Watches

NOT_OURS = {"metadata", "template"}
"""Fields whose content is Kubernetes' own."""

WATCHED = [kind for kind in KINDS if hasattr(wire, kind.__name__)]


def struct_of(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct inside an annotation such as `tuple[X, ...]` or `X | None`."""
    return next((a for a in _leaves(annotation) if isinstance(a, type) and issubclass(a, msgspec.Struct)), None)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation."""
    return next((a for a in _leaves(annotation) if isinstance(a, type) and issubclass(a, BaseModel)), None)


def _leaves(annotation: Any) -> Iterator[Any]:
    arguments = typing.get_args(annotation)
    if not arguments or (isinstance(annotation, types.GenericAlias) and annotation.__origin__ is Mapping):
        yield annotation
    for argument in arguments:
        yield from _leaves(argument)


def differences(struct: type[msgspec.Struct], model: type[BaseModel], path: str) -> Iterator[str]:
    """Fields of the struct that the model does not have, or has with another default."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        where = f"{path}.{field.encode_name}"
        found = fields.get(field.encode_name)
        if found is None:
            yield f"{where} is not in the model"
            continue
        if field.encode_name in NOT_OURS:
            continue
        inner, other = struct_of(hints[field.name]), model_of(found.annotation)
        if inner is not None and other is not None:
            if inner.__module__ != core.__name__:
                yield from differences(inner, other, where)
        elif field.default is not msgspec.NODEFAULT and not found.is_required():
            ours, theirs = field.default, found.get_default(call_default_factory=True)
            if ours != theirs and (ours or theirs):
                yield f"{where} is {ours!r} by default, in the model {theirs!r}"


@pytest.mark.parametrize("kind", WATCHED, ids=lambda kind: kind.__name__)
def test_a_watched_kind_is_in_step_with_its_model(kind: type[BaseModel]) -> None:
    """Every field that is read exists, under the same name and with the same default."""
    assert list(differences(getattr(wire, kind.__name__), kind, kind.__name__)) == []


def test_the_config_of_provisioning_checks_is_in_step_with_its_model() -> None:
    """It is watched only where the controller of the check runs."""
    config = provisioning.ProvisioningRequestConfig
    assert list(differences(config, ProvisioningRequestConfig, config.__name__)) == []


@pytest.mark.parametrize("kind", [MultiKueueCluster, MultiKueueConfig], ids=lambda kind: kind.__name__)
def test_a_kind_of_multikueue_is_in_step_with_its_model(kind: type[BaseModel]) -> None:
    """It is watched only where the controller of the check runs."""
    assert list(differences(getattr(multikueue, kind.__name__), kind, kind.__name__)) == []


def test_every_kind_with_a_struct_is_watched_and_compared() -> None:
    """The controller watches exactly the kinds whose structs are compared with models here."""
    views = typing.get_type_hints(Watches).values()
    watched = {leaf.__name__ for view in views for leaf in _leaves(view) if leaf.__module__ == wire.__name__}

    assert watched == {kind.__name__ for kind in WATCHED}
