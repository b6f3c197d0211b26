"""Fuzz targets of the broker and its client: both replication protocols in both roles, configuration, pulled records.

The promises are those of ``fuzz.targets``. State machines are driven as their shells drive them: what they ask for is
done on a log that is only a length, and what they say of it must stay true.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final

from broker.client.errors import ClientError
from broker.client.message import Received
from broker.client.route import route_of
from broker.config import BrokerConfig, check, from_properties, to_properties
from broker.ha.config import HaConfig
from broker.ha.epochs import Epoch, EpochList
from broker.ha.insync import InSync
from broker.ha.master import Close as CloseConnection
from broker.ha.master import HaMaster, Idle, LogView
from broker.ha.slave import AppendLog, Connect, Disconnect, HaSlave, NoEpochs, Output, SetConfirm, TruncateLog
from broker.ha.wire import (
    ACK,
    Ack,
    Block,
    Blocks,
    HaFrameError,
    HaState,
    MasterHandshake,
    MasterMessages,
    Reports,
    SlaveHandshake,
    SlaveMessages,
    Transfer,
    report,
)
from broker.plain.master import MasterCore
from broker.plain.slave import SlaveCore
from fuzz.store_targets import sealed
from fuzz.target import Target
from remoting import properties, record
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicRouteData
from remoting.daemon.keys import ConfigError
from remoting.errors import BodyError, DamagedRecord, HeaderError
from remoting.headers.pulling import PullMessageResponse
from remoting.record import COMPRESSED, Message

_HA: Final = HaConfig()
_EPOCHS: Final = EpochList([(1, 0), (2, 100), (5, 300)])
_ODD: Final = (0, 1, 99, 100, 101, 200, 300, 400, 500, 501, -1, 1 << 31, (1 << 63) - 1, -(1 << 63), 5, 2)


def _pieces(data: bytes) -> Iterable[bytes]:
    """The first byte says where to cut."""
    cut = len(data) * data[0] >> 8 if data else 0
    return data[1:cut], data[max(1, cut) :]


def _numbers(data: bytes) -> list[int]:
    return [_ODD[byte & 15] if byte < 0xE0 else byte for byte in data]


# --- masters -----------------------------------------------------------------------------------------------------


def _slave_words(data: bytes) -> bytes:
    """Messages of slaves, two bytes each."""
    numbers = _numbers(data)
    out = bytearray()
    for kind, value in zip(numbers[::2], numbers[1::2], strict=False):
        if kind % 3 == 0:
            out += struct.pack(">ihhq", 1, kind & 1, 0, value)
        else:
            out += ACK.pack(HaState.TRANSFER, value)
    return bytes(out)


def check_ha_master(data: bytes) -> None:
    """Two connections of slaves; what each says comes in pieces."""
    in_sync = InSync(self_id=1, config=_HA, accepted=frozenset({1, 2}), accepted_epoch=3, epoch_start=300, confirm=200,
                     log_end=400, durable_end=400, started_ns=0)
    master = HaMaster(_HA, in_sync, _EPOCHS)
    log = LogView(0, 400, 300, 1 << 20)
    half = len(data) // 2
    gone: set[int] = set()
    for number, part in enumerate((data[:half], data[half:])):
        master.opened(number, number)
        raw = part[1:] if part[:1] < b"\x80" else _slave_words(part[1:])
        decoder = SlaveMessages()
        try:
            for piece in _pieces(part[:1] + raw):
                for message in decoder.feed(piece):
                    if number in gone:
                        return
                    for close in master.received(number, message, 1_000):
                        gone.add(close.connection)
                        master.closed(close.connection)
                    while number not in gone:
                        sent = master.next_send(number, log, 2_000)
                        if isinstance(sent, Idle):
                            break
                        if isinstance(sent, CloseConnection):
                            gone.add(number)
                            master.closed(number)
                        elif not isinstance(sent, MasterHandshake):
                            assert 0 <= sent.offset <= sent.offset + sent.size <= 400
        except HaFrameError as error:
            said = str(error)
            assert len(said) < 300
        assert in_sync.confirm <= 400
        master.tick(1 << 50)


def check_plain_master(data: bytes) -> None:
    master = MasterCore(_HA, 400, 400)
    log = LogView(0, 400, 300, 1 << 20)
    master.opened(1, "h", 0)
    raw = data[1:] if data[:1] < b"\x80" else b"".join(struct.pack(">q", number) for number in _numbers(data[1:]))
    decoder = Reports()
    try:
        for piece in _pieces(data[:1] + raw):
            offset = decoder.feed(piece)
            if offset is None:
                continue
            if master.reported(1, offset, 1_000):
                return
            while not isinstance(sent := master.next_send(1, log, 2_000), Idle | CloseConnection):
                assert 0 <= sent.offset <= sent.offset + sent.size <= 400
            assert master.ack(1) <= 400 and master.holders(401) == 0
    except HaFrameError as error:
        said = str(error)
        assert len(said) < 300


# --- slaves ------------------------------------------------------------------------------------------------------


def _master_words(data: bytes) -> bytes:
    """Messages of a master under a controller: a handshake, then frames of six bytes each."""
    numbers = _numbers(data)
    pairs = zip(numbers[1:7:2], numbers[2:8:2], strict=False)
    epochs = [(abs(epoch) & 7, abs(start) % 1_000) for epoch, start in pairs]
    out = bytearray(struct.pack(">iiqi", 1, 12 * len(epochs), numbers[0] if numbers else 0, 5))
    for entry in epochs:
        out += struct.pack(">iq", *entry)
    rest = numbers[7:]
    for size, offset, epoch, start, confirm, _ in zip(*[iter(rest)] * 6, strict=False):
        size, epoch = abs(size) % 64, epoch & 7
        out += struct.pack(">iiqiqq", 2, size, offset, epoch, start, confirm) + bytes(size)
    return bytes(out)


def _done(slave: HaSlave | SlaveCore, outputs: list[Output], length: int) -> tuple[int, bool]:
    """Carry out what a slave wants; its log's length, and whether the connection stands."""
    standing = True
    todo = list(outputs)
    for _ in range(50):
        if not todo:
            break
        output = todo.pop(0)
        match output:
            case TruncateLog():
                assert 0 <= output.point <= length
                length = output.point
                todo = slave.truncated(length, 5) + todo
            case AppendLog():
                assert output.offset == length or length == 0
                length = output.offset + len(output.body)
                todo = slave.stored(length, 5) + todo
            case SetConfirm():
                assert output.confirm <= length
            case Disconnect():
                said = output.reason
                assert said and len(said) < 400
                standing = False
            case _:
                pass
    return length, standing


def _feed(slave: HaSlave | SlaveCore, decoder: MasterMessages | Blocks, raw: bytes, length: int) -> None:
    """Carry out what the slave makes of a master's words, which come in pieces, until it hangs up."""
    length, standing = _done(slave, slave.connected(1), length)
    try:
        for piece in _pieces(raw):
            for message in decoder.feed(piece):
                length, standing = _done(slave, slave.received(message, 2), length)  # type: ignore[arg-type]
                assert slave.log_end == length
                if isinstance(slave, HaSlave):
                    assert slave.confirm <= length
                if not standing:
                    return
    except HaFrameError as error:
        said = str(error)
        assert len(said) < 400
    slave.tick(1 << 50)


def check_ha_slave(data: bytes) -> None:
    kind = data[0] if data else 0
    length = (0, 400)[kind & 1]
    epochs = (EpochList(), _EPOCHS)[kind >> 1 & 1] if length else EpochList()
    slave = HaSlave(_HA, 2, epochs, length, 200, no_epochs=(NoEpochs.LOST, NoEpochs.PLAIN)[kind >> 2 & 1])
    assert isinstance(slave.follow("h:1", 0)[0], Connect)
    raw = data[1:] if kind < 0x80 else _master_words(data[1:])
    _feed(slave, MasterMessages(1 << 16), bytes([kind]) + raw, length)


def check_plain_slave(data: bytes) -> None:
    kind = data[0] if data else 0
    length = (0, 400)[kind & 1]
    slave = SlaveCore(_HA, length)
    assert isinstance(slave.follow("h:1", 0)[0], Connect)
    raw = data[1:]
    if kind >= 0x80:
        numbers = _numbers(raw)
        raw = b"".join(struct.pack(">qi", offset, abs(size) % 64) + bytes(abs(size) % 64)
                       for offset, size in zip(numbers[::2], numbers[1::2], strict=False))
    _feed(slave, Blocks(1 << 16), bytes([kind]) + raw, length)


def _ha_seeds() -> list[bytes]:
    slave = SlaveHandshake(2).to_bytes() + Ack(0).to_bytes() + Ack(300).to_bytes()
    master = MasterHandshake(400, _EPOCHS).to_bytes() + Transfer(400, Epoch(5, 300), 300, b"x" * 20).to_bytes()
    blocks = Block(400, b"abc").to_bytes() + Block(403).to_bytes()
    return [*(bytes([kind]) + words for kind in (0, 1, 3, 7) for words in (slave, master, blocks, report(300))),
            *(bytes([kind]) + bytes(40) for kind in (0x80, 0x81, 0x83, 0x87))]


# --- configuration -----------------------------------------------------------------------------------------------

_START: Final = BrokerConfig(broker_name="a", broker_ip1="10.0.0.1")


def check_broker_config(data: bytes) -> None:
    try:
        given = properties.parse(data.decode(errors="replace"))
        made = from_properties(given, start=_START)
        check(made)
    except ConfigError as error:
        said = str(error)
        assert len(said) < 3_000
        return
    except ValueError:
        return
    written = to_properties(made)
    assert to_properties(from_properties(written, start=_START)) == written


def _configs() -> list[bytes]:
    whole = "\n".join(f"{key}={value}" for key, value in to_properties(_START).items()).encode()
    return [b"brokerName=b\nlistenPort=1\n", b"enableControllerMode=true\ncontrollerAddr=h:1;i:2\nmasterLeaseMs=0\n",
            b"brokerRole=SLAVE\nbrokerId=1\nnamesrvAddr=h:1\nmessageDelayLevel=1s 2m\ndeleteWhen=04;05\n",
            *(whole[at : at + 300] for at in range(0, len(whole), 300))]


# --- the client --------------------------------------------------------------------------------------------------

_QUEUE: Final = MessageQueue("T", "a", 0)


def check_client_answers(data: bytes) -> None:
    """Records of a pull, a route, an answer's header."""
    kind, raw = data[0] if data else 0, data[1:]
    if kind % 3 == 0:
        try:
            found = record.decode_all(sealed(raw) if kind & 0x80 else raw)
        except DamagedRecord:
            return
        for each in found:
            try:
                received = Received(each, _QUEUE, 1 << 16, None)
                assert len(received.body) <= max(1 << 16, each.size)
            except ClientError as error:
                said = str(error)
                assert len(said) < 500
                continue
            said = repr((received, received.born_host, received.tag, received.keys, received.properties))
            assert said
    elif kind % 3 == 1:
        try:
            route = route_of("T", TopicRouteData.from_json(raw))
        except BodyError:
            return
        for queue in route.sendable[:10]:
            assert route.master(queue.broker_name) is not None and route.address(queue.broker_name)
    else:
        ext = dict(part.split("=", 1) for part in raw.decode(errors="replace").split("\0") if "=" in part)
        try:
            PullMessageResponse.from_ext(ext)
        except HeaderError as error:
            said = str(error)
            assert len(said) < 300


def _answers() -> list[bytes]:
    packed = record.encode(Message(b"T", zlib.compress(b"x" * 50), sys_flag=COMPRESSED), 0, 0, 1)
    lz4 = record.encode(Message(b"T", b"\x04\x22\x4d\x18" + bytes(20), sys_flag=COMPRESSED | 1 << 8), 0, 0, 1)
    return [b"\0" + packed, b"\0" + packed + lz4, b"\x81" + bytes([9, 1, 4, 0]) * 40,
            b'\1{"brokerDatas":[{"brokerName":"a","brokerAddrs":{0:"h:1"}}],"queueDatas":[{"brokerName":"a",'
            b'"readQueueNums":4,"writeQueueNums":4,"perm":6}],"orderTopicConf":"a:3"}',
            b"\2suggestWhichBrokerId=0\0nextBeginOffset=5\0minOffset=0\0maxOffset=9"]


BROKER_TARGETS: Final[dict[str, Target]] = {
    "ha-master": Target("HaMaster behind SlaveMessages", check_ha_master, _ha_seeds, 256),
    "ha-slave": Target("HaSlave behind MasterMessages", check_ha_slave, _ha_seeds, 256),
    "ha-plain-master": Target("MasterCore behind Reports", check_plain_master, _ha_seeds, 256),
    "ha-plain-slave": Target("SlaveCore behind Blocks", check_plain_slave, _ha_seeds, 256),
    "broker-config": Target("broker.config.from_properties, check", check_broker_config, _configs, 400),
    "client-answers": Target("broker.client: pulled records, routes, headers", check_client_answers, _answers, 600),
}
