"""Judges whether the other end of an HA connection beats, and whether it is silent.

A peer that beats repeats itself each ``haBeatIntervalMs``. This is seen, never declared: RocketMQ's peers, and earlier
ones of ours, repeat themselves each ``haSendHeartbeatInterval``. That is too seldom to count as a beat, so they are
never silent here. Silence counts only while the judge's own loop ran: what was said in its pause waits unread.
It knows times, and neither frames nor what a silence leads to.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.ha.config import NS_PER_MS, HaConfig

LOOK_NS: Final = 100 * NS_PER_MS
"""Interval at which a judge plans to look: the journal's tick."""


@attrs.define
class Attention:
    """The judge: this end of all connections. It looks at each tick."""

    config: HaConfig
    _looked_ns: int | None = None
    _resumed_ns: int | None = None
    """Time when the judge's last pause ended; None: it has not paused."""

    def look(self, now_ns: int) -> None:
        if self._looked_ns is not None and self._paused(now_ns):
            self._resumed_ns = now_ns
        self._looked_ns = now_ns

    def silent(self, heard_ns: int, now_ns: int) -> bool:
        """Return whether a peer that said nothing since ``heard_ns`` is silent."""
        return not self._paused(now_ns) and now_ns >= self.silent_ns(heard_ns)

    def silent_ns(self, heard_ns: int) -> int:
        """Return when a peer that says nothing after ``heard_ns`` becomes silent."""
        return max(heard_ns, self._resumed_ns or heard_ns) + self.config.silence_ms * NS_PER_MS

    @property
    def seldom_ns(self) -> int:
        """A peer that lets more than this pass between two repetitions does not beat."""
        return self.config.silence_ms * NS_PER_MS // 3

    @property
    def burst_ns(self) -> int:
        """Bytes that a network held up, and lets go together, come within this time."""
        return self.config.silence_ms * NS_PER_MS // 8

    def _paused(self, now_ns: int) -> bool:
        return (self._looked_ns is None
                or now_ns - self._looked_ns > LOOK_NS + self.config.silence_ms * NS_PER_MS // 4)


@attrs.define
class Ear:
    """The judge's knowledge of one connection. Set ``heard_ns`` at each word of the peer."""

    attention: Attention
    heard_ns: int
    beats: bool = False
    _began_ns: int | None = None
    """Time of the peer's first words, if they were said just then."""
    _repeated_ns: int | None = None
    """Time when the peer repeated itself last. A repetition right after other words does not count."""
    _regularly: int = 0
    """Repetitions in a row at a beat's distance. A single one may have been held up until shortly before the next."""
    _silent_ns: int | None = None
    """The last word before the silence that was found."""

    def began(self, asked_ns: int, now_ns: int) -> None:
        """Note the peer's first words that can be repeated; they were asked for at ``asked_ns``.

        Words that a network held up come late, together with later ones."""
        if now_ns - asked_ns <= self.attention.seldom_ns:
            self._began_ns = now_ns

    def repeated(self, now_ns: int) -> None:
        """The peer says once more what it said last.

        A peer that beats does so right after its first words, too: later it may be too busy to repeat itself, and is
        known as beating by then."""
        attention = self.attention
        if self.beats:
            return
        at_once = self._began_ns is not None and now_ns - self._began_ns <= attention.seldom_ns
        since_ns = attention.seldom_ns + 1 if self._repeated_ns is None else now_ns - self._repeated_ns
        if since_ns >= attention.burst_ns:
            self._repeated_ns = now_ns
            self._regularly = self._regularly + 1 if since_ns <= attention.seldom_ns else 0
        self.beats = at_once or self._regularly > 1

    def look(self, now_ns: int) -> None:
        """Look for silence at each tick, after the judge's own look.

        A peer that was silent and speaks again must show anew that it beats: one that never did is accused once."""
        if self._silent_ns is not None and self._silent_ns != self.heard_ns:
            self.beats, self._regularly, self._repeated_ns, self._silent_ns = False, 0, None, None
        elif self.silent(now_ns):
            self._silent_ns = self.heard_ns
        assert self._silent_ns is None or self.beats, "only who beats is ever silent"

    def silent(self, now_ns: int) -> bool:
        return self.beats and self.attention.silent(self.heard_ns, now_ns)

    @property
    def deadline_ns(self) -> int | None:
        """Time when the peer becomes silent if nothing more comes; None: it does not beat."""
        return self.attention.silent_ns(self.heard_ns) if self.beats else None
