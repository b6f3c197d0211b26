"""The page on storages: its excerpts are the example that the tests run, its tables name what the code has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attrs

from raft.storage.conformance import StorageConformance
from raft.storage.interface import Storage
from raft.storage.place import Place

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "write-a-storage.md").read_text()
EXAMPLE = (ROOT / "docs" / "examples" / "sqlite_storage.py").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def first_column(head: str) -> set[str]:
    table = PAGE.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    return {name for row in table for name in re.findall(r"`(\w+)", row.split("|")[1])}


def test_excerpts_are_what_runs() -> None:
    excerpts = [block for block in BLOCKS if block.startswith("    ")]
    assert len(excerpts) == 5
    for block in excerpts:
        assert block in EXAMPLE, block


def test_the_class_to_inherit_has_these_methods_to_override() -> None:
    (block,) = (block for block in BLOCKS if "class TestMine" in block)
    shown = re.findall(r"def (\w+)\(self((?:, \w+)*)\)", block)
    assert [name for name, _ in shown] == ["make", "reopen", "crash", "fill", "relieve"]
    for name, rest in shown:
        parameters = list(inspect.signature(getattr(StorageConformance, name)).parameters)
        assert parameters == ["self", *rest.replace(",", "").split()]


def test_tables_name_what_there_is() -> None:
    assert first_column("`Place`") == {field.name for field in attrs.fields(Place)}
    source = inspect.getsource(Storage)
    capabilities = set(re.findall(r"def (\w+)", source.partition("# --- capabilities")[2]))
    assert first_column("capability") | {"kind", "step_bytes", "size"} == capabilities | {"step_bytes", "size"}
