"""The page on clusters in a test: its tests, as printed, pass; its table names every verb."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio

from raft.sim import Cluster

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"
PAGE = (TUTORIALS / "test-a-cluster.md").read_text()
FILES = re.findall(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)^```$",
                   (TUTORIALS / "replicated-counter.md").read_text(), re.MULTILINE | re.DOTALL)


def _starts_nothing(*_: object) -> None:
    raise AssertionError("what a test imports must not start a node")


def printed() -> dict[str, Any]:
    """Names defined by the page's Python, run as one module beside the files of the first tutorial."""
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, text in FILES:
            (Path(folder) / name).write_text(text)
        patch.syspath_prepend(folder)
        patch.delitem(sys.modules, "counter_machine", raising=False)
        patch.setattr(trio, "run", _starts_nothing)
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
