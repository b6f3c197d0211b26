"""The page of errors against the code: every class in its place, its fields, every reason with its words."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import raft
from raft import RejectReason, client, errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
CLASSES = {name: kind for name, kind in vars(errors).items()
           if inspect.isclass(kind) and issubclass(kind, errors.RaftError)}


def table(head: str) -> list[list[str]]:
    """Cells of the table whose first column has this title."""
    body = PAGE.split(f"| {head} |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def test_the_page_lists_every_error_under_its_parent() -> None:
    listed = [(row[0].strip("`"), row[1].strip("`")) for row in table("error")]
    assert listed == [(name, kind.__bases__[0].__name__) for name, kind in CLASSES.items()]
    assert set(CLASSES) <= set(raft.__all__)


def test_what_an_error_has_is_what_its_row_says() -> None:
    for name, _, when, _ in table("error"):
        init = vars(CLASSES[name.strip("`")]).get("__init__")
        taken = set(inspect.signature(init).parameters) - {"self"} if init else set()
        said = re.search(r"\bhas ([^.]*)", when)
        fields = set(re.findall(r"`(\w+)`", said[1])) if said else set()
        assert fields == taken or name == "`Busy`", name


def test_the_page_lists_every_reason_as_people_see_it() -> None:
    assert [(row[0].strip("`"), row[1]) for row in table("reason")] == [(it.name, it.value) for it in RejectReason]


def test_reserved_reasons_are_raised_by_no_node() -> None:
    reserved = {row[0].strip("`") for row in table("reason") if row[2].startswith("reserved")}
    raft = ROOT / "raft"
    shells = [path for path in raft.rglob("*.py")
              if "sim" not in path.relative_to(raft).parts and path.name != "client.py"]
    used = {name for path in shells for name in re.findall(r"RejectReason\.([A-Z_]+)", path.read_text())}
    busy = {"BUSY"}  # by its class
    assert reserved == set(RejectReason.__members__) - used - busy


def test_the_client_tries_again_after_what_the_page_says() -> None:
    sentence = PAGE.split("A `Client` tries again by itself")[1]
    assert set(re.findall(r"`([A-Z_]+)`", sentence)) == {reason.name for reason in client._AGAIN}
