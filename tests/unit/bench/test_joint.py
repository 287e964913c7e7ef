"""The rows of joint placement, and the page that has their figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kqueue.core.joint.batch import ranked
from kqueue.core.joint.classes import ClassInput, classes_of
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from tests.bench._joint_worlds import GPU, Load, round_input
from tests.bench.joint import ROWS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "joint-placement.md"


@pytest.mark.mechanism("2.31")
def test_the_page_has_the_curve_of_classes_and_pods() -> None:
    """One line for each number of classes that is measured, with few and with many pods."""
    of_page = [
        line.split("|")[1].strip().replace(",", "") for line in PAGE.read_text().splitlines() if line.endswith(" ms |")
    ]
    measured = {row.name.rpartition("_")[2] for row in ROWS if re.match(r"joint/(classes|many_pods)_", row.name)}
    assert measured == {text for text in of_page if text.isdigit()}


@pytest.mark.parametrize(("shapes", "merged"), [(1, True), (0, False)])
def test_gangs_that_all_differ_are_classes_of_their_own(shapes: int, merged: bool) -> None:
    load = Load(racks=4, gangs=20, demand=9.0, smallest=2, largest=400, shapes=shapes)
    given = round_input(1, load, None)
    heads = given.batch.queues["team"]
    inputs = [
        ClassInput(ranked=one, requests=[p.request for p in one.head.pod_sets], quota={"main": 8})
        for one in ranked(heads, JointOrder.STRICT, {})
    ]
    levels = given.state.snapshot.topologies["gpu"].tree.levels
    found = classes_of(inputs, levels, Unit(GPU, 1), JointOrder.STRICT)
    assert len(heads) > 1
    assert len(found) == (1 if merged else len(heads))
