"""From a name server's answer to queues and addresses."""

from __future__ import annotations

from broker.client.route import route_of
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import BrokerData, QueueData, TopicRouteData


def data(*queues: QueueData, brokers: dict[str, dict[int, str]], order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        list(queues), [BrokerData(name, "c", addresses) for name, addresses in brokers.items()], order_topic_conf=order)


A, B = {0: "a:1", 1: "a:2"}, {1: "b:2", 3: "b:3"}


def test_queues_are_those_that_permissions_and_numbers_say() -> None:
    route = route_of("t", data(
        QueueData("b", 3, 1, 6), QueueData("a", 1, 2, 6), QueueData("r", 2, 2, 4), QueueData("w", 2, 2, 2),
        QueueData("gone", 4, 4, 6), brokers={"a": A, "b": B, "r": A, "w": A}))
    assert [(each.broker_name, each.queue_id) for each in route.readable] == [
        ("a", 0), ("b", 0), ("b", 1), ("b", 2), ("r", 0), ("r", 1)]
    assert [(each.broker_name, each.queue_id) for each in route.writable] == [
        ("a", 0), ("a", 1), ("b", 0), ("w", 0), ("w", 1)]
    assert [(each.broker_name, each.queue_id) for each in route.sendable] == [("a", 0), ("a", 1), ("w", 0), ("w", 1)]


def test_addresses_fall_back_to_the_master_and_then_to_anyone() -> None:
    route = route_of("t", data(brokers={"a": A, "b": B, "empty": {}}))
    assert (route.master("a"), route.master("b"), route.master("nobody")) == ("a:1", None, None)
    assert route.address("a", 1) == ("a:2", 1)
    assert route.address("a", 7) == ("a:1", 0)
    assert route.address("b") == ("b:2", 1)
    assert route.address("b", 3) == ("b:3", 3)
    assert route.address("empty") is route.address("nobody") is None


def test_an_ordered_topic_has_the_queues_that_were_fixed_for_it() -> None:
    route = route_of("t", data(QueueData("a", 8, 8, 6), brokers={"a": A, "b": B}, order="a:2;nobody:9;b:1;"))
    assert route.writable == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))


def test_a_template_gives_each_group_so_many_queues_at_most() -> None:
    route = route_of("new", data(QueueData("a", 8, 8, 7), QueueData("b", 2, 2, 7), brokers={"a": A, "b": B}),
                     queues_max=4)
    assert [(each.broker_name, each.queue_id) for each in route.writable] == [
        ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)]
    assert {each.topic for each in route.writable} == {"new"}
