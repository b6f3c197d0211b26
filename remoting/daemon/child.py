"""Command lines of our own programs as children: they import what this one does, and nothing from where it was started.

Without ``-P`` Python looks for modules in the working directory first: a file ``trio.py`` there would run as whoever
starts a broker.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_ROOT: Final = str(Path(__file__).parents[2])
"""Of our packages: where they are installed, or a checkout, which need not be on the path of who starts there."""


def child(module: str, before: str = "pass") -> list[str]:
    """Runs ``main`` of ``module``, and ends with what it returns. ``before``: statements to be done first."""
    run = f"import sys; sys.path.append({_ROOT!r}); {before}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", run]
