"""Tasks that serve a block of the caller's. Knows trio alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends.

    What the block raises comes out as it is, not in a group as from a nursery of trio's; what a task raises, in one.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:  # raise it again here or below
            if only_cancelled(error):
                raise  # the nursery's own scope may have to catch it
            failure = error
        nursery.cancel_scope.shield = failure is not None  # keep an outer cancellation from replacing the failure
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def only_cancelled(error: BaseException) -> bool:
    """Return whether the error is a cancellation of trio and nothing else."""
    return isinstance(error, trio.Cancelled) or (
        isinstance(error, BaseExceptionGroup) and error.split(trio.Cancelled)[1] is None)
