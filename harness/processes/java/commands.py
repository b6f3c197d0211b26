"""Exit codes of commands that need Java: 0 done, 1 failed, 2 wrong usage, 3 not run: Java or Maven is missing.

It knows errors and words, and no command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from harness.processes.errors import ProcessError
from harness.processes.java.errors import JavaMissing

DONE: Final = 0
FAILED: Final = 1
MISSING: Final = 3


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


def carried_out(run: Callable[[argparse.Namespace], Awaitable[None]], arguments: argparse.Namespace) -> int:
    """Runs a command; returns its exit code."""
    try:
        trio.run(_guarded, run, arguments)
    except KeyboardInterrupt:
        return DONE
    except JavaMissing as missing:
        print(f"not run: {missing}", file=sys.stderr)
        return MISSING
    except (ProcessError, OSError) as failed:
        print(failed, file=sys.stderr)
        return FAILED
    return DONE


async def _guarded(run: Callable[[argparse.Namespace], Awaitable[None]], arguments: argparse.Namespace) -> None:
    """Run the command; of several errors at once, raise the first."""
    try:
        await run(arguments)
    except* (ProcessError, OSError, KeyboardInterrupt) as several:
        first: BaseException = several
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
