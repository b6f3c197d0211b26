"""The pictures of the demos, as ``rich`` draws them. They know what to show, and not where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.fleet import BrokerGroup
from mqcluster.looking import GroupView

COLUMNS = 2
_STYLES = {"active": "bold green", "master": "bold green", "down": "red"}


def servers(title: str, rows: Iterable[tuple[str, str, str]]) -> Any:
    """Id, address and role of each, in one line."""
    from rich.text import Text

    line = Text(f"{title} ")
    for name, address, role in rows:
        line.append(f"  {name} {address} ")
        line.append(f"{role:<8}", _STYLES.get(role, ""))
    return line


def fleet(groups: Sequence[BrokerGroup], latest_ms: Mapping[str, float]) -> Any:
    """Groups of simulated brokers, side by side."""
    from rich.table import Table

    side_by_side = Table.grid(padding=(0, 4))
    share = -(-len(groups) // COLUMNS)
    side_by_side.add_row(*(_simulated(groups[at : at + share], latest_ms) for at in range(0, len(groups), share)))
    return side_by_side


def _simulated(groups: Sequence[BrokerGroup], latest_ms: Mapping[str, float]) -> Any:
    from rich.text import Text

    table = _table(("group", 9), ("brokers", 8), ("epoch", 5), ("in sync", 7), ("failover", 9))
    for group in groups:
        view, brokers = group.newest, Text()
        for each in group.brokers:
            style = "red" if not each.running else "bold green" if each.is_master else ""
            brokers.append(f"{each.broker_id or '?'} " if each.running else "✗ ", style)
        table.add_row(group.name, brokers, str(view.master_epoch), ",".join(map(str, sorted(view.in_sync))),
                      _ms(latest_ms.get(group.name)))
    return table


def brokers(groups: Mapping[str, Sequence[tuple[str, str, bool]]], views: Mapping[str, GroupView],
            rates: Mapping[str, float], latest_ms: Mapping[str, float]) -> Any:
    """Groups of real brokers: name, address and whether it runs of each; acknowledged messages a second by group."""
    from rich.text import Text

    table = _table(("group", 9), ("brokers", 34), ("epoch", 5), ("in sync", 8), ("acknowledged", 12), ("gap", 8))
    for group, members in groups.items():
        view, line = views.get(group, GroupView()), Text()
        for name, address, runs in members:
            role = "down" if not runs else "master" if view.master == address else "slave"
            line.append(f"{name} {role:<7}", _STYLES.get(role, ""))
        table.add_row(group, line, str(view.epoch), f"{len(view.in_sync)} of {len(members)}",
                      f"{rates.get(group, 0):,.0f}/s", _ms(latest_ms.get(group)))
    return table


def _table(*columns: tuple[str, int]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title, width in columns:
        table.add_column(title, min_width=width, no_wrap=True)
    return table


def _ms(took: float | None) -> str:
    return f"{took:.0f} ms" if took is not None else ""
