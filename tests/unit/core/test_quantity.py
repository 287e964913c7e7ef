"""Quantities: text to integer and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.quantity import (
    INT64_MAX,
    INT64_MIN,
    format_decimal,
    format_quantity,
    parse_billionths,
    parse_quantity,
    saturating_add,
)

RESOURCES = ["cpu", "memory", "pods", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi"]


@pytest.mark.parametrize(
    ("text", "resource", "want"),
    [
        pytest.param("500m", "cpu", 500, id="milli-cpu-is-the-unit-of-cpu"),
        pytest.param("2", "cpu", 2000, id="cores-are-a-thousand-milli"),
        pytest.param(2, "cpu", 2000, id="a-number-means-cores-not-milli"),
        pytest.param("1.5", "cpu", 1500, id="a-fraction-of-a-core"),
        pytest.param("1.0001", "cpu", 1001, id="less-than-a-milli-rounds-up"),
        pytest.param("1n", "cpu", 1, id="a-nano-core-rounds-up-to-a-milli"),
        pytest.param("16Gi", "memory", 16 << 30, id="binary-suffix"),
        pytest.param("16G", "memory", 16 * 10**9, id="decimal-suffix"),
        pytest.param("0.5Ki", "memory", 512, id="fraction-of-a-binary-unit"),
        pytest.param("0.1Ki", "memory", 103, id="102.4-bytes-round-up"),
        pytest.param("1e3", "memory", 1000, id="small-exponent"),
        pytest.param("1E3", "memory", 1000, id="capital-exponent-with-digits"),
        pytest.param("1E", "memory", 10**18, id="capital-e-alone-is-exa"),
        pytest.param("1e-3", "pods", 1, id="negative-exponent-rounds-up"),
        pytest.param("100m", "memory", 1, id="milli-bytes-round-up"),
        pytest.param(".5", "cpu", 500, id="leading-point"),
        pytest.param("5.", "cpu", 5000, id="trailing-point"),
        pytest.param("+3", "pods", 3, id="plus-sign"),
        pytest.param("-1.5", "pods", -2, id="negative-rounds-away-from-zero"),
        pytest.param("0", "memory", 0, id="zero"),
        pytest.param("9223372036854775808", "memory", INT64_MAX, id="above-64-bits-saturates"),
        pytest.param("8Ei", "memory", INT64_MAX, id="8-exbi-is-one-more-than-the-largest"),
        pytest.param("-9Ei", "memory", INT64_MIN, id="below-64-bits-saturates"),
        pytest.param("9223372036854775807", "cpu", INT64_MAX, id="cpu-saturates-in-milli"),
        pytest.param("1e999999999999", "memory", INT64_MAX, id="an-absurd-exponent-saturates-at-once"),
        pytest.param("1e-999999999999", "memory", 1, id="an-absurdly-small-amount-is-one-unit"),
        pytest.param("0e999999999999", "memory", 0, id="zero-times-anything-is-zero"),
        pytest.param(10**30, "memory", INT64_MAX, id="a-huge-number-saturates"),
    ],
)
def test_a_quantity_becomes_the_next_whole_unit(text: str | int, resource: str, want: int) -> None:
    """Quantities turn into integers of the resource's unit, rounded up and held within 64 bits."""
    assert parse_quantity(text, resource) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("1", 10**9, id="one"),
        pytest.param(2, 2 * 10**9, id="a-number"),
        pytest.param("1500m", 1_500_000_000, id="thousandths"),
        pytest.param("2n", 2, id="billionths"),
        pytest.param("0.1n", 1, id="less-than-a-billionth-rounds-up"),
        pytest.param("0", 0, id="zero"),
        pytest.param("10G", INT64_MAX, id="above-64-bits-saturates"),
    ],
)
def test_a_quantity_can_be_read_in_billionths(text: str | int, want: int) -> None:
    """What Kubernetes tells apart stays apart."""
    assert parse_billionths(text) == want


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(" 1", id="space-in-front"),
        pytest.param("1 Gi", id="space-inside"),
        pytest.param("1\n", id="line-end"),
        pytest.param("1gi", id="unknown-suffix"),
        pytest.param("1Kib", id="suffix-with-a-tail"),
        pytest.param("Gi", id="suffix-alone"),
        pytest.param(".", id="point-alone"),
        pytest.param("1e", id="exponent-without-digits"),
        pytest.param("0x10", id="hexadecimal"),
        pytest.param("NaN", id="not-a-number"),
        pytest.param("inf", id="infinity"),
        pytest.param("٣", id="digits-of-another-script"),
        pytest.param("1_000", id="underscore"),
        pytest.param("--1", id="two-signs"),
    ],
)
def test_a_text_that_is_no_quantity_is_quoted_back_with_the_remedy(text: str) -> None:
    """The error names the text and says what to write instead."""
    with pytest.raises(ValueError, match="is not a quantity: write a number") as raised:
        parse_quantity(text, "memory")
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    "value", [pytest.param(True, id="truth-value"), pytest.param(None, id="nothing"), pytest.param(1.5, id="float")]
)
def test_only_texts_and_integers_are_read(value: object) -> None:
    """Other JSON values are refused like bad texts."""
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(value, "cpu")  # type: ignore[arg-type]


def test_a_very_long_text_is_refused_without_being_read() -> None:
    """A crafted text cannot make parsing slow."""
    with pytest.raises(ValueError, match="too long"):
        parse_quantity("9" * 100_000, "cpu")


@pytest.mark.parametrize(
    ("value", "resource", "want"),
    [
        pytest.param(1500, "cpu", "1500m", id="milli-where-cores-would-not-be-whole"),
        pytest.param(2000, "cpu", "2", id="whole-cores"),
        pytest.param(2_000_000, "cpu", "2k", id="thousands-of-cores"),
        pytest.param(16 << 30, "memory", "16Gi", id="binary-for-memory"),
        pytest.param(1536, "memory", "1536", id="no-fraction-of-a-suffix"),
        pytest.param(1000, "memory", "1k", id="below-1024-bytes-decimal"),
        pytest.param(8, "nvidia.com/gpu", "8", id="devices"),
        pytest.param(0, "memory", "0", id="zero"),
    ],
)
def test_an_amount_is_written_in_canonical_text(value: int, resource: str, want: str) -> None:
    """The largest suffix that leaves a whole number is written."""
    assert format_quantity(value, resource) == want


@given(value=st.integers(INT64_MIN // 1000, INT64_MAX // 1000), resource=st.sampled_from(RESOURCES))
def test_writing_and_reading_an_amount_loses_nothing(value: int, resource: str) -> None:
    """parse(format(x)) is x, for every resource."""
    assert parse_quantity(format_quantity(value, resource), resource) == value


@given(whole=st.integers(0, 10**6), milli=st.integers(0, 999))
def test_decimal_texts_mean_the_same_as_milli_texts(whole: int, milli: int) -> None:
    """1.234 cores are 1234m."""
    assert parse_quantity(f"{whole}.{milli:03}", "cpu") == parse_quantity(f"{whole * 1000 + milli}m", "cpu")


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        pytest.param(0.0, "0", id="nothing"),
        pytest.param(0.00344, "3440u", id="a little"),
        pytest.param(4e-7, "0", id="less than a millionth"),
        pytest.param(2.5, "2500m", id="a half"),
        pytest.param(7.0, "7", id="a whole"),
        pytest.param(-2.5, "-2500m", id="below nothing"),
        pytest.param(1234.5678, "1235", id="much, without its fraction"),
        pytest.param(64 * 2.0**30, "68719476736", id="bytes"),
        pytest.param(1e30, "9223372036854775807", id="more than there is"),
        pytest.param(float("inf"), "9223372036854775807", id="endless"),
    ],
)
def test_an_estimate_is_written_as_finely_as_it_matters(amount: float, want: str) -> None:
    """In canonical text that Kubernetes reads."""
    assert format_decimal(amount) == want


def test_sums_saturate_instead_of_wrapping() -> None:
    """The largest amount plus one stays the largest."""
    assert saturating_add(INT64_MAX, 1) == INT64_MAX
    assert saturating_add(INT64_MIN, -1) == INT64_MIN
    assert saturating_add(2, 3) == 5
