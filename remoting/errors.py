"""Errors of the wire, as types. A caller must handle them as outcomes of its call; they are never strings.

    RemotingError
    ├── FrameError          bytes that are no frame, or one over the limits: the connection is closed with this reason
    ├── NotEncodable        a command of our own that no frame can carry: nothing was sent
    ├── HeaderError         a frame whose ext fields do not make the header its code wants: answered, not closed
    ├── BodyError           the same of a body
    ├── MessageIllegal      a message that no record has room for: nothing was kept; the sender must change it
    ├── DamagedRecord       bytes that are no record; says where and why
    ├── CompressionMissing  a body needs a library that is not installed
    ├── ConnectFailed       nobody answered at that address
    ├── ConnectionClosed    the connection went before the answer came: the request may or may not have been carried out
    ├── RequestTimeout      no answer in time: the request may or may not have been carried out
    └── ResponseError       the answer's code is not SUCCESS
"""

from __future__ import annotations


class RemotingError(Exception):
    """Whatever this package raises on its own account."""


class FrameError(RemotingError):
    """Bytes that are no frame. ``reason`` says what, where and what was expected."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotEncodable(RemotingError):
    """A command that its encoding, or the size that peers take, has no room for. Says what to change."""


class HeaderError(RemotingError):
    """Ext fields that do not make a header: ``field`` names the one at fault."""

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(f"{header}: {field} {reason}")
        self.header, self.field, self.reason = header, field, reason


class BodyError(RemotingError):
    """A body that is not what its code wants."""


class MessageIllegal(RemotingError):
    """A message that cannot be stored. Says which part, and how much is allowed."""


class DamagedRecord(RemotingError):
    """No record at ``offset``. A reader of a log that is being recovered stops there."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"no record at offset {offset}: {reason}")
        self.offset, self.reason = offset, reason


class CompressionMissing(RemotingError):
    """A body is compressed by what is not installed; ``library`` is its name."""

    def __init__(self, name: str, library: str) -> None:
        super().__init__(f"{name} bodies need {library!r}, which is not installed: "
                         "pip install 'quorate[client-compression]'")
        self.library = library


class ConnectFailed(RemotingError):
    """No connection to ``address``; nothing was sent."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address, self.reason = address, reason


class ConnectionClosed(RemotingError):
    """The connection to ``address`` ended while a request was under way; its outcome is unknown."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"connection to {address} closed: {reason}")
        self.address, self.reason = address, reason


class RequestTimeout(RemotingError):
    """``address`` did not answer request ``code`` within ``timeout_ms``; its outcome is unknown."""

    def __init__(self, address: str, code: int, timeout_ms: float) -> None:
        super().__init__(f"{address} did not answer request {code} within {timeout_ms:g} ms")
        self.address, self.code, self.timeout_ms = address, code, timeout_ms


class ResponseError(RemotingError):
    """An answer other than SUCCESS. ``code`` is one of ``ResponseCode`` or a number that this package does not know."""

    def __init__(self, code: int, remark: str | None, address: str | None = None) -> None:
        where = f" from {address}" if address else ""
        super().__init__(f"response code {code}{where}: {remark or 'no remark'}")
        self.code, self.remark, self.address = code, remark, address
