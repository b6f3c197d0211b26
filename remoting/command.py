"""``Command``: one frame's content, request or response, whichever way its header was encoded.

Source: ``RemotingCommand`` of Apache RocketMQ. ``remoting.frame`` turns commands into bytes and back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import attrs

from remoting.codes import VERSION, Language, ResponseCode

if TYPE_CHECKING:
    from remoting.header import Header

RESPONSE = 1
"""Bit of ``flag``: this is an answer."""
ONEWAY = 2
"""Bit of ``flag``: no answer is wanted, and none is sent."""


class Encoding(IntEnum):
    """Encoding of a header: the frame says it to a reader, the sender chooses it."""

    JSON = 0
    ROCKETMQ = 1


@attrs.define(eq=True)
class Command:
    """``ext`` is the header's fields by their Java names, all strings; ``body`` is opaque, empty when there is none."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    remark: str | None = None
    language: int = Language.PYTHON
    version: int = VERSION
    encoding: Encoding = Encoding.JSON

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)


def request(code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False) -> Command:
    """A request; whoever sends it gives it its ``opaque``."""
    return Command(code, 0, ONEWAY if oneway else 0, header.to_ext() if header is not None else {}, body)


def response(
    to: Command, code: int = ResponseCode.SUCCESS, header: Header | None = None, body: bytes = b"",
    remark: str | None = None,
) -> Command:
    """The answer to ``to``: its opaque, its encoding."""
    ext = header.to_ext() if header is not None else {}
    return Command(code, to.opaque, RESPONSE, ext, body, remark, encoding=to.encoding)


def kept_bytes(command: Command) -> int:
    """About what it takes while it is kept, all that its sender may make long included."""
    ext = command.ext
    return len(command.body) + sum(map(len, ext)) + sum(map(len, ext.values())) + len(command.remark or "") + 1_000
