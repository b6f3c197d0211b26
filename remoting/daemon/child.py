"""Makes command lines of our own programs as children, and ends a fork.

A child imports what this process imports, and nothing from the working directory. Without ``-P`` Python looks for
modules there first: a file ``trio.py`` there would run with the rights of the user that starts a broker.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

_FAILED: Final = 1
"""Exit code of a Python program that raises."""
_ROOT: Final = str(Path(__file__).parents[2])
"""Folder of our packages: installed, or a checkout that need not be on the child's path."""


def child(module: str, before: str = "pass") -> list[str]:
    """Runs ``main`` of ``module``, and ends with what it returns. ``before``: statements to be done first."""
    run = f"import sys; sys.path.append({_ROOT!r}); {before}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", run]


def live(run: Callable[[], object]) -> NoReturn:
    """Run a fork from here to its end: no code of its parent runs after that.

    Its exit code is that of a Python program that ends with what ``run`` returns.
    """
    code: object = _FAILED
    try:
        code = run()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001  no other code would report it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0 if code is None else code if isinstance(code, int) else _FAILED)
