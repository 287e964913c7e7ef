"""The grammar of quantities, their exact value, and their canonical text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kqueue.kube.quantity import BINARY_SUFFIXES, DECIMAL_SUFFIXES, LONGEST_TEXT, Quantity, canonical, parse

TEXTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**20),
    st.sampled_from(["", ".", ".5", ".000000001", ".9999999999"]),
    st.sampled_from([*DECIMAL_SUFFIXES, *BINARY_SUFFIXES, "e3", "E-7", "e+12"]),
)


def quantity(text: str) -> Quantity:
    found = parse(text)
    assert found is not None, text
    return found


def value(text: str) -> Fraction:
    found = quantity(text)
    return found.number * Fraction(10) ** found.exponent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", Fraction(2)), ("+.5", Fraction(1, 2)), ("5.", Fraction(5)), ("-1.5Ki", Fraction(-1536)), ("1m", Fraction(1, 1000)),
        ("1n", Fraction(1, 10**9)), ("0.1Ki", Fraction(1024, 10)), ("1E", Fraction(10**18)), ("1E3", Fraction(1000)),
        ("12e-2", Fraction(12, 100)), ("3Ei", Fraction(3 << 60)),
    ],
)  # fmt: skip
def test_the_value_is_exact(text: str, expected: Fraction) -> None:
    """Nothing is rounded at reading."""
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ".", "+", "x", "1x", "1 Gi", " 1", "--1", "1e", "1ki", "1K", "1mi", "1e1.5", "0x1", "\u0661", "1" * (LONGEST_TEXT + 1)],
)  # fmt: skip
def test_other_texts_are_no_quantities(text: str) -> None:
    """Neither near misses nor texts that are too long."""
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "places", "expected"),
    [
        ("1.0001", 3, 1001), ("-1.5", 0, -2), ("1.5", 0, 2), ("0.1Ki", 0, 103), ("2", 3, 2000), ("0", 9, 0), ("1e-30", 9, 1),
        ("-1e-30", 9, -1),
    ],
)  # fmt: skip
def test_rounding_goes_away_from_zero(text: str, places: int, expected: int) -> None:
    """To whole units of the given decimal place."""
    assert quantity(text).rounded(places) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("0.5Gi", "512Mi"), ("1023", "1023"), ("512Ki", "512Ki"), ("0.5Ki", "512"),
        ("1024.5Ki", "1049088"), ("0.0001Ki", "102400u"), ("2000m", "2"), ("-2000m", "-2"), ("-1024Mi", "-1Gi"),
        ("1000e3", "1e6"), ("1e3", "1e3"), ("5e0", "5"), ("0Gi", "0"), ("0.0000000001", "1n"), ("1000000E", "1000000E"),
    ],
)  # fmt: skip
def test_the_canonical_text_has_the_largest_suffix_of_its_family(text: str, expected: str) -> None:
    """As the API server writes amounts back."""
    assert canonical(quantity(text)) == expected


@given(TEXTS)
@example("187.5Ki")
def test_the_canonical_text_is_the_same_amount_and_stays(text: str) -> None:
    """To a billionth.  A binary amount written without a suffix is read as a decimal one: 187.5Ki, 192000, 192k."""
    written = canonical(quantity(text))
    again = canonical(quantity(written))

    assert quantity(written).rounded(9) == quantity(text).rounded(9)
    assert again == written or (
        "i" in text and written.isdigit() and quantity(again).rounded(9) == int(written) * 10**9
    )
    assert canonical(quantity(again)) == again
