"""The configuration file that a name server and the controller in it share: neither writes the other's keys."""

from __future__ import annotations

import pytest

import controller.config as controllers
from controller.namesrv.config import NamesrvConfig
from controller.namesrv.one_file import BOTH, CONTROLLERS, SharedFile
from remoting import properties
from remoting.daemon.files import MemoryFiles
from remoting.daemon.keys import names

PATH = "conf"


def shared(files: MemoryFiles, start: dict[str, str]) -> tuple[SharedFile, SharedFile]:
    """The name server's and the controller's, as the command makes them."""
    return (SharedFile(files, PATH, start, CONTROLLERS.__contains__),
            SharedFile(files, PATH, start, lambda key: key not in CONTROLLERS))


def test_every_key_has_one_owner() -> None:
    assert names(controllers.ControllerConfig).keys() <= BOTH | CONTROLLERS
    assert not CONTROLLERS & names(NamesrvConfig).keys()
    assert {"processReadEvent", "isProcessReadEvent", "controllerDLegerPeers"} <= CONTROLLERS
    assert "bindAddress" in BOTH


@pytest.mark.parametrize("first", [0, 1], ids=["name server", "controller"])
def test_whoever_writes_the_first_file_writes_what_the_other_started_with(first: int) -> None:
    files = MemoryFiles()
    start = {"listenPort": "1", "bindAddress": "a", "controllerDLegerGroup": "g", "electPolicy": "default"}
    mine = [{**start, "listenPort": "2"}, {**start, "electPolicy": "priority"}][first]
    of_theirs = [{"electPolicy": "wrong"}, {"listenPort": "wrong", "bindAddress": "wrong"}][first]
    shared(files, start)[first].replace(PATH, properties.encode({**mine, **of_theirs}).encode())
    assert properties.parse((files.read(PATH) or b"").decode()) == mine


def test_a_file_that_is_there_and_any_other_file_are_written_as_they_are_given() -> None:
    files = MemoryFiles()
    namesrv, embedded = shared(files, {"listenPort": "1"})
    embedded.replace("elsewhere", b"\xff of tables")
    assert namesrv.read("elsewhere") == b"\xff of tables" and namesrv.read(PATH) is None
    files.replace(PATH, b"# ours\n")
    embedded.replace(PATH, b"# ours\nelectPolicy=priority\n")
    assert namesrv.read(PATH) == b"# ours\nelectPolicy=priority\n"
    namesrv.remove("elsewhere")
    namesrv.remove("elsewhere")
    assert embedded.read("elsewhere") is None
