"""Configuration files of Java name servers, controllers and brokers, with RocketMQ's own keys. Text in, text out.

Every size is small, for several brokers share one test machine; ``extra`` of each function wins over what is set here.
It opens no file and starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

Value = str | int | bool | Path
ControllerType = Literal["DLedger", "jRaft"]

COMMITLOG_FILE_BYTES: Final = 8 << 20
CONTROLLER_FILE_BYTES: Final = 4 << 20
WITHOUT_TIMERS: Final[Mapping[str, Value]] = {
    "timerWheelEnable": False,  # else each broker makes a timer log of 100 MiB
    "reviveQueueNum": 1,  # else nine threads look for POP messages every second
}
"""POP needs timers. A broker that has them reads as many revive queues as its peers fill: Java's passes over others."""


def properties(settings: Mapping[str, Value]) -> str:
    """Java properties text, sorted by key. Backslashes are doubled, as the format wants.

    Raises:
        ValueError: a key or a value with a line break, which no properties line can hold as it is.
    """
    lines = []
    for key, value in sorted(settings.items()):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "\n" in text or "\n" in key or "=" in key:
            raise ValueError(f"{key!r} = {text!r} does not fit on one line of properties")
        lines.append(f"{key}={text}\n".replace("\\", "\\\\"))
    return "".join(lines)


def namesrv(directory: Path, *, host: str, port: int, extra: Mapping[str, Value]) -> dict[str, Value]:
    """``NamesrvConfig`` and ``NettyServerConfig`` of one name server."""
    return {
        "listenPort": port,
        "bindAddress": host,
        "kvConfigPath": directory / "kvConfig.json",
        **extra,
    }


def dledger_controller(
    directory: Path, *, host: str, index: int, peers: Sequence[str], extra: Mapping[str, Value],
) -> dict[str, Value]:
    """``ControllerConfig`` of node ``index`` of a DLedger controller group; ``peers`` are addresses ``host:port``."""
    return {
        "controllerType": "DLedger",
        "bindAddress": host,
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": ";".join(f"n{number}-{address}" for number, address in enumerate(peers)),
        "controllerDLegerSelfId": f"n{index}",
        "controllerStorePath": directory / "store",
        "mappedFileSize": CONTROLLER_FILE_BYTES,
        **extra,
    }


def jraft_controller(
    directory: Path, *, host: str, index: int, peers: Sequence[str], raft_peers: Sequence[str],
    extra: Mapping[str, Value],
) -> dict[str, Value]:
    """``ControllerConfig`` and ``JraftConfig`` of node ``index``: raft among ``raft_peers``, brokers call ``peers``."""
    return {
        "controllerType": "jRaft",
        "bindAddress": host,
        "jRaftGroupId": "controllers",
        "jRaftServerId": raft_peers[index],
        "jRaftInitConf": ",".join(raft_peers),
        "jRaftControllerRPCAddr": ",".join(peers),
        "controllerStorePath": directory / "store",
        **extra,
    }


def broker(
    directory: Path, *, host: str, announced: str, port: int, ha_port: int, group: str, cluster: str,
    namesrv: Sequence[str], extra: Mapping[str, Value],
) -> dict[str, Value]:
    """``BrokerConfig``, ``MessageStoreConfig`` and ``NettyServerConfig`` of a master that nobody elects."""
    return {
        "brokerClusterName": cluster,
        "brokerName": group,
        "brokerId": 0,
        "brokerRole": "ASYNC_MASTER",
        "bindAddress": host,
        "listenPort": port,
        "haListenPort": ha_port,
        "brokerIP1": announced,
        "brokerIP2": host,
        "namesrvAddr": ";".join(namesrv),
        "storePathRootDir": directory / "store",
        "mappedFileSizeCommitLog": COMMITLOG_FILE_BYTES,
        "mappedFileSizeConsumeQueue": 20 * 3_000,
        "maxHashSlotNum": 10_000,
        "maxIndexNum": 40_000,
        **({} if extra.get("timerWheelEnable") else WITHOUT_TIMERS),
        "transactionMetricFlushInterval": 500,  # ms; a thread spins so long after each start, by default 10 s
        "diskMaxUsedSpaceRatio": 95,  # brokers must take writes on a full test machine
        "defaultTopicQueueNums": 4,
        **extra,
    }


def controlled(controllers: Sequence[str]) -> dict[str, Value]:
    """Return the settings that a broker needs besides, to be elected and ruled by ``controllers``."""
    return {
        "enableControllerMode": True,
        "controllerAddr": ";".join(controllers),
        "fetchControllerAddrByDnsLookup": False,
        "brokerId": -1,
        "brokerRole": "SLAVE",
    }
