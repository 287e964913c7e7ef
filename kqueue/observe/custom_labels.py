"""Custom labels of metrics, with values from labels and annotations of objects (`metrics.customLabels`).

The labels are added when a page is written, so an object has one value of each label at any time, and custom labels do
not add series.  When the value of an object changes, its counters continue under the new value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UNTRACKED = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Replaces every value that is not tracked."""
_LONGEST = 128
"""Limit of a value in characters; annotations may have 256 KiB."""
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomLabel:
    """The source of one label's value.  `tracked` empty: every value is shown."""

    name: str
    key: str
    is_annotation: bool = False
    tracked: frozenset[str] = frozenset()

    @property
    def shown_name(self) -> str:
        """The name of the label on pages."""
        return f"custom_{self.name}"

    def value(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
        """Return the value for an object with these labels and annotations; empty when the object has none."""
        found = (annotations if self.is_annotation else labels).get(self.key, "")
        if found and self.tracked and found not in self.tracked:
            return UNTRACKED
        return found[:_LONGEST]


class CustomLabels:
    """The custom labels of one kind of object, and what each object has."""

    def __init__(self, labels: Sequence[CustomLabel] = ()) -> None:
        self.labels = tuple(labels)
        self._values: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._texts: dict[tuple[str, ...], str] = {}
        self._none = self._text(("",) * len(self.labels))

    def describe(self, key: tuple[str, ...], labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        """Take in an object that was created or changed."""
        if self.labels:
            values = tuple(label.value(labels, annotations) for label in self.labels)
            if self._values.get(key) != values:
                self._values[key], self._texts[key] = values, self._text(values)

    def forget(self, key: tuple[str, ...]) -> None:
        """Forget a deleted object."""
        self._values.pop(key, None)
        self._texts.pop(key, None)

    def values(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Return the values of an object in the order of the labels; empty texts when the object is unknown."""
        return self._values.get(key) or ("",) * len(self.labels)

    def text(self, key: tuple[str, ...]) -> str:
        """Return the values as text of a series, with a leading comma; empty without custom labels."""
        return self._texts.get(key, self._none)

    def _text(self, values: tuple[str, ...]) -> str:
        pairs = zip(self.labels, values, strict=True)
        return "".join(f',{label.shown_name}="{value.translate(_ESCAPES)}"' for label, value in pairs)
