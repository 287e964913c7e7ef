"""How long a cycle is in each of its phases."""

from __future__ import annotations

from kqueue.core.decision import Phase
from kqueue.scheduling.stopwatch import Stopwatch


def test_each_phase_gets_the_time_that_is_spent_in_it() -> None:
    """Also when it is entered again; what passes while the cycle is interrupted is nobody's."""
    now = 0.0
    watch = Stopwatch(lambda: now, Phase.SNAPSHOT)
    steps: list[tuple[float, Phase | None]] = [
        (1, Phase.NOMINATE), (2, Phase.PROCESS), (4, Phase.APPLY), (8, None), (16, Phase.PROCESS), (32, Phase.APPLY),
    ]  # fmt: skip
    for seconds, phase in steps:
        now += seconds
        if phase is None:
            watch.stop()
            now += 1000
            watch.go_on()
        else:
            watch.enter(phase)
    now += 64
    watch.stop()

    assert watch.seconds == {
        Phase.SNAPSHOT: 1, Phase.NOMINATE: 2, Phase.ORDER: 0, Phase.PROCESS: 4 + 32, Phase.APPLY: 8 + 16 + 64,
    }  # fmt: skip
