"""Text from elsewhere, so that it cannot drive a terminal or pass for a line of ours."""

from __future__ import annotations


def printable(text: object) -> str:
    """Return `text` (or its `str`) on one line, without characters that a terminal would obey.

    Escaped as in a Python string are: control characters (C0, DEL, C1, so ANSI sequences and line ends), format
    characters (bidirectional overrides, zero-width ones, tags), line and paragraph separators, unusual spaces, lone
    surrogates, and what is private or not assigned.  Everything else stays, backslashes too.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
