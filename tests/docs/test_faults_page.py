"""The page of faults: its own fault is one that works, and every ability is in its table."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from harness.nemesis import faults
from harness.nemesis.fault import Ability, FaultKind
from harness.nemesis.forwarding import forwarders
from tests.harness.nemesis.nodes import Place, echoes

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "faults.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


async def test_a_fault_of_ones_own_works_as_the_page_says(tmp_path: Path) -> None:
    module: dict[str, Any] = {}
    exec(block("python"), module)
    brought = tomllib.loads(block("toml"))["project"]["entry-points"][faults.GROUP]
    [(name, place)] = brought.items()
    fault = module[place.partition(":")[2]]
    assert isinstance(fault, FaultKind) and fault.name == name
    async with forwarders(["a"]) as network:
        scene = Place(echoes(tmp_path, network, ["a"]), network)
        done = tmp_path / "done"
        begun = await fault.begin(scene, ["a"], fault.checked({"command": ["touch", str(done)]}))
        assert done.exists() and "a" in begun.words
        await begun.undo()


def test_the_page_says_what_each_ability_takes() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| [^|]* \| [^|]* \|$", PAGE, re.MULTILINE)) >= {
        each.name.lower() for each in Ability}
