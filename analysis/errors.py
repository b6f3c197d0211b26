"""Errors of input that a reader cannot take, each told in one sentence. Knows nothing of reading."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"^\s*analysis[.]errors[.]\w+: (.*)$", re.MULTILINE)


def sentence(text: str) -> str:
    """Return the one sentence of Spark's error that says what was wrong; the whole may be pages long.

    Of an error in a Python worker it is what was raised there, of one in Java its message.
    """
    if ours := _OURS.findall(text):
        return str(ours[-1])
    lines = text.strip().splitlines() or [""]
    begins = next((number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    if begins is not None:
        return next((line for line in lines[begins + 1:] if line and not line[0].isspace()), lines[0])
    called = lines[0].startswith("An error occurred while calling") and len(lines) > 1
    return lines[1].removeprefix(": ") if called else lines[0]


class AnalysisError(Exception):
    """Base of all errors of this package; its text is for the user and says what to do."""


class NothingToRead(AnalysisError):
    """A path that is not there, is empty, or holds no log that this build knows."""


class BadOption(AnalysisError):
    """An option of the data source that is unknown or out of its range."""


class JavaMissing(AnalysisError):
    """Spark needs a Java that is not on this machine."""
