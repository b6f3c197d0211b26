"""Formats servers' log records, for standard error or a file: one line each, as text or JSON, with their fields.

A record's fields are what ``extra`` brought. Knows ``logging`` and nothing of who logs.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from itertools import islice
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, TextIO

_PEER_FIELDS_MAX: Final = 20
_PEER_CHARS_MAX: Final = 200
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
LEVELS: Final = ("debug", "info", "warning", "error")


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that the caller gave as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def of_peer(ext: Mapping[str, str]) -> dict[str, str]:
    """Fields that a peer sent, under names that clash with no other, and no more of them than anybody reads."""
    return {f"ext_{name[:_PEER_CHARS_MAX]}": value[:_PEER_CHARS_MAX]
            for name, value in islice(ext.items(), _PEER_FIELDS_MAX)}


class TextLines(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO controller.namesrv broker registered group=a broker_id=0``."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {name}={_word(value)}" for name, value in fields(record).items())
        line = f"{_instant(record)} {record.levelname} {record.name} {record.getMessage()}{extra}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JSONLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _instant(record), "level": record.levelname, "logger": record.name, "message": record.getMessage(),
            **fields(record)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _instant(record: logging.LogRecord) -> str:
    when = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


FILE_BYTES: Final = 128 << 20
FILES: Final = 10
"""As Java's brokers and name servers: then the file is ``broker.log.1``, and so on; the eleventh goes."""


class _File(RotatingFileHandler):
    """Not for everybody to read, as other files of servers are not: lines name clients, groups and topics."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding,
                    opener=lambda path, flags: os.open(path, flags, 0o640))


def set_up(level: str = "info", *, as_json: bool = False, stream: TextIO | None = None,
           limit: logging.Filter | None = None, file: Path | None = None) -> None:
    """Send records of ``level`` and above to ``file``, which rotates, else to ``stream`` (default: standard error).

    ``limit`` filters them. Call it at a program's start. Raises ``OSError`` if the file cannot be written.
    """
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(stream or sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = _File(file, maxBytes=FILE_BYTES, backupCount=FILES, encoding="utf-8")
    handler.setFormatter(JSONLines() if as_json else TextLines())
    if limit is not None:
        handler.addFilter(limit)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
