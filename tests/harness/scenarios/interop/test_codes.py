"""Which codes a server knows is found by asking: the scenario's look, at a server that knows some."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from harness.scenarios.interop import codes
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.errors import ConnectionClosed, RequestTimeout


class Server:
    """Answers in place of a client's other end: what a code is not in, it does not know."""

    def __init__(self, **ways: RequestCode) -> None:
        self.ways = {int(code): way for way, code in ways.items()}
        self.asked: list[int] = []

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        self.asked.append(command.code)
        match self.ways.get(command.code):
            case "silent":
                raise RequestTimeout(address, command.code, timeout_ms)
            case "hangs_up":
                raise ConnectionClosed(address, "the other end closed")
            case "refuses":
                return response(command, ResponseCode.SYSTEM_ERROR)
            case "serves":
                return response(command)
        return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


async def test_what_is_not_refused_as_unknown_is_known(autojump_clock: MockClock) -> None:
    server = Server(silent=RequestCode.PULL_MESSAGE, hangs_up=RequestCode.SEND_MESSAGE,
                    refuses=RequestCode.QUERY_MESSAGE, serves=RequestCode.HEART_BEAT)
    began = trio.current_time()
    client: Client = server  # type: ignore[assignment]  # the look calls nothing else
    assert await codes.known(client, "a:1") == server.ways.keys()
    assert server.asked == list(codes.CODES)
    assert trio.current_time() - began == 0.5  # a server that hung up is given a moment


def test_what_is_said_to_be_absent_is_asked() -> None:
    absent = [code for group in codes.ABSENT.values() for code in group]
    assert len(absent) == len(set(absent))
    assert not codes.NOT_OF_5_5 & set(absent)
    assert codes.RECORDED.is_file()
