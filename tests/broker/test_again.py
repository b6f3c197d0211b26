"""Requests that waited and are tried again: one that fails is answered, and ends nobody who waits beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.again import Again, attempt_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection


async def test_a_handler_that_fails_is_answered_and_the_next_request_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[tuple[bytes, int, str | None]] = []
    connection = cast(Connection, SimpleNamespace(
        peer="10.0.0.7:4711", reply=lambda asked, answer: answers.append((asked.body, answer.code, answer.remark))))

    def handle(_: Connection, asked: Command) -> Command | None:
        if asked.body == b"defect":
            raise KeyError("gone")
        return None if asked.body == b"waits on" else response(asked)

    again = Again()
    attempt = attempt_of(handle, "a POP")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.run)
        for body in (b"defect", b"waits on", b"served"):
            again.soon(attempt, connection, request(RequestCode.POP_MESSAGE, body=body))
        assert not answers, "tried a turn later, not at once"
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert answers == [
        (b"defect", ResponseCode.SYSTEM_ERROR, "KeyError: 'gone'"), (b"served", ResponseCode.SUCCESS, None)]
    assert "a POP of 10.0.0.7:4711 that waited" in caplog.text
