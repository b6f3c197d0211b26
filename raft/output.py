"""Lets commands print into pipes whose reader may stop at any time. Knows the standard output, and no commands."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

_P = ParamSpec("_P")


def piped(main: Callable[_P, int]) -> Callable[_P, int]:
    """Wrap a command, so that it ends quietly if the reader of its output stops, as `| head` does."""
    @functools.wraps(main)
    def command(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs)
            finally:
                sys.stdout.flush()  # now, as an error at the interpreter's end would be printed
        except BrokenPipeError:
            discard_output()
            return 0

    return command


def discard_output() -> None:
    """Send all further output to nowhere, so that the interpreter's last flush does not fail on the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
