"""Draws a sight of a cluster as lines of text. It knows sights and gaps, and not where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mqcluster.gaps import HIGHEST_MS, Gaps
from mqcluster.watching import BrokerSight, GroupSight, Sight

_BOLD, _RED, _END = "\x1b[1;32m", "\x1b[31m", "\x1b[0m"
_STEPS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def lines(sight: Sight, gaps: Mapping[str, Gaps], *, colour: bool = False) -> list[str]:
    """The whole picture; without ``gaps`` no plots."""
    paint = _painted if colour else _plain
    said = [f"name servers  {', '.join(sight.namesrv)}"]
    if sight.trouble:
        return [*said, paint(f"nothing is seen: {sight.trouble}", _RED)]
    if sight.controllers:
        said.append("controllers   " + "  ".join(
            paint(f"{address} {_controller(address, sight)}",
                  _BOLD if address == sight.active else _RED if sight.controllers[address] is None else "")
            for address in sight.controllers))
    else:
        said.append("controllers   none: brokers have the roles of their configuration")
    said += ["", f"{'group':<18}{'broker':<24}{'id':>3}  {'role':<9}{'epoch':>6}  {'in sync':<8}{'lag':>10}"
                 f"{'puts/s':>10}"]
    for group in sight.groups:
        for place, broker in enumerate(group.brokers):
            said.append(_broker(group, broker, group.name if not place else "", paint))
    if not gaps:
        return said
    said += ["", f"without a master that answers (a bar for each look; {'█'} is {HIGHEST_MS / 1e3:g} s or more)"]
    said += [f"{group.name:<18}{gaps[group.name].plot()}  {paint(_gap(gaps[group.name]), _colour(gaps[group.name]))}"
             for group in sight.groups if group.name in gaps]
    return said


def _controller(address: str, sight: Sight) -> str:
    if sight.controllers[address] is None:
        return "silent"
    return "active" if address == sight.active else "follower"


def _broker(group: GroupSight, broker: BrokerSight, name: str, paint: Callable[[str, str], str]) -> str:
    silent = broker.log_end is None
    role = "master" if broker.address == group.master else "slave"
    lag = group.lag_bytes(broker)
    line = (f"{name:<18}{broker.address:<24}{broker.broker_id:>3}  {'silent' if silent else role:<9}"
            f"{'' if group.epoch is None or role == 'slave' else group.epoch:>6}  "
            f"{'' if broker.in_sync is None else 'yes' if broker.in_sync else 'no':<8}"
            f"{'' if role == 'master' or lag is None else _bytes(lag):>10}"
            f"{'' if broker.puts_per_s is None or role == 'slave' else format(broker.puts_per_s, ',.0f'):>10}").rstrip()
    return paint(line, _RED if silent else _BOLD if role == "master" else "")


def _gap(gaps: Gaps) -> str:
    if gaps.open_ms:
        return f"for {_took(gaps.open_ms)} now"
    return "none seen" if gaps.latest_ms is None else f"the last one took {_took(gaps.latest_ms)} at most"


def _colour(gaps: Gaps) -> str:
    return _RED if gaps.open_ms else ""


def _took(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1e3:.1f} s"


def _bytes(count: int) -> str:
    for unit, size in _STEPS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _painted(text: str, style: str) -> str:
    return f"{style}{text}{_END}" if style else text


def _plain(text: str, style: str) -> str:
    return text
