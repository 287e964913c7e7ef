"""The start time of a waiting workload in words."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.cli.start_lines import start_sentences

P50, P90 = "2026-05-01T12:05:00Z", "2026-05-01T12:20:00Z"
ASSUMED = {"arrivals": "nothing arrives", "running": {"Promised": 3, "Unknown": 1}}


@pytest.mark.parametrize(
    ("start", "lines"),
    [
        pytest.param({}, [], id="an older controller"),
        pytest.param({"p50": P50, "p90": P90}, [f"between {P50} (p50) and {P90} (p90)"], id="interval"),
        pytest.param({"p50": P50, "p90": P50}, [f"at {P50}"], id="one time"),
        pytest.param(
            {"p50": P50, "message": "it does not start within 168 h"},
            [f"at {P50} at the earliest; with longer run times, it does not start within 168 h"],
            id="no p90",
        ),
        pytest.param({"known": False, "message": "it is held back"}, ["not known: it is held back"], id="no time"),
        pytest.param(
            {
                "p50": P50,
                "p90": P50,
                "domains": [{"domain": ["b0", "r1"], "pods": 4}],
                "moreDomains": 2,
                "after": {"workloads": ["ns/a"], "others": 1},
                "unknown": {"workloads": [], "others": 2},
                "leftOut": ["AdmissionChecks", "PodsReady"],
                "assumptions": ASSUMED,
            },
            [
                f"at {P50}",
                "in b0/r1 and 2 more",
                "after the end of ns/a, 1 other",
                "without known run time: 2 others",
                "without the time that admission checks of the ClusterQueue take and pods of workloads before it take to "
                "become ready (waitForPodsReady.blockAdmission)",
                "if nothing arrives; run times of running workloads: 3 promised, 1 unknown",
            ],
            id="all facts",
        ),
    ],
)
def test_a_start_time_in_words(start: dict[str, Any], lines: list[str]) -> None:
    """Times, domains, what must end first, and what is assumed."""
    assert list(start_sentences(start)) == lines
