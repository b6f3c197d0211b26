"""The page on the API names what there is: every name of ``raft``'s classes that users get, and none that is not."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attrs
import pytest

import raft
from raft.driver import Driver
from raft.node import Node
from raft.pending import Ticket

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()


def public(kind: type) -> set[str]:
    fields = {field.name for field in attrs.fields(kind)} if attrs.has(kind) else set()
    return {name for name in {*vars(kind), *fields} if not name.startswith("_")}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_name_of_a_node_is_on_the_page_and_no_other() -> None:
    assert set(re.findall(r"(?:`|, |await |in )node\.(\w+)", PAGE)) == public(Node)


def test_what_drives_a_node_is_not_on_it_but_for_the_exceptions_on_the_page() -> None:
    """A driver's constructor makes most of what it has, so its source is asked for that."""
    made = set(re.findall(r"self\.([a-z]\w*)", inspect.getsource(Driver.__init__)))
    listed = set(re.findall(r"^\| `node\.(\w+)", section("What programs around a node also use"), re.MULTILINE))
    assert (public(Driver) | made) & public(Node) == listed


def test_parts_of_a_state_machine_on_the_page() -> None:
    rows = re.findall(r"^\| `(\w+)", section("The state machine"), re.MULTILINE)
    assert {"apply", "apply_batch", "apply_entries", "snapshot", "capture", "query", "threaded", "codec"} <= set(rows)


@pytest.mark.parametrize("kind", [Ticket, raft.Codec, raft.Entries])
def test_small_classes_are_on_the_page(kind: type) -> None:
    missing = {name for name in public(kind) if f"`{name}`" not in PAGE and f".{name}" not in PAGE}
    assert not missing
