"""What can be wrong with what a reader is given, in one sentence each. Knows nothing of how it is read."""

from __future__ import annotations


class AnalysisError(Exception):
    """Of all errors of this package; its text is for the user and says what to do."""


class NothingToRead(AnalysisError):
    """A path that is not there, is empty, or holds no log that this build knows."""


class BadOption(AnalysisError):
    """An option of the data source that is unknown or out of its range."""


class JavaMissing(AnalysisError):
    """Spark needs a Java that is not on this machine."""
