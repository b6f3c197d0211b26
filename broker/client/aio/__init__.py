"""The client for programs that live on asyncio: the names of ``broker.client``, each meaning what it means there.

    client = await broker.client.aio.connect(["127.0.0.1:9876"])
    sent = await client.send(Message("orders", b"..."))
    await client.aclose()

Settings, messages and errors are those of ``broker.client``. Trio runs as a guest on the asyncio loop, in its thread.
"""

from broker.client.aio.client import AioClient as Client
from broker.client.aio.client import AioMessages as Messages
from broker.client.aio.client import AioPopper as Popper
from broker.client.aio.client import AioPuller as Puller
from broker.client.aio.client import AioTransactions as Transactions
from broker.client.aio.client import connect
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
from broker.client.popping import Popped
from broker.client.positions import Start
from broker.client.requesting import Reply
from broker.client.transactions import Checker, Outcome, Transaction
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
