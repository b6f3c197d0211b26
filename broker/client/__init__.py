"""A trio client for RocketMQ's protocol: send, consume, pop, pull, look.

    async with broker.client.connect(["127.0.0.1:9876"]) as client:
        sent = await client.send(Message("orders", b"...", tag="new", keys=["42"]))
        async with client.consume("billing", {"orders": "new || changed"}) as messages:
            async for message in messages:
                ...
                message.ack()
"""

from broker.client.client import Client, connect
from broker.client.config import ClientSettings, ConsumerSettings
from broker.client.decisions import Decision
from broker.client.errors import (
    ClientError,
    CompressionMissing,
    Contradicted,
    DecisionRefused,
    MessageIllegal,
    NoNameServer,
    NoReply,
    NoRoute,
    Refused,
    SendFailed,
    SendUnknown,
    Unreachable,
)
from broker.client.faults import Sparing
from broker.client.inflight import FlowLimits
from broker.client.message import Message, Received, Sent
from broker.client.messages import Messages
from broker.client.popping import Popped, Popper
from broker.client.positions import Start
from broker.client.pulling import Puller
from broker.client.requesting import Reply
from broker.client.transactions import Checker, Outcome, Transaction, Transactions
from remoting.bodies.consumers import MessageQueue
from remoting.compression import Compression
from remoting.subscription import Sql

__all__ = [
    "Checker",
    "Client",
    "ClientError",
    "ClientSettings",
    "Compression",
    "CompressionMissing",
    "ConsumerSettings",
    "Contradicted",
    "Decision",
    "DecisionRefused",
    "FlowLimits",
    "Message",
    "MessageIllegal",
    "MessageQueue",
    "Messages",
    "NoNameServer",
    "NoReply",
    "NoRoute",
    "Outcome",
    "Popped",
    "Popper",
    "Puller",
    "Received",
    "Refused",
    "Reply",
    "SendFailed",
    "SendUnknown",
    "Sent",
    "Sparing",
    "Sql",
    "Start",
    "Transaction",
    "Transactions",
    "Unreachable",
    "connect",
]
