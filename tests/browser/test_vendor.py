"""The libraries of the page are those of their packages."""

from __future__ import annotations

import pytest

from tools import vendor

pytestmark = pytest.mark.browser


def test_checked_in_files_have_the_bytes_of_their_packages() -> None:
    """The packages were checked by digest when `make browser` fetched them.  A change by hand is found here."""
    wanted, found = vendor.wanted(), vendor.found()

    assert sorted(found) == sorted(wanted)
    assert [name for name, content in found.items() if content != wanted[name]] == []
    assert [library.folder for library in vendor.LIBRARIES if f"{library.folder}/LICENSE" not in found] == []
