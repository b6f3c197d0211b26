"""The topic of a send, on a table alone; and the other steps of a send that need no broker."""

from __future__ import annotations

import pytest

from broker.rules import NOT_YET, Refusal
from broker.sending.answers import Answers
from broker.sending.batches import decoded
from broker.sending.request import V2, SendRequest, decode
from broker.sending.sendback import next_try
from broker.sending.shortway import ShortWay
from broker.sending.targets import Target, Targets
from broker.topics import TopicsConfig, TopicTable
from remoting.bodies.namesrv import TopicConfig
from remoting.record import Message, Record, decode_properties, encode_batch


def table() -> TopicTable:
    topics = TopicTable(TopicsConfig(), lambda: 0)
    topics.update([TopicConfig("Orders", 2, 4), TopicConfig("Many", 4, 4, topic_filter_type="MULTI_TAG"),
                   TopicConfig("%RETRY%g", 1, 1)])
    return topics


def asks(topic: str, **ext: str) -> SendRequest:
    return decode({"b": topic, "c": "TBW102", **ext}, V2)


@pytest.mark.parametrize(("topic", "target"), [
    ("Orders", Target(b"Orders", 4, 4, 0, None)), ("Many", Target(b"Many", 4, 4, 2, None)),
    ("%RETRY%g", Target(b"%RETRY%g", 1, 1, 0, "g")),
])
def test_a_topic_that_is_there(topic: str, target: Target) -> None:
    targets = Targets(table(), (), "1.2.3.4")
    assert targets.find(asks(topic)) == target == targets.known[topic]


def test_a_topic_that_is_not_there_is_made_and_waited_for() -> None:
    topics, waiting = table(), set[str]()
    targets = Targets(topics, waiting, "1.2.3.4")
    assert targets.find(asks("New", d="3")) == NOT_YET and not targets.known
    assert topics.topics["New"].write_queue_nums == 3
    waiting.add("New")
    assert targets.find(asks("New")) == NOT_YET, "whoever comes meanwhile waits, too"
    waiting.clear()
    assert isinstance(targets.find(asks("New")), Target)


def test_a_topic_that_may_not_be_sent_to() -> None:
    topics = table()
    targets = Targets(topics, (), "1.2.3.4")
    for asked, code in (("a b", 29), ("SCHEDULE_TOPIC_XXXX", 16), ("%DLQ%" + "g" * 123, 13)):
        topics.create_if_absent("%DLQ%" + "g" * 123, 1)
        refused = targets.find(asks(asked))
        assert isinstance(refused, Refusal) and refused.code == code
    assert targets.find(asks("New", c="Orders")) == Refusal(17, "topic[New] not exist, apply first please!")
    topics.set_ordered(["Orders"])
    targets.permission = 4
    assert targets.find(asks("Orders")) == Refusal(16, "the broker[1.2.3.4] sending message is forbidden")


@pytest.mark.parametrize(("queue_id", "write_queues", "refused"), [
    (3, 2, False), (4, 2, True), (-1, 2, False), (-1, 0, True), (0, 0, False)])
def test_a_queue_that_a_topic_does_not_have(queue_id: int, write_queues: int, refused: bool) -> None:
    assert (Target(b"t", 4, write_queues, 0, None).has_no(queue_id, "t", "peer") is not None) is refused


@pytest.mark.parametrize(("text", "taken"), [
    ("UNIQ_KEY\x01u\x02TAGS\x01a", (b"UNIQ_KEY\x01u\x02TAGS\x01a\x02OWN\x01o\x02", "u", True)),
    ("UNIQ_KEY\x01u\x02", (b"UNIQ_KEY\x01u\x02OWN\x01o\x02", "u", True)),
    ("UNIQ_KEY\x01u\x02WAIT\x01false\x02", (b"UNIQ_KEY\x01u\x02WAIT\x01false\x02OWN\x01o\x02", "u", False)),
    ("", None), ("TAGS\x01a\x02", None), ("UNIQ_KEY\x01u\x02DELAY\x011\x02", None), ("UNIQ_KEY\x01u\x02junk", None),
])
def test_the_short_way(text: str, taken: tuple[bytes, str, bool] | None) -> None:
    assert ShortWay(frozenset({"DELAY", "OWN"}), {"OWN": "o"}).taken(text) == taken


def test_the_messages_of_a_batch() -> None:
    common = Message(b"Orders", b"", 1, b"")
    found = decoded(encode_batch([(7, b"x", b"p"), (0, b"y", b"")]), common, 10)
    assert not isinstance(found, Refusal)
    assert [(message.topic, message.body, message.flag) for message in found] == [
        (b"Orders", b"x", 7), (b"Orders", b"y", 0)]
    for body in (b"", b"\0\0\0\1", encode_batch([(0, b"x" * 11, b"")])):
        refused = decoded(body, common, 10)
        assert isinstance(refused, Refusal) and refused.code == 13


@pytest.mark.parametrize(("level", "dead", "delay"), [(0, False, "5"), (7, False, "7"), (-1, True, "0")])
def test_the_next_try_of_what_is_given_back(level: int, dead: bool, delay: str) -> None:
    message = Message(b"Orders", b"x", 1, b"UNIQ_KEY\x01u\x02WAIT\x01true\x02", reconsume_times=2, sys_flag=8)
    draft = next_try(Record(message, 0, 0, 77, 0, 0), "%RETRY%g", 3, level, dead)
    assert (draft.topic, draft.queue_id, draft.sys_flag, draft.reconsume_times) == ("%RETRY%g", 3, 8, 3)
    assert draft.properties["DELAY"] == delay == str(draft.level)
    assert (draft.properties["WAIT"], draft.properties["RETRY_TOPIC"]) == ("false", "Orders")
    assert decode_properties(message.properties)["WAIT"] == "true"


def test_refusals_are_counted_and_have_what_every_answer_has() -> None:
    answers = Answers({"MSG_REGION": "here"}, bytes(8))
    answer = answers.refused(Refusal(16, "no"))
    assert (answer.code, answer.remark, answer.ext) == (16, "no", {"MSG_REGION": "here"})
    assert answers.counters.refused == 1
