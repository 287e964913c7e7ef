"""The groups in which the run times of a Workload are learned: its LocalQueue, owner and shape."""

from __future__ import annotations

import hashlib
import re

from kqueue.api.wire import kueue as wire
from kqueue.core.future.learned import RunKeys
from kqueue.errors import InvalidObjectError
from kqueue.model.pod_sets import template_path
from kqueue.model.resources import template_requests

_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\Z")
"""The end that the API server gives to a name that it makes of `generateName`."""
_HEXADECIMAL = re.compile(r"(?=[a-f]*[0-9])[0-9a-f]{8,}")
_DIGITS = re.compile(r"[0-9]+")


def run_keys(obj: wire.Workload) -> RunKeys:
    """Return the groups of a Workload, as hashes of bounded length."""
    queue, shape = obj.spec.queue_name or "", _shape(obj)
    keys = (_hash("owner", queue, *_owner(obj), shape), _hash("shape", queue, shape), _hash("queue", queue))
    return RunKeys(obj.metadata.namespace, keys)


def run_mark(uid: str) -> str:
    """Return the name of a Workload for all time, of bounded length."""
    return _hash("run", uid)


def name_stem(name: str) -> str:
    """Return a name without a generated end, and with `#` for numbers: runs of one job differ only in these."""
    return _DIGITS.sub("#", _HEXADECIMAL.sub("#", _GENERATED.sub("", name)))


def _owner(obj: wire.Workload) -> tuple[str, str]:
    """Return kind and stem of the controller; of a group of pods without a controller, of the group."""
    owners = obj.metadata.owner_references
    controller = next((owner for owner in owners if owner.controller), None)
    if controller is None:
        return "", name_stem(obj.metadata.name)
    return controller.kind, name_stem(controller.name)


def _shape(obj: wire.Workload) -> str:
    """Return the numbers of pods and the requests of one pod of each pod set; amounts that cannot be read count as
    none.
    """
    parts: list[str] = []
    for position, pod_set in enumerate(obj.spec.pod_sets):
        try:
            requests = template_requests(pod_set.template.spec, template_path(position))
        except InvalidObjectError:
            requests = {}
        asked = ",".join(f"{resource}={amount}" for resource, amount in sorted(requests.items()))
        parts.append(f"{pod_set.count}:{asked}")
    return ";".join(parts)


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
