"""Log lines of servers: one line each, with the record's fields."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.controllers import CLUSTER, group_of, world
from raft.loglimit import RepeatLimit
from remoting.codes import RequestCode
from remoting.daemon import logs
from remoting.daemon.logs import of_peer, set_up
from remoting.headers.controller import CleanBrokerDataRequest


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def logged(*, as_json: bool) -> str:
    stream = io.StringIO()
    set_up("info", as_json=as_json, stream=stream)
    logger = logging.getLogger("t")
    logger.debug("not shown")
    logger.warning("a %s", "word", extra={"broker": "a b", "id": 0, "line": "x\ny"})
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("failed")
    return stream.getvalue()


def test_text_has_fields_behind_the_words() -> None:
    first, second, *rest = logged(as_json=False).splitlines()
    assert first.partition(" ")[2] == 'WARNING t a word broker="a b" id=0 line="x\\ny"'
    assert first.partition(" ")[0].endswith("Z")
    assert second.endswith("ERROR t failed")
    assert rest[-1] == "ValueError: why"


def test_json_has_fields_as_members() -> None:
    first, second = map(json.loads, logged(as_json=True).splitlines())
    assert {name: first[name] for name in ("level", "logger", "message", "broker", "id")} == {
        "level": "WARNING", "logger": "t", "message": "a word", "broker": "a b", "id": 0}
    assert "ValueError: why" in second["exception"]


@pytest.mark.parametrize("module", ["broker.cli", "broker.container.cli", "controller.cli", "controller.namesrv.cli"])
def test_every_server_limits_repeated_lines(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the commands themselves: where logging is set up they go no further here."""
    class Enough(Exception):
        pass

    def stop(*_: object, limit: logging.Filter, **__: object) -> None:
        assert type(limit) is RepeatLimit
        raise Enough

    command = importlib.import_module(module)
    monkeypatch.setattr("remoting.daemon.process.set_up", stop)
    settings = {"broker.cli": ["-D", "brokerName=a", "-D", "brokerIP1=127.0.0.1"], "controller.cli": [
        "-D", "controllerDLegerGroup=g", "-D", "controllerDLegerSelfId=n0",
        "-D", "controllerDLegerPeers=n0-127.0.0.1:9"]}
    with pytest.raises(Enough):
        command.main(settings.get(module, []))


def test_what_a_peer_sent_is_cut() -> None:
    cut = of_peer({"n" * 9_000: "v" * 9_000, **{str(number): "" for number in range(100)}})
    assert len(cut) == 20
    assert all(len(name) <= 204 and len(value) <= 200 for name, value in cut.items())


async def test_a_controllers_lines_have_the_fields_of_what_they_tell(autojump_clock: MockClock) -> None:
    stream = io.StringIO()
    set_up("info", as_json=True, stream=stream)
    async with world() as made:
        first, second, third = await group_of(made, "a", 3)
        third.deaf = True
        await first.kill()
        await made.wait_master("a", 2)
        await trio.sleep(8)
        await second.kill()
        await third.kill()
        await made.wait_master("a", None)
        clean = CleanBrokerDataRequest("a", CLUSTER, "99")
        assert (await made.ask_active(RequestCode.CLEAN_BROKER_DATA, clean)).code
        await made.ask("n0", RequestCode.UPDATE_CONTROLLER_CONFIG, None, b"enableElectUncleanMaster=true")
        former = await made.active()
        made.nursery.start_soon(made.running.pop(former).stop)
        await made.active()
        await trio.sleep(1)
    lines: dict[str, list[dict[str, object]]] = {}
    for line in map(json.loads, stream.getvalue().splitlines()):
        lines.setdefault(line["message"], []).append(line)
    group = {"cluster": CLUSTER, "group": "a"}
    elected = [{name: line[name] for name in ("cluster", "group", "broker_id", "epoch", "previous", "clean")}
               for line in lines["master elected"]]
    assert elected[:2] == [{**group, "broker_id": 1, "epoch": 1, "previous": None, "clean": True},
                           {**group, "broker_id": 2, "epoch": 2, "previous": 1, "clean": True}], "by the active one"
    lost = lines["group without a master"][0]
    assert lost.items() >= {**group, "level": "ERROR", "previous": 2}.items() and lost["epoch"] and lost["why"]
    untold = lines["broker not told of its master"][0]
    assert untold.items() >= {**group, "broker_id": 3, "epoch": 2, "address": "a-3:1"}.items() and untold["why"]
    assert lines["admin operation refused"][0].items() >= {
        "request": "CLEAN_BROKER_DATA", "code": 2009, "ext_brokerName": "a"}.items()
    assert lines["admin operation done"][0]["request"] == "UPDATE_CONTROLLER_CONFIG"
    assert lines["configuration changed"][0]["keys"] == {"enableElectUncleanMaster": "true"}
    assert all(line["term"] for line in lines["this is the active controller"])
    assert len(lines["this is the active controller"]) >= 2
    assert {line["node"] for line in lines["controller serves"]} == {"n0", "n1", "n2"}


def test_a_file_and_those_that_it_becomes_are_not_for_everybody_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 100)
    before = os.umask(0)
    try:
        set_up(file=tmp_path / "logs" / "broker.log")
        for number in range(3):
            logging.getLogger("t").info("%s", f"{number}" * 80)
    finally:
        os.umask(before)
        logging.getLogger().handlers[0].close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "logs").iterdir()}
    assert modes.keys() >= {"broker.log", "broker.log.1", "broker.log.2"} and set(modes.values()) == {0o640}
