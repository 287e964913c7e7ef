"""`kqueue place --explain`: what fits where, what was chosen, and where a search ended, for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kqueue.cli import app
from kqueue.placing.run import run
from tests.unit.cli.place_documents import HOST, JSON, make_document, make_host, make_pods


def explain(document: JSON) -> str:
    """The account of a document."""
    return run(json.dumps(document).encode(), explain=True).explanation


def test_a_placement_is_drawn_into_its_topology() -> None:
    """Per domain what fits and what is free before the group is placed, and what it got."""
    document = make_document(
        make_host("b1/r1/h1", cpu=6),
        make_host("b1/r1/h2", cpu=4),
        make_host("b1/r2/h3", cpu="1500m", taints=[{"key": "k", "effect": "NoSchedule"}]),
        make_host("b1/r2/h4", unschedulable=True),
        name="ring",
        pods=[
            make_pods(1, "leader", cpu=2, groupName="g", required="rack"),
            make_pods(6, "workers", groupName="g", required="rack"),
            make_pods(0, "none"),
        ],
    )
    assert (
        explain(document)
        == f"""\
ring: placed
topology default: 1 x block, 2 x rack, 3 x {HOST}
nodes: 4, of which 3 leaves; left out: 1 unschedulable

group g: leader: 1 pod of cpu 2 + workers: 6 pods of cpu 1 (required rack)
  placed in b1/r1 (level rack), on 2 domains of level {HOST}
  before it was placed (pods of workers that fit; free in total; + leader: it can sit here):
    b1: 10 pods, free cpu 11500m, + leader
      r1: 10 pods, free cpu 10, + leader
        h1: 6 pods, free cpu 6, + leader   <- leader 1, workers 4
        h2: 4 pods, free cpu 4, + leader   <- workers 2
      r2: 0 pods, free cpu 1500m
        h3: 0 pods, free cpu 1500m

skipped, nothing to place: none
"""
    )


def test_a_failure_names_the_level_where_the_search_ended() -> None:
    """With the sentence that a waiting workload would carry, the best domain, and what was not looked at."""
    pods = [make_pods(18, required="rack", slices=[(HOST, 2)]), make_pods(1, "late")]
    text = explain(make_document(pods=pods))
    assert "failed, NoFit: 9 slices do not fit in one domain of level rack (topology default, flavor default)" in text
    assert "\n  the search ended at level rack\n" in text
    assert "\n      r1: 16 pods, 8 slices of 2, free cpu 16   <- came closest\n" in text
    assert text.endswith("\n\nnot evaluated after the failure: late\n")


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        pytest.param(
            make_pods(1, required="row"), "failed, LevelNotFound: flavor default, topology default: the topology has no level 'row'",
            id="an unknown level",
        ),
        pytest.param(
            make_pods(1, updates=[{"labels": {"a": "1"}}, {"labels": {"a": "2"}}]), "failed: the updates give label a two",
            id="updates that contradict each other",
        ),
        pytest.param(
            make_pods(20, preferred="rack"),
            f"placed in b1 (level block), on 3 domains of level {HOST}; that is wider than the preferred level rack",
            id="a preferred level that could not be had",
        ),
    ],
)  # fmt: skip
def test_what_happened_is_one_line(pods: JSON, said: str) -> None:
    """Requests that no search was made for have no picture."""
    text = explain(make_document(pods=[pods]))
    assert f"\n  {said}" in text
    assert ("before it was placed" in text) is said.startswith("placed")


def test_what_is_spread_over_the_widest_level_says_so() -> None:
    """There is no domain around it."""
    text = explain(make_document("b1/r1/h1", "b2/r1/h2", pods=[make_pods(9)]))
    assert f"\n  placed, spread over 2 domains of level block, on 2 domains of level {HOST}\n" in text


def test_a_replacement_draws_the_missing_pods() -> None:
    """Not those that stay."""
    held = {"levels": [HOST], "domains": [{"values": ["h1"], "count": 2}, {"values": ["h2"], "count": 1}]}
    pods = make_pods(3, required="rack", assignment=held, slices=[("rack", 3)])
    document = make_document(make_host("b1/r1/h1", ready=False), "b1/r1/h2", pods=[pods])
    text = explain({**document, "workload": {"unhealthyNodes": ["h1"]}})
    assert "\nmain: 2 pods of cpu 1 (required rack, slices of 3 per rack)\n" in text
    assert "\n        h2: 8 pods, free cpu 8   <- main 2\n" in text


def test_large_trees_are_shown_in_part() -> None:
    """Only branches where something happened are opened; of many children the chosen and the roomiest are shown."""
    hosts = [make_host(f"b{i // 100}/r{i // 20}/h{i:03}", cpu=8 if i != 399 else 9) for i in range(400)]
    text = explain(make_document(*hosts, pods=[make_pods(15, required="rack"), make_pods(90, "b", required="rack")]))
    assert "\n        h000: 8 pods, free cpu 8   <- main 8\n" in text
    assert "\n        and 12 more, with room for at most 8 each\n" in text
    assert "\n        and 12 more, 4 of them chosen, with room for at most 8 each\n" in text
    assert "\n    b3: 801 pods, free cpu 801\n" in text
    assert "h399" not in text
    assert len(text.splitlines()) < 60


def test_thousands_of_domains_do_not_flood_the_screen() -> None:
    """There is a last line."""
    hosts = [make_host(f"b{i // 90}/r{i // 9}/h{i:03}", cpu=1) for i in range(810)]
    text = explain(make_document(*hosts, pods=[make_pods(810, preferred="rack")]))
    assert 200 < len(text.splitlines()) < 300


def test_names_do_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters and what turns text around are written as escapes; lines stay lines."""
    source = tmp_path / "in.json"
    source.write_text(json.dumps(make_document("b1/r1/h\x1b[2J\u202e", name="\x9b31m")))
    assert app.run(["place", "--input", str(source), "--explain"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("\\x9b31m: placed\n")
    assert "\n        h\\x1b[2J\\u202e: 8 pods" in told
    assert all(line.isprintable() for line in told.splitlines())


def test_problems_of_an_input_are_listed_up_to_a_limit() -> None:
    """All of them are in the JSON answer."""
    text = explain(make_document(name="bad", pods=[make_pods(-1, f"p{i}") for i in range(60)]))
    lines = text.splitlines()
    assert lines[0] == "bad is not valid:"
    assert lines[1] == "  /podSets/0/count: expected a whole number from 0 to 2147483647, found -1"
    assert lines[-1] == "  and 10 more, all of which are in the JSON answer"
    assert run(b"?", explain=True).explanation.splitlines()[1].startswith("  (the whole input): not JSON: ")


def test_the_account_takes_the_place_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON goes where --output says; the exit code stays the same.  Each case has its account."""
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps({"cases": [make_document(name="one"), make_document(name="two"), {"name": "three"}]}))
    assert app.run(["place", "--input", str(source), "--explain"]) == 2
    alone = capsys.readouterr().out
    assert [line for line in alone.splitlines() if line[:3] in ("one", "two", "thr")] == [
        "one: placed",
        "two: placed",
        "three is not valid:",
    ]
    assert app.run(["place", "--input", str(source), "--explain", "--output", str(target)]) == 2
    assert capsys.readouterr().out == alone
    assert [result["name"] for result in json.loads(target.read_text())["results"]] == ["one", "two", "three"]
