"""What ends a run before it has a verdict. Knows nothing else."""

from __future__ import annotations


class RunFailed(Exception):
    """The run could not be made, or did not come to its end; in words."""
