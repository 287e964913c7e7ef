"""docs/lifecycle.md names conditions, reasons and events as the code does, and leaves out none that ends up in a status."""

from __future__ import annotations

import re
from pathlib import Path

from kqueue.api import backfill_names, names

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "lifecycle.md").read_text()
VALUES = {
    value
    for module in (names, backfill_names)
    for key, value in vars(module).items()
    if key.isupper() and isinstance(value, str)
}
OTHERS = {"Pending", "HoldAndDrain", "EvictedDueTo"}
"""States of checks, and the beginning of a name."""


def test_no_name_is_invented() -> None:
    """Every word in code font that looks like a condition or a reason is one."""
    words = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)(?:\.\.\.)?`", PAGE))

    assert len(words) > 30
    assert words - VALUES - OTHERS == set()


def test_every_reason_to_wait_and_to_leave_is_explained() -> None:
    """Those that the code writes: what only other systems' features write is not here."""
    code = "\n".join(
        path.read_text()
        for path in (ROOT / "kqueue").rglob("*.py")
        if path.name != "names.py" and "sandbox" not in path.parts
    )
    source = (ROOT / "kqueue" / "api" / "names.py").read_text()
    sections = source.partition("# QuotaReserved\n")[2].partition("# Preempted\n")[0].replace("# PodsReady\n", "")
    named = re.findall(r'^(REASON_\w+): Final = "(\w+)"', sections, re.MULTILINE)
    catch_alls = {
        "Pending",
        "Inadmissible",
        "Waiting",
        "QuotaReserved",
    }  # while detailed reasons are off; no reason to wait
    missing = [
        value
        for constant, value in named
        if re.search(rf"names\.{constant}\b", code) and value not in catch_alls and f"`{value}`" not in PAGE
    ]

    assert len(named) > 30
    assert set(missing) - {"NoReservation", "Started", "Recovered", "WaitForStart", "WaitForRecovery"} == set()
