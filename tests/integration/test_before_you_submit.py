"""docs/how-to/before-you-submit.md, command by command, as its reader runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_tutorial import Reader, follow, steps

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "before-you-submit.md"


@pytest.mark.controlplane
@pytest.mark.slow
@pytest.mark.seldom
async def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    """Each command does what the page shows under it."""
    reader = Reader(tmp_path)
    await follow(reader, PAGE)

    assert [process.returncode for process in reader.others] == [0, 0], reader.logs()


def test_the_page_has_steps() -> None:
    """Or the test above would be empty."""
    found = list(steps(PAGE.read_text()))

    assert len(found) > 8
    assert [step.note for step in found if step.note] == ["second terminal", "third terminal"]
