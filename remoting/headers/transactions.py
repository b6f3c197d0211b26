"""Headers of the codes by which a transaction is decided, and of 370, which takes a delayed message back.

Field names are those of the Java classes. Both codes of transactions are one-way: 39 asks the producers of a half's
group, whose answer is a 37.
"""

from __future__ import annotations

from typing import Final

from remoting.header import Header, Int32, Int64, header

UNDECIDED: Final = 0
"""``commit_or_rollback`` of a transaction that is neither committed nor rolled back."""


@header
class EndTransactionRequest(Header):
    """37, ``EndTransactionRequestHeader``: both offsets are those of the half record: in its queue, in the log."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool | None = None
    """It answers a 39; else the producer says it by itself."""
    msg_id: str = ""
    transaction_id: str | None = None
    topic: str | None = None


@header
class CheckTransactionStateRequest(Header):
    """39, ``CheckTransactionStateRequestHeader``: the body is the half, with its real topic and queue."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    """The client's, as ``transaction_id``."""
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    """The store's, of the half record."""
    topic: str | None = None


@header
class ResumeCheckHalfMessageRequest(Header):
    """323: the store's id of a half that lies where nobody asks any more."""

    msg_id: str
    topic: str | None = None


@header
class RecallMessageRequest(Header):
    """370, ``RecallMessageRequestHeader``: the handle is the one of the send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@header
class RecallMessageResponse(Header):
    """``RecallMessageResponseHeader``: the client's id of the message."""

    msg_id: str
