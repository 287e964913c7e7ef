"""Tests are dealt so that no worker begins a long one when the others have none left."""

from __future__ import annotations

import pytest

from tests.dealing import dealt

Test = tuple[str, int]
"""File and number; files of long tests have capital letters."""


def made(**files: int) -> list[Test]:
    return [(file, number) for file, count in files.items() for number in range(count)]


def deal(tests: list[Test], workers: int) -> list[Test]:
    return dealt(tests, workers, is_long=lambda test: test[0].isupper(), file=lambda test: test[0])


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "tests",
    [
        pytest.param(made(), id="none"),
        pytest.param(made(a=7, b=5), id="short"),
        pytest.param(made(A=7, B=5), id="long"),
        pytest.param(made(A=1, a=50, B=9, b=31, C=3, D=1), id="both"),
        pytest.param(made(a=2, A=90), id="one-file-is-larger-than-a-share"),
    ],
)
def test_every_test_is_dealt_once_and_files_keep_their_order(tests: list[Test], workers: int) -> None:
    order = deal(tests, workers)
    assert sorted(order) == sorted(tests)
    for file in {file for file, _ in tests}:
        assert [test for test in order if test[0] == file] == [test for test in tests if test[0] == file]


def test_each_share_has_long_tests_and_ends_with_short_ones() -> None:
    """Four files of long tests for two workers, who get 50 tests each."""
    order = deal(made(A=5, B=5, a=80, C=5, D=5), 2)
    for share in (order[:50], order[50:]):
        assert sum(file.isupper() for file, _ in share) == 10
        assert all(file == "a" for file, _ in share[-16:])
        assert share[0][0] == "a"  # a share that begins a test earlier takes no long one from the next


def test_long_files_are_not_torn() -> None:
    order = [file for file, _ in deal(made(A=9, B=4, C=4, a=99), 3)]
    assert [order.index(file) + order.count(file) for file in "ABC"] == [
        len(order) - order[::-1].index(file) for file in "ABC"
    ]
