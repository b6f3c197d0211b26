"""The original's commands that are not here, each with the reason. Knows words alone."""

from __future__ import annotations

from typing import Final

_USERS = "users and access control lists are not offered by the brokers here; TLS with certificates of clients is"
_LITE = "lite topics are not offered by the brokers here"
_ROCKSDB = "the stores here have no RocksDB in them"
_STATIC = "static topics are not offered by the brokers here"

ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys((
        "createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser", "createAcl", "updateAcl",
        "deleteAcl", "getAcl", "listAcl", "copyAcl"), _USERS),
    **dict.fromkeys((
        "getBrokerLiteInfo", "getParentTopicInfo", "getLiteTopicInfo", "getLiteClientInfo", "getLiteGroupInfo",
        "triggerLiteDispatch"), _LITE),
    **dict.fromkeys(("exportMetadataInRocksDB", "rocksDBConfigToJson", "checkRocksdbCqWriteProgress"), _ROCKSDB),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), _STATIC),
    "dumpCompactionLog": "compacted topics are not offered by the brokers here",
    "switchTimerEngine": "timers here have one engine, the wheel; there is none in RocksDB to switch to",
    "exportPopRecord": "records of POP are not kept in RocksDB here, so there is nothing to roll back from it",
}
"""Commands of the original (5.5.0 has 96) that are not offered here, each with the reason."""
