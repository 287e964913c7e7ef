"""The devices that drivers offer, from slices of pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kqueue.core.devices.values import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlice:
    """Some devices of a pool.  The pool is complete with `slices` slices of its highest generation.

    `counters`: the amounts that the devices of the pool share, by set and name.
    """

    name: str
    driver: str
    pool: str
    generation: int
    slices: int
    devices: tuple[Device, ...] = ()
    counters: Mapping[tuple[str, str], int] = field(default_factory=dict)


def complete(slices: Iterable[DeviceSlice]) -> Iterator[DeviceSlice]:
    """Yield the slices of complete pools, as kube-scheduler counts them.

    A driver that renews a pool writes slice after slice; until the last one, the pool has no devices.
    """
    newest: dict[tuple[str, str], list[DeviceSlice]] = {}
    for each in slices:
        known = newest.setdefault((each.driver, each.pool), [])
        if known and known[0].generation < each.generation:
            known.clear()
        if not known or known[0].generation == each.generation:
            known.append(each)
    for found in newest.values():
        if len(found) == found[0].slices:
            yield from found
