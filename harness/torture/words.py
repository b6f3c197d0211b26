"""Errors that end a run before it has a verdict. Knows nothing else."""

from __future__ import annotations


class RunFailed(Exception):
    """The run could not start, or did not come to its end; the message says why."""
