"""Rules: what a broker makes of a message before it is put, one rule after the other.

A rule looks at a draft of the message. It changes the draft in place and says nothing, or it ends the chain: it
diverts the message, refuses it, or asks for another attempt. No rule waits, and none knows of connections, the log or
the caller that puts. What a rule needs besides the draft, such as a role, a configuration or how full a table is, its
owner holds: a rule may be a bound method.

The chains are in ``broker.sending.chains``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from broker.properties import REAL_QID, REAL_TOPIC
from remoting.command import Command, response


@attrs.define
class Draft:
    """A message on its way in, as rules see and change it. They see neither its body nor where it was born."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    sys_flag: int = 0
    write_queues: int = 0
    """Number of write queues of the topic that the message was sent to."""
    retry_of: str | None = None
    """The group whose retry topic it was sent to."""
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    version: int = 0
    """Version of the client that sent it, as the wire has it."""
    level: int = 0
    """The delay level that is asked for, once it was read."""
    dead: bool = False
    """It goes to the dead letters of ``retry_of``."""
    answered: dict[str, str] = attrs.field(factory=dict)
    """Fields of the answer to its sender, if it is stored."""


@attrs.frozen
class Refusal:
    """Nothing is put: the code and the words of the answer."""

    code: int
    remark: str

    def answer(self, request: Command) -> Command:
        """Return the response to the sender's request."""
        return response(request, self.code, remark=self.remark)


@attrs.frozen
class Diverted:
    """The message is put there for now. Its properties keep which topic and queue it is meant for."""

    topic: str
    queue_id: int


@attrs.frozen
class NotYet:
    """A topic that the message needs is being written to disk: when it is there, the send starts anew."""


NOT_YET: Final = NotYet()

Stop = Refusal | NotYet
Verdict = Diverted | Stop | None
"""None: go on, with the draft as it is now."""


@attrs.frozen
class Rule:
    """A rule. Its name and the first line of its docstring stand in the manual."""

    apply: Callable[[Draft], Verdict]
    reads: frozenset[str] = frozenset()
    """Properties that it looks at. A message with no property that any rule of the chain looks at, and to no retry
    topic, passes by all of them."""

    @property
    def name(self) -> str:
        return self.apply.__name__

    @property
    def about(self) -> str:
        return (self.apply.__doc__ or "").partition("\n")[0]


def rule(apply: Callable[[Draft], Verdict], *reads: str) -> Rule:
    return Rule(apply, frozenset(reads))


class Chain:
    """Rules in the order in which each message passes them."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self.looked_at: frozenset[str] = frozenset().union(*(each.reads for each in rules))
        """Properties that some rule looks at."""
        self._apply = tuple(each.apply for each in rules)

    def stops(self, draft: Draft) -> Stop | None:
        """Have each rule see ``draft``; None: it is to be put as it is now.

        A diversion ends the chain: the properties have room for one.
        """
        for apply in self._apply:
            verdict = apply(draft)
            if verdict is not None:
                if not isinstance(verdict, Diverted):
                    return verdict
                draft.properties |= {REAL_TOPIC: draft.topic, REAL_QID: str(draft.queue_id)}
                draft.topic, draft.queue_id = verdict.topic, verdict.queue_id
                return None
        return None
