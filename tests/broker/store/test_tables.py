"""Tables in JSON: what a Java broker wrote is read, what we write is read again, damage falls back."""

from __future__ import annotations

import pytest

from broker.store.errors import WrongStore
from broker.store.files import MemoryFiles
from broker.store.tables import (
    PATHS,
    ConsumerOffsets,
    DelayOffsets,
    SubscriptionGroup,
    SubscriptionGroups,
    Topics,
    load,
    save,
)
from remoting.bodies.consumers import MessageRequestMode, MessageRequestModes
from remoting.bodies.namesrv import DataVersion, TopicConfig
from remoting.body import Body

AS_JAVA = {  # the dialect of fastjson 2 in RocketMQ 5.5.0: tabs, bare numeric keys, a break before a closing brace
    Topics: b'{\n\t"dataVersion":{\n\t\t"counter":2,\n\t\t"stateVersion":0,\n\t\t"timestamp":7\n\t},\n\t"topicConfig'
            b'Table":{\n\t\t"Orders":{\n\t\t\t"attributes":{},\n\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":4,'
            b'\n\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"Orders",\n\t\t\t"topicSysFlag":0,\n\t\t\t'
            b'"writeQueueNums":4\n\t\t}\n\t}\n}',
    SubscriptionGroups: b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},"forbiddenTable":{"g":{"t":1}},\n'
                        b'"subscriptionGroupTable":{"g":{"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},'
                        b'"retryMaxTimes":3}}}',
    ConsumerOffsets: b'{\n\t"dataVersion":{"counter":0,"stateVersion":0,"timestamp":7},\n\t"groupTopicMap":{\n\t\t'
                     b'"receiver":["Orders"]\n\t},\n\t"offsetTable":{\n\t\t"Orders@receiver":{0:150,1:143,2:150,3:150\n'
                     b'\t\t}\n\t}\n}',
    DelayOffsets: b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":7},"offsetTable":{1:3,18:4}}',
    MessageRequestModes: b'{\n\t"messageRequestModeMap":{\n\t\t"Orders":{\n\t\t\t"receiver":{\n'
                         b'"consumerGroup":"receiver","mode":"POP","popShareQueueNum":4,"topic":"Orders"\n\t\t\t}\n\t\t}\n\t}\n}',
}
MEANT: list[Body] = [
    Topics({"Orders": TopicConfig("Orders", 4, 4)}, DataVersion(0, 7, 2)),
    SubscriptionGroups({"g": SubscriptionGroup("g", retry_max_times=3)}, {"g": {"t": 1}}, DataVersion(0, 7, 1)),
    ConsumerOffsets({"Orders@receiver": {0: 150, 1: 143, 2: 150, 3: 150}}, {}, {"receiver": ["Orders"]},
                    DataVersion(0, 7, 0)),
    DelayOffsets({1: 3, 18: 4}, DataVersion(0, 7, 0)),
    MessageRequestModes({"Orders": {"receiver": MessageRequestMode("Orders", "receiver", "POP", 4)}}),
]


@pytest.mark.parametrize("meant", MEANT, ids=lambda meant: type(meant).__name__)
def test_as_java_writes_it_and_back(meant: Body) -> None:
    files = MemoryFiles()
    files.open(PATHS[type(meant)], create=True).pwrite(AS_JAVA[type(meant)], 0)
    assert load(files, type(meant)) == meant
    save(files, meant)
    assert load(files, type(meant)) == meant
    assert bytes(files.content[f"{PATHS[type(meant)]}.bak"].data) == AS_JAVA[type(meant)]


@pytest.mark.parametrize("table", PATHS)
def test_nothing_there_damage_and_the_copy(table: type[Body]) -> None:
    files = MemoryFiles()
    assert load(files, table) == table()
    files.open(f"{PATHS[table]}.bak", create=True)  # empty, as Java leaves it
    assert load(files, table) == table()
    files.open(PATHS[table], create=True).pwrite(b'{"offsetTable', 0)
    with pytest.raises(WrongStore, match=r"cannot be read, nor its \.bak"):
        load(files, table)
    files.open(f"{PATHS[table]}.bak").pwrite(AS_JAVA[table], 0)
    assert load(files, table) in MEANT
