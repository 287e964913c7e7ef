"""Plans for worlds of gangs: quorums below, at and beyond the number of members, late members, mistakes and losses."""

from __future__ import annotations

from typing import Any

from kqueue.api import names
from tests.sim.gang_forms import FORMS
from tests.sim.kinds_plan import KindsDraft
from tests.sim.plan import COMMON, Actions, Draft, End, Plan

SHAPES = ((0, 1, 1, 1), (0, 4, 4), (1, 2, 2), (0, 0, 2, 2), (1, 1, 4, 4, 4))
"""GPUs of each member of usual jobs: a launcher with its workers, and parameter servers with theirs."""


_MADE_BY_USERS = tuple(form for form in FORMS if form != "batch")
"""Forms whose members users create, so that some may be missing or differ."""
PHASES = ("", "Pending", "Running", "Unknown", "Failed", "PreScheduling")
"""Words that another controller writes into the status of a group object."""


class GangDraft(KindsDraft):
    """A plan for a world of gangs."""

    def gang(self, end: End = End.COMPLETE, *, beyond: int = 0, **how: Any) -> None:
        """Append a gang whose quorum is at most its size, or so many members `beyond` it."""
        c, gpus = self.chance, self.chance.choice((1, 2, 4))
        topology, most = self._placed(gpus)
        count = c.randint(2, min(most - beyond, 6))
        self._gang(end, (gpus,) * count, c.randint(1, count) if not beyond else count + beyond, topology, **how)

    def shaped_gang(self) -> None:
        """Append a gang of several roles, all of which start together."""
        roles = self.chance.choice(SHAPES)
        topology, _ = self._placed(max(roles) * 2)
        self._gang(End.COMPLETE, roles, len(roles), topology)

    def wide_gang(self) -> None:
        """Append a gang with more members beyond its quorum than may wait at a time."""
        body = {"queue": "solo", "priority": "", "topology": None, "run_seconds": self.chance.choice((1, 3))}
        roles = (8,) * self.chance.randint(20, 24)
        self._made("submit_gang", "gang", End.COMPLETE, roles=roles, quorum=2, ranked=False, body=body, **self._form())

    def _gang(
        self, end: End, roles: tuple[int, ...], quorum: int, topology: tuple[str, str] | None, **how: Any
    ) -> None:
        c = self.chance
        body = {**self._common(), "topology": topology, "run_seconds": c.choice((1, 3, 10, 30))}
        form = (
            {"form": "labels"}
            if "refused" in how
            else self._form(*_MADE_BY_USERS if how or quorum > len(roles) else ())
        )
        settings = {"roles": roles, "quorum": quorum, "ranked": c.random() < 0.3, "body": body, **form, **how}
        self._made("submit_gang", "gang", end, **settings)

    def _form(self, *among: str) -> dict[str, Any]:
        """Draw the form of a gang, and whether its group object comes after its pods."""
        form = self.chance.choice(among or tuple(FORMS))
        return {"form": form, "late": form not in ("labels", "batch") and self.chance.random() < 0.3}

    def endless_gang(self) -> None:
        """Append a gang that runs until its end is repaired away: others, and its own further members, wait."""
        body = {**self._common(), "topology": None, "run_seconds": 1_000_000}
        roles = (8,) * self.chance.randint(4, 8)
        self._made(
            "submit_gang", "endless-gang", End.GONE, roles=roles, quorum=2, ranked=False, body=body, **self._form()
        )

    def short_gang(self) -> None:
        self.gang(End.WAITING, beyond=self.chance.randint(1, 2))

    def odd_gang(self) -> None:
        """Append a gang whose last member has another queue: it waits until that is corrected."""
        self.gang(End.WAITING, odd={names.QUEUE_NAME_LABEL: "plain"})

    def mixed_gang(self) -> None:
        """Append a gang whose last member differs in what only the oldest member decides."""
        odd = self.chance.choice(({names.PRIORITY_CLASS_LABEL: "high"}, {names.PRIORITY_CLASS_LABEL: "low"}))
        self.gang(odd=odd)

    def refused_gang(self) -> None:
        """Append a gang with a member that the webhook refuses; its user then creates a correct one."""
        self.gang(refused=self.chance.choice(("two", "0", "-1", "", "10001")))

    def on_a_gang(self, action: str, **arguments: Any) -> None:
        """Append an action on a gang that is to complete, or that runs without end."""
        found = [n for n, end in self.plan.ends.items() if n.startswith("gang") and end is End.COMPLETE]
        found += [n for n in self.plan.ends if n.startswith("endless-gang")]
        if found:
            self.add(action, name=self.chance.choice(found[-6:]), **arguments)

    def on_a_member(self, action: str) -> None:
        """Append an action on a member of such a gang."""
        self.on_a_gang(action, number=self.chance.randrange(6))

    def lose_member_and_rest(self) -> None:
        """Append the loss of a member of a gang whose further members may wait; its user does not create it again."""
        name = self._one_of("endless-gang")
        if name is not None:
            self.add("lose_member", name=name, number=self.chance.randrange(2))
            self.add("rest")

    def mend_gang(self) -> None:
        """Append the correction of a gang that waits: missing members are created, contradicting ones replaced."""
        name = self._one_of("gang", ends=(End.WAITING,))
        if name is not None:
            self.plan.ends[name] = End.COMPLETE
            self.add("mend_gang", name=name)


_GANGS: Actions = (
    (Draft.good_job, 8),
    (Draft.endless_job, 2),
    (KindsDraft.single_pod, 6),
    (KindsDraft.group, 4),
    (GangDraft.gang, 20),
    (GangDraft.shaped_gang, 6),
    (GangDraft.wide_gang, 2),
    (GangDraft.endless_gang, 4),
    (GangDraft.short_gang, 4),
    (GangDraft.odd_gang, 2),
    (GangDraft.mixed_gang, 2),
    (GangDraft.refused_gang, 2),
    (GangDraft.mend_gang, 5),
    (lambda d: d.on_a_member("lose_member"), 5),
    (lambda d: d.on_a_member("fail_member"), 5),
    (lambda d: d.on_a_gang("add_excess"), 6),
    (lambda d: d.on_a_gang("take_gate"), 2),
    (lambda d: d.on_a_gang("deactivate"), 2),
    (lambda d: d.on_a_gang("write_status", phase=d.chance.choice(PHASES), times=d.chance.choice((1, 1, 1, 5))), 4),
    (lambda d: d.on_a_gang("renew_object", at_once=d.chance.random() < 0.5), 3),
    (lambda d: d.on_a_gang("change_quorum", share=d.chance.random()), 3),
    (lambda d: d.on_a_gang("suspend_batch", suspend=d.chance.random() < 0.5), 3),
    (lambda d: d.add("give_back_pods"), 8),
    (Draft.hold, 3),
    (lambda d: d.add("resume"), 4),
    (Draft.quota, 3),
    (Draft.stranger, 2),
    (lambda d: d.add("remove_strangers"), 2),
    (GangDraft.lose_member_and_rest, 4),
    (lambda d: d.add("rest"), 3),
    *COMMON,
)


def draw_gangs(seed: int | str, *, steps: int = 60) -> Plan:
    """Return the plan of a seed."""
    return GangDraft(f"{seed}/gangs").draw(steps, _GANGS)
