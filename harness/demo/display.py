"""What the demo shows: plain lines anywhere; in a terminal with ``rich``, a live table below them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from harness.fleet import BrokerGroup

COLUMNS = 2


class Display:
    """Lines are for ``say``; ``show`` keeps the table fresh and does nothing where there is none."""

    _live: Any = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with suppress(ModuleNotFoundError):
            if sys.stdout.isatty():
                from rich.live import Live

                with Live(refresh_per_second=10) as self._live:
                    yield
                self._live = None
                return
        yield

    @property
    def live(self) -> bool:
        return self._live is not None

    def say(self, line: str) -> None:
        if self._live is None:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        else:
            from rich.text import Text

            self._live.console.print(Text(line))

    def show(
        self, controllers: Sequence[tuple[str, str, str]], groups: Sequence[BrokerGroup],
        latest_ms: Mapping[str, float], footer: str,
    ) -> None:
        """Controllers as id, address, role; groups side by side."""
        if self._live is None:
            return
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        servers = Text("controllers ")
        for name, address, role in controllers:
            servers.append(f"  {name} {address} ")
            servers.append(f"{role:<8}", {"active": "bold green", "down": "red"}.get(role, ""))
        side_by_side = Table.grid(padding=(0, 4))
        share = -(-len(groups) // COLUMNS)
        side_by_side.add_row(*(
            _groups(groups[at : at + share], latest_ms) for at in range(0, len(groups), share)))
        self._live.update(Group(servers, side_by_side, footer))


def _groups(groups: Sequence[BrokerGroup], latest_ms: Mapping[str, float]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title, width in (("group", 9), ("brokers", 8), ("epoch", 5), ("in sync", 7), ("failover", 9)):
        table.add_column(title, min_width=width, no_wrap=True)
    for group in groups:
        view, brokers = group.newest, Text()
        for each in group.brokers:
            style = "red" if not each.running else "bold green" if each.is_master else ""
            brokers.append(f"{each.broker_id or '?'} " if each.running else "✗ ", style)
        took = latest_ms.get(group.name)
        table.add_row(group.name, brokers, str(view.master_epoch), ",".join(map(str, sorted(view.in_sync))),
                      f"{took:.0f} ms" if took is not None else "")
    return table
