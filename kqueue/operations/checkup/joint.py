"""The check of joint placement: whether it is on, has its solver, and works."""

from __future__ import annotations

from typing import Any

from kqueue.errors import ForbiddenError, NotFoundError, NotServedError
from kqueue.operations.checkup.values import CheckVerdict, ok, skipped, warning
from kqueue.operations.questions import ask, path
from kqueue.runtime.client import Client

JSON = dict[str, Any]
_ROUNDS = path("visibility.kqueue.dev", "v1alpha1", "jointrounds")


class JointPlacementCheck:
    """Asks the controller for its rounds."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def joint(self) -> CheckVerdict:
        """Whether joint placement works where it is on."""
        try:
            return verdict_of(await ask(self._client, _ROUNDS))
        except (ForbiddenError, NotFoundError, NotServedError) as e:
            return skipped(f"rounds of joint placement cannot be read: {e}")


def verdict_of(rounds: JSON) -> CheckVerdict:
    """Return the verdict for a list of rounds, the newest first."""
    if not rounds.get("enabled"):
        return ok("joint placement is off (feature gate JointPlacement)")
    last: JSON = next(iter(rounds.get("items") or ()), {})
    problem = (f"round {last['number']}: {last['problem']}",) if last.get("problem") else ()
    if rounds.get("paused"):
        log = "look for 'a joint round has no plan' in the log of the controller; rounds begin again by themselves"
        return warning("joint placement rests, because rounds failed: workloads are tried one by one", log, *problem)
    if "solver" not in rounds:
        remedy = "install the extra kqueue[flow] where the controller runs"
        return warning("joint placement plans without bounds, because OR-tools is missing", remedy, *problem)
    unread = tuple((rounds.get("statistics") or {}).get("problems") or ())
    if unread:
        told = "policies look at measured use, which cannot be read: reservations count instead"
        return warning(told, *unread, *problem)
    if problem:
        return warning("the last round of joint placement has failed", "look into the log of the controller", *problem)
    return ok(f"joint placement is on, with {rounds['solver']}")
