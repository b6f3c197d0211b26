"""Headers and bodies about consumers under the names that Java gives them, there and back."""

from __future__ import annotations

import pytest

from remoting.bodies.consumers import (
    CONSUME_TYPES,
    ConsumerData,
    ConsumerStatus,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    MessageQueueAssignment,
    ProducerData,
    ProducerInfo,
    QueryAssignmentResponseBody,
    ResetOffsetBody,
    SubscriptionData,
    named,
)
from remoting.bodies.queries import BrokerStatsData, BrokerStatsItem, ConsumeQueueData, OffsetWrapper, TopicStatsTable
from remoting.body import Body
from remoting.header import Header
from remoting.headers.consumers import (
    ConsumerClientRequest,
    GetAllSubscriptionGroupRequest,
    HeartbeatResponse,
    ResetOffsetRequest,
    UnregisterClientRequest,
)
from remoting.headers.pulling import PullMessageRequest, PullMessageResponse, QueryConsumerOffsetRequest
from remoting.headers.queries import QueryMessageRequest, QueryMessageResponse
from remoting.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    RecallMessageRequest,
    RecallMessageResponse,
)

QUEUE = MessageQueue("t", "b", 1)


@pytest.mark.parametrize(("body", "json"), [
    (HeartbeatData("c", [ProducerData("p")], [ConsumerData("g", "CONSUME_POP", "CLUSTERING", None, [SubscriptionData(
        "t", "a", frozenset({"a"}), frozenset({97}), 5)], True)], 7, True),
     '{"clientID":"c","consumerDataSet":[{"consumeType":"CONSUME_POP","groupName":"g","messageModel":"CLUSTERING",'
     '"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG","subString":"a",'
     '"subVersion":5,"tagsSet":["a"],"topic":"t"}],"unitMode":true}],"heartbeatFingerprint":7,'
     '"producerDataSet":[{"groupName":"p"}],"withoutSub":true}'),
    (LockBatchRequestBody("g", "c", [QUEUE], True),
     '{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":1,"topic":"t"}],"onlyThisBroker":true}'),
    (LockBatchResponseBody([]), '{"lockOKMQSet":[]}'),
    (ProducerInfo("c", "1.2.3.4:5", "CPP", 333, 9),
     '{"clientId":"c","language":"CPP","lastUpdateTimestamp":9,"remoteIP":"1.2.3.4:5","version":333}'),
    (QueryAssignmentResponseBody([MessageQueueAssignment(QUEUE)]),
     '{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":1,"topic":"t"},"mode":"PULL"}]}'),
    (QueryAssignmentResponseBody(), "{}"),
    (ResetOffsetBody({QUEUE: 3}), '{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:3}}'),
    (ConsumerStatus({QUEUE: 3}), '{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"t"}:3}}'),
    (TopicStatsTable(), '{"offsetTable":{},"topicPutTps":0.0}'),
    (OffsetWrapper(1, 2, 3, 4), '{"brokerOffset":1,"consumerOffset":2,"lastTimestamp":4,"pullOffset":3}'),
    (ConsumeQueueData(1, 2, 3), '{"eval":false,"physicOffset":1,"physicSize":2,"tagsCode":3}'),
    (BrokerStatsData(BrokerStatsItem(1, 2.0, 3.0)),
     '{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
     '"statsMinute":{"avgpt":3.0,"sum":1,"tps":2.0}}'),
])
def test_bodies(body: Body, json: str) -> None:
    assert body.to_json().decode() == json
    assert type(body).from_json(json.encode()) == body


@pytest.mark.parametrize(("header", "ext"), [
    (PullMessageRequest("g", "t", 1, 2, 3, 4, 5, 6, "s", 7, "TAG", 8, 9),
     {"consumerGroup": "g", "topic": "t", "queueId": "1", "queueOffset": "2", "maxMsgNums": "3", "sysFlag": "4",
      "commitOffset": "5", "suspendTimeoutMillis": "6", "subscription": "s", "subVersion": "7",
      "expressionType": "TAG", "maxMsgBytes": "8", "requestSource": "9"}),
    (PullMessageResponse(1, 2, 3, 4, None, 5, 6, 7),
     {"suggestWhichBrokerId": "1", "nextBeginOffset": "2", "minOffset": "3", "maxOffset": "4", "topicSysFlag": "5",
      "groupSysFlag": "6", "forbiddenType": "7"}),
    (QueryConsumerOffsetRequest("g", "t", 1, False),
     {"consumerGroup": "g", "topic": "t", "queueId": "1", "setZeroIfNotFound": "false"}),
    (HeartbeatResponse(is_sub_change=True), {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}),
    (UnregisterClientRequest("c", "p", "g"), {"clientID": "c", "producerGroup": "p", "consumerGroup": "g"}),
    (GetAllSubscriptionGroupRequest(1, "{}", 2), {"groupSeq": "1", "dataVersion": "{}", "maxGroupNum": "2"}),
    (ResetOffsetRequest("t", "g", 1, 2, 3, True),
     {"topic": "t", "group": "g", "queueId": "1", "offset": "2", "timestamp": "3", "isForce": "true"}),
    (ConsumerClientRequest("g", "c", "t", "m"), {"consumerGroup": "g", "clientId": "c", "topic": "t", "msgId": "m"}),
    (QueryMessageRequest("t", "k", 1, 2, 3, "K", "l", True),
     {"topic": "t", "key": "k", "maxNum": "1", "beginTimestamp": "2", "endTimestamp": "3", "indexType": "K",
      "lastKey": "l", "_UNIQUE_KEY_QUERY": "true"}),
    (QueryMessageResponse(1, 2), {"indexLastUpdateTimestamp": "1", "indexLastUpdatePhyoffset": "2"}),
    (EndTransactionRequest("p", 1, 2, 8, True, "m", "x", "t"),
     {"producerGroup": "p", "tranStateTableOffset": "1", "commitLogOffset": "2", "commitOrRollback": "8",
      "fromTransactionCheck": "true", "msgId": "m", "transactionId": "x", "topic": "t"}),
    (CheckTransactionStateRequest(1, 2, "m", "x", "o", "t"),
     {"tranStateTableOffset": "1", "commitLogOffset": "2", "msgId": "m", "transactionId": "x", "offsetMsgId": "o",
      "topic": "t"}),
    (RecallMessageRequest("t", "h", "p"), {"topic": "t", "recallHandle": "h", "producerGroup": "p"}),
    (RecallMessageResponse("m"), {"msgId": "m"}),
])
def test_headers(header: Header, ext: dict[str, str]) -> None:
    assert header.to_ext() == ext
    assert type(header).from_ext(ext) == header


def test_enums_by_name_or_number() -> None:
    for value, expected in (("CONSUME_POP", "CONSUME_POP"), ("1", "CONSUME_PASSIVELY"), ("3", "?"), ("x", "?"),
                            ("-1", "?"), (None, "?")):
        assert named(value, CONSUME_TYPES, "?") == expected
