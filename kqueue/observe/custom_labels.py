"""Labels of metrics whose values stand on the objects that the metrics are about (`metrics.customLabels`).

They are added when a page is written, so an object has one value of each at any time: there are never more series than
without them.  A counter whose object changes goes on under its new value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UNTRACKED = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Stands for every value that is not among those tracked."""
_LONGEST = 128
"""Characters of a value; annotations may hold 256 KiB."""
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomLabel:
    """Where the value of one label is found.  `tracked` empty: every value is shown."""

    name: str
    key: str
    is_annotation: bool = False
    tracked: frozenset[str] = frozenset()

    @property
    def shown_name(self) -> str:
        """As it stands on pages."""
        return f"custom_{self.name}"

    def value(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
        """What an object with these has; empty when it has none."""
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
        """An object came or changed."""
        if self.labels:
            values = tuple(label.value(labels, annotations) for label in self.labels)
            if self._values.get(key) != values:
                self._values[key], self._texts[key] = values, self._text(values)

    def forget(self, key: tuple[str, ...]) -> None:
        """An object is gone."""
        self._values.pop(key, None)
        self._texts.pop(key, None)

    def values(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """What an object has, in the order of the labels; empty texts for one that is not known."""
        return self._values.get(key) or ("",) * len(self.labels)

    def text(self, key: tuple[str, ...]) -> str:
        """The same as it stands in a series, with a comma ahead; empty without custom labels."""
        return self._texts.get(key, self._none)

    def _text(self, values: tuple[str, ...]) -> str:
        pairs = zip(self.labels, values, strict=True)
        return "".join(f',{label.shown_name}="{value.translate(_ESCAPES)}"' for label, value in pairs)
