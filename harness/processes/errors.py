"""The errors of processes, as types that scenarios distinguish. It knows no process and no file.

    ProcessError
    ├── StartFailed     it ended, or was not ready in time
    └── NotRunning      something was asked of a process that does not run
"""

from __future__ import annotations


class ProcessError(Exception):
    """Every error of this package."""


class StartFailed(ProcessError):
    """A process ended, or was not ready in time; the text ends with what it printed last."""


class NotRunning(ProcessError):
    """A signal or a request for a process that has ended or was not started."""
