"""Errors of Java peers, as types that a scenario tells apart. It knows no process and no file.

    ProcessError
    └── JavaPeerError
        ├── JavaMissing     no Java, no Maven, one too old, or no sources of our programs: not run, which is no failure
        └── FetchFailed     Maven could not bring the jars
"""

from __future__ import annotations

from harness.processes.errors import ProcessError


class JavaPeerError(ProcessError):
    """Every error of the Java side alone."""


class JavaMissing(JavaPeerError):
    """Java or Maven is not on this machine; the text says what is missing and how to get it."""


class FetchFailed(JavaPeerError):
    """Maven failed as often as it was tried; the text ends with what it said last."""
