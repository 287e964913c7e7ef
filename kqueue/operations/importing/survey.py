"""The plans for all units of some namespaces, counted by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kqueue.config.model import Configuration
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.registry import declared_for
from kqueue.operations.importing.plan import ImportProblem, ImportSettings, ImportStep, plan
from kqueue.operations.importing.units import ImportUnit, units_in
from kqueue.operations.importing.world import group_objects_in, jobs_in, pods_in, read_world
from kqueue.runtime.client import Client


@dataclass(slots=True)
class Survey:
    """The units that can be imported, those that are left out, and those that cannot be imported."""

    steps: list[ImportStep] = field(default_factory=list)
    skipped: list[ImportUnit] = field(default_factory=list)
    problems: dict[str, list[ImportUnit]] = field(default_factory=lambda: defaultdict(list))
    """Units by the reason."""

    @property
    def refused(self) -> int:
        """The number of units that cannot be imported."""
        return sum(map(len, self.problems.values()))

    def table(self) -> dict[str, tuple[int, int, int]]:
        """Return by kind the numbers of units that can be imported, are skipped, and cannot be imported."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for column, units in enumerate(
            ([s.unit for s in self.steps], self.skipped, [u for some in self.problems.values() for u in some])
        ):
            for unit in units:
                found[unit.noun][column] += 1
        return {noun: (ready, left, bad) for noun, (ready, left, bad) in sorted(found.items())}


async def survey(
    client: Client, namespaces: Sequence[str], settings: ImportSettings, configuration: Configuration
) -> Survey:
    """Plan the import of all jobs, groups and pods of the namespaces.

    All built-in kinds and the declared ones are read, also those that are off: they are imported before a controller
    looks after them.
    """
    world = await read_world(client, namespaces, devices=settings.devices is not None)
    kinds = (*BY_FRAMEWORK.values(), *declared_for(configuration))
    jobs = await jobs_in(client, namespaces, kinds)
    pods = await pods_in(client, namespaces)
    groups = await group_objects_in(client, namespaces, settings.switches.gangs)
    found = Survey()
    for unit in units_in(jobs, pods, settings.switches, groups):
        planned = plan(unit, world, settings)
        match planned:
            case ImportStep():
                found.steps.append(planned)
            case ImportProblem():
                found.problems[planned.text].append(unit)
            case _:
                found.skipped.append(unit)
    return found
