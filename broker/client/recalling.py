"""Taking a delayed message back: one request to the master of the group that holds it, repeated in a failover.

A shell. A recall that reaches a broker twice is one: its marker is put beside the message, and both are thrown away.
"""

from __future__ import annotations

import trio

from broker.client.errors import MessageIllegal, Refused, Unreachable
from broker.client.handles import RecallHandle, read_handle
from broker.client.message import Sent
from broker.client.outcomes import Next, of_answer
from broker.client.session import CALL_TIMEOUT_MS, Session
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import HeaderError
from remoting.headers.transactions import RecallMessageRequest, RecallMessageResponse


async def recall(session: Session, sent: Sent | str) -> str:
    """Take a delayed message back, and return its id.

    Raises ``MessageIllegal``, ``Refused``, ``Unreachable``, ``NoRoute``, ``NoNameServer``."""
    text = sent.recall_handle if isinstance(sent, Sent) else sent
    if text is None:
        raise MessageIllegal("the broker gave no handle for it: it does not wait there, or waits for a delay level")
    handle = read_handle(text)
    deadline = trio.current_time() + CALL_TIMEOUT_MS / 1e3
    while True:
        try:
            return await _ask(session, handle)
        except (Refused, Unreachable) as error:
            if (isinstance(error, Refused) and not _passes(error)) or (
                    session.routes.over or trio.current_time() >= deadline):
                raise
        await session.routes.renew(handle.topic)


async def _ask(session: Session, handle: RecallHandle) -> str:
    route = session.routes.cached(handle.topic) or await session.routes.get(handle.topic)
    what, address = f"recall of {handle.message_id}", route.master(handle.broker)
    if address is None:
        raise Unreachable(f"{what}: no master of {handle.broker} is known")
    answer = await session.ask(what, address, request(
        RequestCode.RECALL_MESSAGE, RecallMessageRequest(handle.topic, handle.text, session.producer_group)))
    try:
        return RecallMessageResponse.from_ext(answer.ext).msg_id
    except HeaderError as error:
        raise Refused(what, answer.code, f"an answer that makes no sense: {error}", address) from None


def _passes(refused: Refused) -> bool:
    """Return whether a failover explains the refusal: a slave refuses, a broker that is not master yet, or one that has
    not heard of the topic."""
    return (refused.code in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST)
            or of_answer(refused.code, refused.remark).next is Next.WAIT)
