"""Errors that a user of the client may meet, as types that a caller must handle.

    ClientError
    ├── MessageIllegal       a message that no broker would take; nothing was sent
    ├── CompressionMissing   a body needs a library that is not installed
    ├── NoRoute              no name server knows brokers for that topic
    ├── NoNameServer         no name server answered
    ├── SendFailed           the message is stored nowhere
    ├── SendUnknown          the message may be stored, or not: sending it again may store it twice
    ├── Refused              a broker answered a request with a code other than SUCCESS
    │   └── DecisionRefused  a broker does not take a commit: consumers will not see the message
    ├── Contradicted         a transaction was decided otherwise before
    ├── NoReply              a request got no reply in time
    └── Unreachable          a broker did not answer, or no address of it is known

It knows nothing of the rest of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.client.message import Sent


class ClientError(Exception):
    """The base of what the client raises on its own account."""


class MessageIllegal(ClientError):
    """Says which part of the message is wrong, and what is allowed."""


class CompressionMissing(ClientError):
    """A compression's package is missing: ``pip install 'quorate[client-compression]'`` brings both."""

    def __init__(self, words: str, library: str) -> None:
        super().__init__(words)
        self.library = library


class NoRoute(ClientError):
    """No broker has ``topic``, as the name server says."""

    def __init__(self, topic: str, why: str = "no name server knows it") -> None:
        super().__init__(f"topic {topic!r} has no route: {why}")
        self.topic = topic


class NoNameServer(ClientError):
    """No name server answered. Says what each of them came to."""


class Refused(ClientError):
    """A broker refused with ``code``: a ``remoting.codes.ResponseCode``, or a number that this version does not know.
    """

    def __init__(self, what: str, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{what}: {address} answered {code}: {remark or 'no remark'}")
        self.code, self.remark, self.address = code, remark, address


class DecisionRefused(Refused):
    """The half of a transaction is not there, or not this group's: whatever its body did, the message is lost."""


class Contradicted(ClientError):
    """The transaction ``message_id`` was decided otherwise before. Says which decision was made."""

    def __init__(self, message_id: str, why: str) -> None:
        super().__init__(f"transaction {message_id}: {why}")
        self.message_id = message_id


class NoReply(ClientError):
    """No reply came in time; one that comes later is thrown away.

    ``sent`` is where the request is stored; None: it may be stored or not."""

    def __init__(self, topic: str, timeout_ms: float, sent: Sent | None) -> None:
        super().__init__(f"{topic}: no reply within {timeout_ms:g} ms")
        self.sent = sent


class Unreachable(ClientError):
    """A broker could not be reached. Says which one, and why."""


class _NotSent(ClientError):
    def __init__(self, why: str, code: int | None = None, sent: Sequence[Sent] = ()) -> None:
        super().__init__(why)
        self.code = code
        """The last answer's, if the last attempt had one."""
        self.sent = tuple(sent)
        """The messages of a batch that are stored, as far as it came."""


class SendFailed(_NotSent):
    """The message is certainly not stored. Says why the last attempt failed."""


class SendUnknown(_NotSent):
    """The message may be stored or not. Sent again it may be stored twice; copies have one ``message_id``.

    No answer came, or it says that the broker holds the message and its replicas, or its disk, did not confirm it in
    time."""

    def __init__(
        self, why: str, message_id: str, code: int | None = None, sent: Sequence[Sent] = (), place: Sent | None = None,
    ) -> None:
        super().__init__(why, code, sent)
        self.message_id = message_id
        self.place = place
        """Place of the message at a broker that did not get it confirmed; None: no broker named one."""
