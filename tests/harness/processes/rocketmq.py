"""The release of RocketMQ that tests run against, where this machine has it."""

from __future__ import annotations

import pytest
import trio

from harness.processes import java


def current_release() -> java.Release:
    """The current release; where it is not, the test is skipped. Not async: a skip inside of trio loses its reason."""
    try:
        trio.run(java.find_tools)
    except java.JavaMissing as missing:
        pytest.skip(f"not run: {missing}")
    if not java.cached():
        pytest.skip(f"not run: RocketMQ {java.CURRENT} is not in the cache; "
                    "`python -m harness.processes.java fetch` brings it")
    return trio.run(java.fetch)
