"""docs/reference says what the product is made of."""

from __future__ import annotations

import pytest

from tools.reference import FOLDER, PAGES, page_text


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_make_reference_writes(name: str) -> None:
    assert (FOLDER / name).read_text() == page_text(name), "run `make reference`"


@pytest.mark.parametrize("name", PAGES)
def test_every_row_says_what_it_means(name: str) -> None:
    """A field, name or option without a word is one that its reader has to guess."""
    silent = [line for line in page_text(name).splitlines() if line.startswith("|") and line.endswith("|  |")]

    assert silent == []
