"""Shows a demo: plain lines anywhere; in a terminal with ``rich``, a live picture below them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Display:
    """Lines are for ``say``; ``show`` keeps the picture fresh and does nothing where there is none."""

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

    def show(self, *parts: Any) -> None:
        """Renderables of ``rich``, one below the other."""
        if self._live is not None:
            from rich.console import Group

            self._live.update(Group(*parts))
