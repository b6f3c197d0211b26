"""The page on clusters in a test: its tests, as printed, pass; its table names every verb."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from raft.sim import Cluster
from tests.raft.sim.machines import Counter

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "test-a-cluster.md").read_text()


def printed() -> dict[str, Any]:
    """Names defined by the page's Python, run as one module beside a ``counter`` module."""
    counter = ModuleType("counter")
    counter.__dict__["Counter"] = Counter
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "counter", counter)
        code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
        exec(compile(code, "page", "exec"), names)
    return names


@pytest.mark.parametrize("name", [name for name in printed() if name.startswith("test_")])
def test_a_test_on_the_page(name: str) -> None:
    printed()[name]()


def test_the_table_names_verbs_that_exist() -> None:
    table = PAGE.split("| verb |")[1].split("\n\n")[0]
    verbs = set(re.findall(r"`(\w+)", "".join(line.split("|")[1] for line in table.splitlines()[2:])))
    assert verbs > {"crash", "partition", "skew", "run_until"}
    assert all(hasattr(Cluster, verb) for verb in verbs)
