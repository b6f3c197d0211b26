"""Our own programs as children: their command lines, which import what this one does and nothing from where it was
started; and how a fork of one ends.

Without ``-P`` Python looks for modules in the working directory first: a file ``trio.py`` there would run as whoever
starts a broker.
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
"""As a Python program ends that raises."""
_ROOT: Final = str(Path(__file__).parents[2])
"""Of our packages: where they are installed, or a checkout, which need not be on the path of who starts there."""


def child(module: str, before: str = "pass") -> list[str]:
    """Runs ``main`` of ``module``, and ends with what it returns. ``before``: statements to be done first."""
    run = f"import sys; sys.path.append({_ROOT!r}); {before}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", run]


def live(run: Callable[[], object]) -> NoReturn:
    """What a fork does from here on, and its end: nothing of the process that it was forked from runs behind that. It
    ends as a Python program that ends with what ``run`` returns."""
    code: object = _FAILED
    try:
        code = run()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001  nobody else would say it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0 if code is None else code if isinstance(code, int) else _FAILED)
