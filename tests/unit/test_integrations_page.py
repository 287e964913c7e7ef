"""docs/integrations.md says what the tests prove; marks are read from the source of tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kqueue.kinds import FRAMEWORKS
from tools.integrations import BEGIN, END, PAGE, WITHOUT, Proof, matrix, page, proofs
from tools.marks import MarkError


def test_the_page_is_what_the_tests_prove() -> None:
    """`make integrations` would write nothing."""
    text = PAGE.read_text()

    assert text == page(text, matrix(proofs())), "run `make integrations`"


def test_each_kind_that_is_built_in_has_a_row_that_says_how_it_is_held() -> None:
    """In the table above the matrix, by its name in the configuration, in the order of the catalogue."""
    names = re.findall(r"^\|[^|]+\| `([^`]+)` \|", PAGE.read_text().partition(BEGIN)[0], re.MULTILINE)

    assert names == list(FRAMEWORKS)


def test_what_a_kind_cannot_have_is_proven_by_nobody() -> None:
    """Then the table of what kinds cannot have is out of date."""
    assert [proof for proof in proofs() if proof.kind in WITHOUT.get(proof.feature, ())] == []


def written(folder: Path, text: str, room: str = "integration") -> list[Proof]:
    (folder / room).mkdir(parents=True, exist_ok=True)
    (folder / room / "test_x.py").write_text(text)
    return proofs(folder)


QUEUED = '@pytest.mark.proves("Job", "queueing")\n'


@pytest.mark.parametrize(
    ("room", "text", "planes"),
    [
        pytest.param("integration", QUEUED + "async def test_a(either_plane): ...", ("real", "sandbox"), id="both planes"),
        pytest.param("integration", QUEUED + "def test_a(plane): ...", ("real",), id="the real one"),
        pytest.param("integration", QUEUED + "def test_a(): ...", ("sandbox",), id="a sandbox of its own"),
        pytest.param(
            "integration", "def world(either_plane): ...\n" + QUEUED + "def test_a(world): ...", ("real", "sandbox"),
            id="through a fixture",
        ),
        pytest.param("sim", QUEUED + "def test_a(plane): ...", ("simulation",), id="the simulation"),
        pytest.param("unit", QUEUED + "def test_a(x): ...", ("unit",), id="a unit test"),
    ],
)  # fmt: skip
def test_where_a_test_runs_is_read_from_its_fixtures(
    tmp_path: Path, room: str, text: str, planes: tuple[str, ...]
) -> None:
    assert written(tmp_path, text, room) == [Proof("Job", "queueing", f"{room}/test_x.py::test_a", planes)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('pytestmark = [pytest.mark.proves("Job", "queueing")]\ndef test_a(): ...', id="of a module"),
        pytest.param(
            'T = (pytest.param(1, marks=pytest.mark.proves("Job", "queueing")),)\n'
            '@pytest.mark.parametrize("a", T)\ndef test_a(a): ...', id="of a table elsewhere",
        ),
        pytest.param(
            '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.proves("Job", "queueing"))])\n'
            "def test_a(a): ...", id="of a parameter",
        ),
        pytest.param(QUEUED + QUEUED + "def test_a(): ...", id="twice is once"),
    ],
)  # fmt: skip
def test_marks_are_found_wherever_they_stand(tmp_path: Path, text: str) -> None:
    """And never on what is no test."""
    found = written(tmp_path, text + "\ndef helper(): ...")

    assert [(proof.kind, proof.feature, proof.test) for proof in found] == [
        ("Job", "queueing", "integration/test_x.py::test_a")
    ]


@pytest.mark.parametrize("cell", ['"Jobs", "queueing"', '"Job", "queuing"', '"Job"', 'KIND, "queueing"'])
def test_a_mark_that_names_no_cell_is_refused(tmp_path: Path, cell: str) -> None:
    with pytest.raises(MarkError, match=r"test_x.py:1: .* is no cell"):
        written(tmp_path, f"@pytest.mark.proves({cell})\ndef test_a(): ...")


def test_cells_name_their_planes() -> None:
    """A cell shows where it is proven; one that cannot be is struck out, one that nobody proves stays empty."""
    text = matrix([Proof("Job", "queueing", "a::b", ("real", "sandbox")), Proof("Job", "queueing", "c::d", ("unit",))])
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}

    assert rows["queueing"].startswith("| queueing | RSu |  |")
    assert rows["fast admission"].startswith("| fast admission | n/a | n/a | n/a |  |")
    assert "- queueing: `a::b` (real and sandbox)" in text


def test_only_what_is_between_the_marks_is_written() -> None:
    assert page(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
    with pytest.raises(MarkError, match="lacks the line"):
        page("nothing", "new")
