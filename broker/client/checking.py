"""Asks brokers whether they take a consumer's expressions over properties, before it joins: code 46, as Java does.

It knows one question and its answer, and nothing of reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from broker.client.errors import NoRoute, Unreachable
from broker.client.session import Session
from remoting.bodies.consumers import TAG, CheckClientRequestBody, SubscriptionData
from remoting.codes import RequestCode
from remoting.command import request


async def check_expressions(session: Session, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
    """Ask a master of each topic that is filtered by properties. One that cannot be asked now will refuse pulls.

    Raises:
        Refused: with the broker's words; 1: it filters by tags alone, 23: it does not understand the expression.
    """
    for data in subscriptions:
        if data.expression_type == TAG:
            continue
        try:
            route = await session.routes.get(data.topic)
        except NoRoute:
            continue
        for name in sorted({queue.broker_name for queue in route.readable}):
            address = route.master(name)
            if address is None:
                continue
            body = CheckClientRequestBody(session.client_id, group, data).to_json()
            with suppress(Unreachable):
                await session.ask(f"subscription of {data.topic}", address, request(
                    RequestCode.CHECK_CLIENT_CONFIG, body=body))
                break
