"""The part of request-reply: pushes replies to their requesters, and stores them in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.part import Part, Parts, Shared
from broker.replies.replying import Replies
from broker.sending.part import SendingPart
from broker.standing import Role
from broker.topics.part import TopicsPart
from remoting.codes import RequestCode
from remoting.daemon.keys import key
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


@attrs.frozen(kw_only=True)
class RepliesKeys:
    """The broker's configuration keys that belong to request-reply."""

    store_reply_message_enable: bool = key(True, "replies to requests are stored in `{cluster}_REPLY_TOPIC`, too",
                                           live=True)


class RepliesPart(Part):
    """Handles replies on a master."""

    keys = RepliesKeys
    passed_on = frozenset((int(RequestCode.SEND_REPLY_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE_V2)))

    def __init__(self, shared: Shared, before: Parts) -> None:
        config, self._now_ns = shared.config, shared.now_ns
        self.replies = Replies(
            before[SendingPart].sending, before[ClientsPart].producers, shared.puts, before[TopicsPart].file.saved,
            (config.store_ip, config.listen_port), shared.rng, now_ns=shared.now_ns, wall_ms=shared.wall_ms)

    def handlers(self) -> Mapping[int, Handler]:
        return self.replies.handlers()

    def metrics(self, page: Page) -> Iterator[Metric]:
        counters = self.replies.counters
        yield page.counter("broker_replies_pushed", "Replies that their requester got. Ours.", [((), counters.pushed)])
        yield page.counter("broker_replies_not_pushed", "Replies that their requester did not get. Ours.",
                           [((), counters.not_pushed)])
        yield page.counter("broker_replies_waited", "Replies that waited for their requester's first heartbeat. Ours.",
                           [((), counters.waited)])

    def configure(self, config: BrokerConfig) -> None:
        self.replies.store = pick(config, RepliesKeys).store_reply_message_enable

    def role_changed(self, role: Role) -> None:
        if role.leads:
            self.replies.absent.now_master(self._now_ns())
