"""Builders of objects, and the in-process API with a clock that stands still."""

from __future__ import annotations

from random import Random
from typing import Any

from kqueue.clock import FakeClock
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
THINGS = GroupVersionResource("example.com", "v1", "things")
START = "2026-01-01T00:00:00Z"


def new_api(**options: Any) -> ClusterApi:
    """An empty cluster on a fake clock, with the same names in every run."""
    return ClusterApi(FakeClock(), chance=Random(1), **options)


def config_map(name: str = "c", *, namespace: str = "default", **metadata: Any) -> Object:
    """A ConfigMap with one entry."""
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": {"a": "1"}}


def pod(name: str = "p", *, metadata: Object | None = None, resources: Object | None = None, **spec: Any) -> Object:
    """A pod of one container."""
    container = {"name": "c", "image": "img:v1", "resources": resources or {}}
    return {
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"containers": [container], **spec},
    }


def job(name: str = "j", *, template: Object | None = None, pod_spec: Object | None = None, **spec: Any) -> Object:
    """A Job of one container."""
    template_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "img:v1"}], **(pod_spec or {})}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": template_spec, **(template or {})}, **spec},
    }


def definition(*, versions: list[Object] | None = None, schema: Object | None = None, **version: Any) -> Object:
    """A CustomResourceDefinition for things.example.com."""
    only = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or THING_SCHEMA}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": versions or [{**only, "subresources": {"status": {}}, **version}],
        },
    }


def thing(name: str = "t", **spec: Any) -> Object:
    """An object of that kind."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


THING_SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["color"],
            "properties": {
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "n": {"type": "integer", "minimum": 1, "maximum": 5},
                "word": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
                "parts": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 7}},
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "amount": {"x-kubernetes-int-or-string": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}
