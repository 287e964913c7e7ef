"""Copies BatchProcesses of Brain++ workspaces to BatchProcesses of kqueue, and the status back.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, text, whole
from kqueue.jobs.gang.batch_process import KIND, WORKSPACE_KIND
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.workload import controller_reference

_KEPT_OUT = "kubectl.kubernetes.io/"
"""Prefix of annotations that describe the original alone."""
_OF_THE_ORIGINAL = ("ttlSecondsAfterFinished",)
"""Fields that hold for the original: its end deletes the copy."""


def copy_of(original: JSON, *, image: str) -> JSON:
    """Return the copy to create; `image` is that of processes without one, empty: there is none."""
    metadata: JSON = {
        "name": text(original, "metadata", "name"),
        "namespace": text(original, "metadata", "namespace"),
        "labels": labels_of(original),
        "annotations": {k: v for k, v in annotations_of(original).items() if not k.startswith(_KEPT_OUT)},
        "ownerReferences": [controller_reference(WORKSPACE_KIND, original)],
    }
    spec = {key: value for key, value in mapping(original, "spec").items() if key not in _OF_THE_ORIGINAL}
    if image and not text(spec, "image") and _lacks_image(spec):
        spec["image"] = image
    return {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": metadata, "spec": spec}


def _lacks_image(spec: Mapping[str, Any]) -> bool:
    def named(process: Mapping[str, Any]) -> bool:
        containers = objects(process, "template", "spec", "containers")
        return bool(text(process, "image") or (containers and text(containers[0], "image")))

    return not all(named(process) for process in objects(spec, "simpleProcesses"))


def follow(copy: JSON, wanted: JSON) -> Patch:
    """Return the patch that makes the copy like the original; labels and annotations of others on it stay."""
    patch: Patch = {}
    changed = merge_patch(mapping(copy, "spec"), mapping(wanted, "spec"))
    if changed:
        patch["spec"] = changed
    metadata = {
        field: more
        for field in ("labels", "annotations")
        if (more := _missing(mapping(copy, "metadata", field), mapping(wanted, "metadata", field)))
    }
    return {**patch, "metadata": metadata} if metadata else patch


def _missing(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> JSON:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def is_copy_of(copy: JSON, original: JSON) -> bool:
    """Whether the original controls the BatchProcess of its name."""
    uid = text(original, "metadata", "uid")
    owners = objects(copy, "metadata", "ownerReferences")
    return any(owner.get("controller") is True and text(owner, "uid") == uid for owner in owners)


def status_back(copy: JSON, original: JSON) -> JSON:
    """Return the status of the original: that of the copy, with the original's generation once the copy is seen."""
    status = dict(mapping(copy, "status"))
    seen = whole(status, "observedGeneration") == whole(copy, "metadata", "generation")
    generation = whole(original, "metadata", "generation") if seen else whole(original, "status", "observedGeneration")
    status.pop("observedGeneration", None)
    return status if generation is None else {**status, "observedGeneration": generation}
