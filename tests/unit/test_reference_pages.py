"""docs/reference says what the product is made of."""

from __future__ import annotations

import re

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


def test_the_page_of_labels_has_every_name() -> None:
    """Also those of modules that have no sections."""
    text, folder = (FOLDER / "labels.md").read_text(), FOLDER.parents[1] / "kqueue" / "api"
    names = {
        name
        for path in folder.glob("*names.py")
        for name in re.findall(r'"(kqueue\.dev/[^"]+)"\n"""', path.read_text())
    }
    assert names
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
