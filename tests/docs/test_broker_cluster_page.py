"""The page on whole clusters in a test: its tests, as printed, pass; its table names what is there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from harness.simulation.worlds.brokers import Cluster, Node
from harness.simulation.worlds.controllers import World
from raft.virtual.network import MemoryNetwork

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "test-a-broker-cluster.md").read_text()


def printed() -> dict[str, Callable[..., Any]]:
    """Tests defined by the page's Python, run as one module."""
    names: dict[str, Any] = {}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    exec(compile(code, "page", "exec"), names)
    return {name: each for name, each in names.items() if name.startswith("test_")}


ALL = printed()


@pytest.mark.parametrize("name", [name for name, each in ALL.items() if inspect.iscoroutinefunction(each)])
async def test_a_test_on_the_page(name: str, autojump_clock: MockClock) -> None:
    await ALL[name](autojump_clock)


@pytest.mark.parametrize("name", [name for name, each in ALL.items() if not inspect.iscoroutinefunction(each)])
def test_a_seeded_test_on_the_page(name: str) -> None:
    ALL[name]()


def test_the_table_names_verbs_that_exist() -> None:
    owners = {each.__name__: each for each in (Cluster, Node, World, MemoryNetwork)}
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    assert {owner for owner, _ in rows} == owners.keys()
    for owner, verbs in rows:
        for verb in re.findall(r"`(\w+)", verbs):
            assert hasattr(owners[owner], verb), f"{owner}.{verb}"
