"""Commands and the pipes that they print into: who reads may stop at any time."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

_P = ParamSpec("_P")


def piped(main: Callable[_P, int]) -> Callable[_P, int]:
    """A command whose output somebody may stop to read, as `| head` does: that is no failure, and not told."""
    @functools.wraps(main)
    def command(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs)
            finally:
                sys.stdout.flush()  # here, and not at the interpreter's end
        except BrokenPipeError:
            discard_output()
            return 0

    return command


def discard_output() -> None:
    """Nobody reads what is printed; the interpreter, which flushes it at its end, must not stumble over that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
