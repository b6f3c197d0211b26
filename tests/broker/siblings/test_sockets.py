"""The socket of a broker in a container: a real one, before a real store."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from broker.config import from_properties
from broker.parts import configuration
from broker.server import RunningBroker, World, serve_broker
from broker.siblings import sockets
from broker.siblings.handover import HAND_OVER, HandOverRequest, record
from broker.siblings.part import SiblingsPart
from broker.siblings.sockets import Siblings, make_directory, open_siblings, socket_name
from broker.store.directory import DirectoryFiles
from broker.topics.part import TopicsPart
from harness.simulation.worlds.brokers import SMALL
from remoting.bodies.namesrv import TopicConfig
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.daemon.files import DiskFiles
from remoting.record import Message, decode_all

ASKED = HandOverRequest("DefaultCluster", "a")


@asynccontextmanager
async def master(here: Path) -> AsyncGenerator[tuple[RunningBroker, Siblings, Client]]:
    """Master of group b with topic T, and a sibling's way to it."""
    sockets_of = here / "siblings"
    make_directory(sockets_of)
    config = from_properties({
        **SMALL, "brokerName": "b", "brokerIP1": "127.0.0.1", "storePathRootDir": str(here / "store")},
        start=configuration()())
    world = World(DiskFiles(), DirectoryFiles(here / "store"), siblings=open_siblings(sockets_of, "b"))
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    theirs = open_siblings(sockets_of, "a")
    async with trio.open_nursery() as nursery, open_client(connector=theirs.connector) as client:
        running: RunningBroker = await nursery.start(partial(serve_broker, config, world, listeners))
        running.parts[TopicsPart].table.update([TopicConfig("T", 1, 1)])
        yield running, theirs, client
        nursery.cancel_scope.cancel()
    await theirs.listener.aclose()


async def test_a_record_is_stored_and_bad_bytes_harm_nobody(tmp_path: Path) -> None:
    async with master(tmp_path) as (broker, theirs, client):
        assert list(theirs.names()) == [socket_name("b")]
        name, message = socket_name("b"), Message(b"T", b"body", 0, b"UNIQ_KEY\x01u\x02")

        # Bytes that are no frame, a frame of too many bytes, one that is cut: the connection ends, no more.
        for raw in (b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff",
                    b"\0\0\0\x20\0"):
            stream = await theirs.connector(name)
            await stream.send_all(raw)
            assert isinstance(stream, trio.SocketStream)
            await stream.send_eof()
            with trio.fail_after(10):
                assert await stream.receive_some() == b""
            await stream.aclose()

        # Frames that make no sense: refused in words.
        for code, header, body, answered, words in (
            (RequestCode.SEND_MESSAGE_V2, ASKED, b"", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ""),
            (HAND_OVER, None, record(message), ResponseCode.SYSTEM_ERROR, "cluster"),
            (HAND_OVER, ASKED, b"nothing", ResponseCode.MESSAGE_ILLEGAL, "the body is no record"),
            (HAND_OVER, HandOverRequest("DefaultCluster", "b"), record(message), ResponseCode.SERVICE_NOT_AVAILABLE,
             "this broker is of group b itself"),
        ):
            answer = await client.call(name, request(code, header, body))
            assert answer.code == answered and words in (answer.remark or "")

        answer = await client.call(name, request(HAND_OVER, ASKED, record(message)))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        journal = broker.journal
        (found,) = decode_all(journal.log.read(0, journal.end))
        assert (found.message.body, found.message.store_host) == (b"body", broker.config.store_host)
        assert broker.parts[SiblingsPart].counters.taken == 1
    assert not os.listdir(tmp_path / "siblings"), "each removed its own"


async def test_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with master(tmp_path) as (_, theirs, _client):
        monkeypatch.setattr(sockets, "user_of", lambda stream: os.geteuid() + 1)
        stream = await theirs.connector(socket_name("b"))
        with trio.fail_after(10):
            assert await stream.receive_some() == b""
        assert isinstance(stream, trio.SocketStream)
        monkeypatch.undo()
        assert sockets.user_of(stream) == os.geteuid()
        await stream.aclose()


async def test_the_directory_is_private_and_names_are_short(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / "siblings"
    path.parent.mkdir()
    path.mkdir(0o755)
    with pytest.raises(PermissionError, match="must be this user's own, with mode 0700"):
        open_siblings(path, "b")
    make_directory(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    name = "c" * 300
    (path / socket_name(name)).write_text("left behind")
    ours = open_siblings(path, name)
    assert stat.S_ISSOCK((path / socket_name(name)).stat().st_mode)
    await ours.listener.aclose()
    with pytest.raises(FileNotFoundError):
        open_siblings(tmp_path / "nowhere", "b")


async def test_a_socket_that_was_left_behind_answers_at_once(tmp_path: Path) -> None:
    make_directory(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "s" / "old"))
    ours = open_siblings(tmp_path / "s", "b")
    assert list(ours.names()) == ["old"]
    with pytest.raises(OSError):
        await ours.connector("old")
    await ours.listener.aclose()
    assert list(ours.names()) == ["old"]
