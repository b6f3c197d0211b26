"""The rules that every broker has, and the chains: which rules a message passes, in which order.

The order is Java's: dead letters, properties, what is refused, then where the message waits. A feature that makes
something else of messages, such as the delay levels, is a part with a rule of its own (``Part.rules``): these come
last, in the order of the parts. Where a rule here refuses what a new part serves, that rule goes.
Source: ``SendMessageProcessor``, ``AbstractSendMessageProcessor`` and ``HookUtils`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from broker.properties import (
    DELAY,
    INNER_NUM,
    LITE_TOPIC,
    POP_CK,
    PRIORITY,
    SHARDING_KEY,
    TRAN_MSG,
    UNIQ_KEY,
)
from broker.rules import NOT_YET, Chain, Draft, Refusal, Rule, Stop, rule
from broker.sending.answers import illegal, too_large
from broker.sending.config import SendingConfig
from broker.sending.needs import GroupLocks, Groups
from broker.sending.retries import retries_max
from broker.topics import names
from broker.topics.table import TopicTable
from remoting.codes import ResponseCode
from remoting.fields import decimal, shown
from remoting.record import INNER_BATCH, PREPARED, ROLLBACK, TOPIC_BYTES_MAX

SPECIAL = PREPARED | INNER_BATCH
"""Bits of ``sys_flag`` with which no message takes the short way; the first one is in those of a rollback too."""


def of_sends(dead_letters: DeadLetters, own: Own, unserved: Unserved, *of_parts: Rule) -> Chain:
    """Return the rules for one message that a producer sends, or a consumer for a retry. ``of_parts``: rules of other
    parts."""
    return Chain(
        rule(dead_letters.dead_letters),
        rule(own.own_properties, *own.values, POP_CK),
        rule(delay_level_is_read, DELAY),
        rule(unserved.inner_batches, INNER_NUM),
        rule(unserved.light_topics, LITE_TOPIC),
        rule(priority, PRIORITY),
        *of_parts,
    )


def of_batches(unserved: Unserved, *of_parts: Rule) -> Chain:
    """Return the rules for a batch, by the properties of its request. Rules only refuse here, and the sender refuses
    what one diverts: Java takes a batch with a timer, and never delivers it. The messages stay as they came."""
    return Chain(
        rule(topic_is_short),
        rule(no_retry_topic),
        rule(unserved.batch_in_transaction, TRAN_MSG),
        rule(delay_level_is_read, DELAY),
        rule(unserved.inner_batches, INNER_NUM),
        *of_parts,
    )


def of_given_back(*of_parts: Rule) -> Chain:
    """Return the rules for a message that a consumer gives back: it passed the other rules when it was stored first."""
    return Chain(*of_parts)


# --- what every broker does ----------------------------------------------------------------------------------


@attrs.frozen
class DeadLetters:
    """Sends messages of retry topics to the dead letters when they were tried too often."""

    topics: TopicTable
    groups: Groups
    locks: GroupLocks

    def dead_letters(self, draft: Draft) -> Stop | None:
        """A retry that was tried too often, or whose group consumes in order, goes to its group's dead letters.

        Of a group that consumes in order a message comes here when the consumer has given up on it.
        """
        name = draft.retry_of
        if name is None:
            return None
        group = self.groups.find(name)
        if group is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        most = retries_max(group, draft.version, draft.max_reconsume_times)
        if draft.reconsume_times <= most and not self.locks.held_by_group(name):
            return None
        topic = names.dlq_topic(name)
        if self.topics.get(topic) is None:
            self.topics.create_for_dead_letters(name)
            return NOT_YET
        draft.topic, draft.queue_id, draft.dead = topic, 0, True
        draft.properties[DELAY] = "-1"
        return None


@attrs.frozen
class Own:
    """The properties that each message gets from the broker that stores it."""

    values: Mapping[str, str]
    new_id: Callable[[], str]

    def own_properties(self, draft: Draft) -> None:
        """It loses `POP_CK`, and gets the broker's own properties and, if it has none, a unique id."""
        values = draft.properties
        values.pop(POP_CK, None)
        if not values.get(UNIQ_KEY):
            values[UNIQ_KEY] = self.new_id()
        values |= self.values


def delay_level_is_read(draft: Draft) -> Refusal | None:
    """A delay level that is no number is refused."""
    text = draft.properties.get(DELAY)
    if text is None:
        return None
    level = decimal(text)
    if level is None:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"DELAY is {shown(text)}; a delay level is a whole number")
    draft.level = level
    return None


def priority(draft: Draft) -> None:
    """A priority chooses the queue, unless there is a delay level or a sharding key."""
    asked = draft.properties.get(PRIORITY)
    if asked is None:
        return
    number = decimal(asked)
    if number is None or number < 0 or draft.level > 0 or SHARDING_KEY in draft.properties:
        del draft.properties[PRIORITY]
    else:
        draft.queue_id = min(number, max(0, draft.write_queues - 1))


# --- what is refused -----------------------------------------------------------------------------------------


@attrs.frozen
class Unserved:
    """Refuses what senders may ask for and no part serves."""

    config: SendingConfig

    def inner_batches(self, draft: Draft) -> Refusal | None:
        """A batch within a message is refused."""
        return self._illegal("INNER_NUM is for batches alone.") if INNER_NUM in draft.properties else None

    def light_topics(self, draft: Draft) -> Refusal | None:
        """Messages for a light topic are refused."""
        if LITE_TOPIC not in draft.properties:
            return None
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "this broker has no light topics (property __LITE_TOPIC)")

    def batch_in_transaction(self, draft: Draft) -> Refusal | None:
        """A batch takes no transaction, nor batches within its messages."""
        if draft.sys_flag & (ROLLBACK | INNER_BATCH) or _in_transaction(draft):
            return self._illegal("A batch takes no transaction.")
        return None

    def delayed_batch(self) -> Refusal:
        """A level or a timer would have it wait."""
        return self._illegal("A batch cannot be delayed.")

    def body(self, body: bytes, sys_flag: int) -> Refusal | None:
        """Return why no consumer could ever see a message with this body and these flags, or that it is too large."""
        if not body:
            return self._illegal("It has no body.")
        if sys_flag & INNER_BATCH:
            return self._illegal("It is a batch within a message, which no topic here takes.")
        if len(body) > self.config.max_message_size:
            return too_large(len(body), self.config.max_message_size)
        return None

    def prepared(self) -> Refusal:
        """Its flags say that it is a half, and no rule made it one."""
        return self._illegal("Its flags say that it is in a transaction, and its properties do not (TRAN_MSG).")

    def _illegal(self, reason: str) -> Refusal:
        return illegal(reason, self.config.max_message_size)


def topic_is_short(draft: Draft) -> Refusal | None:
    """A batch takes no topic of more than 127 characters."""
    if len(draft.topic) <= TOPIC_BYTES_MAX:
        return None
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(draft.topic)}")


def no_retry_topic(draft: Draft) -> Refusal | None:
    """A batch takes no retry topic."""
    if draft.retry_of is None:
        return None
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {draft.topic}")


def _in_transaction(draft: Draft) -> bool:
    asked = draft.properties.get(TRAN_MSG)
    return asked is not None and asked.lower() == "true"
