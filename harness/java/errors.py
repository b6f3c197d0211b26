"""What can go wrong with Java peers, as types that a scenario tells apart. It knows no process and no file.

    JavaPeerError
    ├── JavaMissing     no Java, no Maven, one too old, or no sources of our programs: not run, which is no failure
    ├── FetchFailed     Maven could not bring the jars
    ├── StartFailed     a process ended, or was not ready in time
    └── NotRunning      something was asked of a process that does not run
"""

from __future__ import annotations


class JavaPeerError(Exception):
    """Every error of this package."""


class JavaMissing(JavaPeerError):
    """Java or Maven is not on this machine; the text says what is missing and how to get it."""


class FetchFailed(JavaPeerError):
    """Maven failed as often as it was tried; the text ends with what it said last."""


class StartFailed(JavaPeerError):
    """A process ended, or was not ready in time; the text ends with what it printed last."""


class NotRunning(JavaPeerError):
    """A signal or a question for a process that has ended or was not started."""
