"""The seam of placement: algorithms by name, our own and those of other packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kqueue.api import names
from kqueue.core.topology import HOSTNAME, Algorithm, Misfit, MisfitCode, Placement, Profile, place
from kqueue.core.topology.optimal import Arrangement
from kqueue.core.topology.placers import PLACERS, FoundPlacement, Question, register
from kqueue.errors import ConfigError
from kqueue.jobs import profiles
from kqueue.manager.extensions import PLACERS_GROUP, allow_profiles, load_profiles
from kqueue.placing.contract import ContractError, check_placer
from tests.unit.core.topology_cases import RACK, hosts, make_pod_set, racks
from tests.unit.toys import toy_placer


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten."""
    before, known = dict(PLACERS), dict(profiles._known)
    yield
    PLACERS.clear()
    PLACERS.update(before)
    profiles._known.clear()
    profiles._known.update(known)


@pytest.mark.parametrize("name", sorted(Algorithm))
def test_our_placers_keep_the_contract(name: str) -> None:
    """What is asked of others holds for ours."""
    check_placer(PLACERS[name], seeds=range(150))


def test_a_placer_of_one_file_is_chosen_by_its_name() -> None:
    """One line registers it; it serves constrained requests."""
    register("Toy", toy_placer.place)
    capacity = racks({"a": 2, "b": 2}, {"c": 2})

    found = place(capacity, [make_pod_set(2, preferred=HOSTNAME)], profile=Profile(constrained="Toy"))
    usual = place(capacity, [make_pod_set(2, preferred=HOSTNAME)])

    assert (hosts(found), hosts(usual)) == ({"c": 2}, {"a": 2})
    check_placer(toy_placer.place, seeds=range(150))


def test_two_placers_of_one_name_are_an_error() -> None:
    """Neither ours nor another one is replaced unseen."""
    with pytest.raises(ValueError, match="registered already"):
        register("optimal", toy_placer.place)
    with pytest.raises(ValueError, match="needs a name"):
        register("", toy_placer.place)


def broken(leaves: list[int], pods: list[int]) -> Any:
    """A placer that always has the same answer."""
    return lambda _question: FoundPlacement(Arrangement(leaves, pods))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(([0], [3]), "3 pods are placed, 2 are to be", id="too many pods"),
        pytest.param(([0, 1], [1, 1]), "2 domains of level rack are used", id="two racks"),
        pytest.param(([1], [2]), "leaf 1 has room for 1 pods and got 2", id="no room"),
        pytest.param(([7], [2]), "leaves are numbered from 0 to 1", id="no such leaf"),
        pytest.param(([0, 0], [1, 1]), "each once", id="a leaf twice"),
        pytest.param(([0], [1, 1]), "a number of pods for each", id="two numbers for a leaf"),
    ],
)
def test_a_wrong_answer_of_a_package_places_nothing(answer: Any, said: str) -> None:
    """It is a misfit that names the placer, so nothing is charged and nothing overcommitted."""
    register("Broken", broken(*answer))

    found = place(racks({"a": 2}, {"b": 1}), [make_pod_set(2, required=RACK)], profile=Profile(constrained="Broken"))

    assert isinstance(found, Misfit)
    assert found.code is MisfitCode.INTERNAL_INCONSISTENCY
    assert found.detail.startswith("placer Broken gave a placement that cannot be: ")
    assert said in found.detail


def test_a_placer_may_say_that_there_is_no_room() -> None:
    """Its misfit gets the facts that ours have."""
    register("Never", lambda question: toy_placer.no_room(question))

    found = place(racks({"a": 4}), [make_pod_set(2, required=RACK)], profile=Profile(constrained="Never"))

    assert isinstance(found, Misfit)
    assert (found.code, found.level, found.best_domain) == (MisfitCode.NO_FIT, RACK, ("b1", "r1"))


def finds_nothing(question: Question) -> FoundPlacement | Misfit:
    return toy_placer.no_room(question)


def changes_counts(question: Question) -> FoundPlacement | Misfit:
    question.counts.pods[-1][0] = 0
    return toy_placer.place(question)


def alternates() -> Any:
    turns = iter(range(10_000))
    return lambda question: toy_placer.no_room(question) if next(turns) % 2 else toy_placer.place(question)


@pytest.mark.parametrize(
    ("placer", "said"),
    [
        pytest.param(finds_nothing, "there is room", id="finds nothing"),
        pytest.param(changes_counts, "changed the counts", id="changes what it is given"),
        pytest.param(alternates(), "two answers", id="two answers"),
        pytest.param(broken([], []), "leaves are numbered", id="a leader nowhere"),
    ],
)
def test_the_contract_finds_what_is_wrong(placer: Any, said: str) -> None:
    """The message names the seed."""
    with pytest.raises(ContractError, match=f"seed .*{said}|seed .*there is no room"):
        check_placer(placer)


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, PLACERS_GROUP)


def test_packages_bring_placers() -> None:
    """Loaded by their entry points; jobs may name them from then on."""
    assert load_profiles([entry("Toy", "tests.unit.toys.toy_placer:place")]) == ["Toy"]

    assert PLACERS["Toy"] is toy_placer.place
    assert profiles.known() == (*names.PLACEMENT_PROFILES, "Toy")


def test_webhooks_know_names_without_loading_anything() -> None:
    """A package that cannot be imported there is no problem there."""
    allow_profiles([entry("Toy", "no.such.module:place")])

    assert profiles.known()[-1] == "Toy"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param("Toy", "no.such.module:place", "ModuleNotFoundError", id="no module"),
        pytest.param("Toy", "tests.unit.toys.toy_placer:NAME", "is no function", id="no function"),
        pytest.param("optimal", "tests.unit.toys.toy_placer:place", "registered already", id="a name of ours"),
    ],
)
def test_a_package_that_cannot_be_used_stops_the_start(name: str, value: str, said: str) -> None:
    """The error names the entry and what to do."""
    with pytest.raises(ConfigError, match=f"placer {name} of .*{said}.*; correct or uninstall"):
        load_profiles([entry(name, value)])


def test_a_placement_counts_with_the_name_of_its_placer() -> None:
    """Metrics tell algorithms apart."""
    register("Toy", toy_placer.place)

    found = place(racks({"a": 2}), [make_pod_set(2, preferred=RACK)], profile=Profile(constrained="Toy"), measure=True)

    assert isinstance(found, Placement)
    assert found.pod_sets[0].quality


def test_the_placer_of_the_page_keeps_the_contract() -> None:
    """What the page shows can be copied."""
    page = (Path(__file__).parents[3] / "docs/how-to/write-a-placer.md").read_text()
    found = re.search(r"<!-- placer: run by a test -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    module: dict[str, Any] = {}
    exec(found[1], module)

    check_placer(module["last_host"], seeds=range(150))
