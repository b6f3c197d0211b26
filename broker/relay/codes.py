"""The request codes of clients, and those that a broker sends to clients. All others are for one particular broker."""

from __future__ import annotations

from typing import Final

from remoting.codes import RequestCode as Code

FORWARDED: Final = frozenset(map(int, (
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK,
    Code.END_TRANSACTION, Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE,
    Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG, Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.QUERY_ASSIGNMENT,
    Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET,
    Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME,
    Code.QUERY_MESSAGE,
)))
"""Codes of sends, pulls and offsets, and those that make a consumer known. Not ``VIEW_MESSAGE_BY_ID``: its offset is of
one log, and a replica has the message as well as the master."""

SENDS: Final = frozenset(map(int, (
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK,
    Code.END_TRANSACTION,
)))
"""What only a master serves: who asks anybody else for it has an old route."""

PUSHED: Final = frozenset(map(int, (
    Code.CHECK_TRANSACTION_STATE, Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.RESET_CONSUMER_CLIENT_OFFSET,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT, Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
)))
"""Requests that a broker sends to its clients."""
