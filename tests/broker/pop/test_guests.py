"""Which checkpoints of other groups' messages a master takes: those whose messages somebody would look for here."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from broker.store.tables import SubscriptionGroup
from harness.simulation.worlds.brokers import cluster, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from tests.broker.pop.poppers import reviving


@pytest.mark.parametrize(("what", "words"), [
    ("topic", "topic[U] not exist here"), ("permission", "the topic[T] cannot be read here"),
    ("group", "subscription group [G] does not exist"), ("consuming", "subscription group no permission, G"),
    ("at", "topic[U] not exist here"), ("own", ""), ("ack", "")])
async def test_which_checkpoints_of_others_are_taken(what: str, words: str, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(autoCreateSubscriptionGroup="false")
        await made.send(node.address, b"before")
        if what != "group":
            node.groups.update([SubscriptionGroup("G", consume_enable=what != "consuming")])
        if what == "permission":
            node.topics.update([TopicConfig("T", 1, 1, 2)])
        topic, broker = "U" if what in ("topic", "at") else "T", {"own": "a", "at": "eu@b"}.get(what, "b")
        names = f"%RETRY%G_{topic}@0@1@G@5@{broker}@ck"
        answer = await made.send(
            node.address, b"{}", topic=reviving(node).topic,
            properties=f"TAGS\x01{'ack' if what == 'ack' else 'ck'}\x02UNIQ_KEY\x01{names}\x02"
                       f"TIMER_DELIVER_MS\x01{wall_ms() + 10_000}\x02")
        assert (answer.code == ResponseCode.SUCCESS, answer.remark or "") == (not words, words), answer
