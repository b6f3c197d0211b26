"""The references of mqcontroller and mqadmin: what is generated is fresh, what is written by hand is complete."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import cast

import pytest

from controller.admin import cli as admin
from controller.handlers import Controller
from controller.metadata.machine import MetadataMachine
from remoting.daemon import process
from remoting.headers.controller import (
    ApplyBrokerIdResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetReplicaInfoResponse,
    NotLeaderResponse,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
CONTROLLER = (REFERENCE / "controller.md").read_text()
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
PAGES = (ROOT / "README.md", *sorted(REFERENCE.glob("*.md")))
GENERATED = [page for page in PAGES if "<!-- generated: " in page.read_text()]


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.stem)
def test_generated_parts_are_as_the_code_says(page: Path) -> None:
    text = page.read_text()
    assert GENERATE["renewed"](text) == text, "run make fix"


def test_a_stale_part_is_noticed() -> None:
    stale = CONTROLLER.replace("| `controllerDLegerGroup` |", "| `controllerDLedgerGroup` |")
    assert stale != CONTROLLER
    assert GENERATE["renewed"](stale) == CONTROLLER


def test_every_part_is_somewhere() -> None:
    placed = [name for page in GENERATED for name in re.findall(r"<!-- generated: (\S+) -->", page.read_text())]
    assert sorted(placed) == sorted(GENERATE["PARTS"])


def section(title: str) -> list[list[str]]:
    body = CONTROLLER.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line for line in body.splitlines() if line[:2] == "| "][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows]


def test_every_code_is_on_the_page() -> None:
    listed = {int(number) for row in section("Codes") for number in re.findall(r"\d+", row[0])}
    core = Controller.__new__(Controller)
    core.machine = cast("MetadataMachine", None)
    assert listed == set(core.handlers())


def test_every_exit_code_is_on_the_page() -> None:
    assert [int(row[0]) for row in section("Exit codes")] == [process.STOPPED, process.FAILED, process.USAGE]
    text = (REFERENCE / "mqadmin.md").read_text()
    assert [int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)] == [
        admin.DONE, admin.FAILED, admin.USAGE]


def test_every_optional_field_is_one() -> None:
    known = {
        *BrokerHeartbeatRequest(
            "c", "a", "b", 1, 1, 1, 1, 1, 1, 1, True, 1, True, True, 1, 1, 1, "2", "full", 1).to_ext(),
        *RegisterBrokerToControllerRequest(
            "c", "b", 1, "a", broker_life=1, already_running=True, known_lives="1").to_ext(),
        *RegisterBrokerToControllerResponse(unknown_life=1).to_ext(),
        *BrokerHeartbeatResponse(True, True, 1, 1).to_ext(),
        *ElectMasterRequest(lost_epoch=1, yield_epoch=1, yield_reason="disk", holders="2").to_ext(),
        *ElectMasterResponse(yield_wait=True).to_ext(),
        *GetReplicaInfoResponse(master_life=1).to_ext(),
        *GetMetadataResponse(controller_id="n0", committed_index=1, reads_format=1, format_in_use=1).to_ext(),
        *ApplyBrokerIdResponse("c", "b", 1).to_ext(), *NotLeaderResponse("a").to_ext()}
    for _, field, _ in section("Optional header fields"):
        assert field.strip("`") in known, field
