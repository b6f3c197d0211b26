"""A configuration changed by a request whose body is properties: read, checked, written down, and then in use.

The same for every server; which keys there are, and what follows from a change, is the server's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from remoting import properties
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.daemon.edits import NO_NAMES, Edit
from remoting.daemon.files import Files
from remoting.daemon.keys import ConfigError
from remoting.daemon.tlskeys import hidden

C = TypeVar("C")


def change_config(
    connection: Connection, request: Command, now: C, *, bytes_max: int, barred: Collection[str],
    live: Collection[str], made: Callable[[Mapping[str, str]], C], text: Callable[[C], Mapping[str, str]],
    files: Files, path: str, use: Callable[[C], None], logger: logging.Logger,
    other_names: Mapping[str, str] = NO_NAMES,
) -> Command:
    """Change a configuration and its file as a request asks, and return the answer.

    ``made`` checks and may raise ``ConfigError``. ``use`` is called with what was written to ``path``. The file's other
    lines stay as they are. Keys that are not ``live`` are written for the next start, and the answer says so.
    """
    if len(request.body) > bytes_max:
        return response(request, ResponseCode.SYSTEM_ERROR,
                        remark=f"a body of {len(request.body)} bytes; at most {bytes_max} are taken")
    try:
        given = properties.parse(request.body.decode())
    except (UnicodeDecodeError, ValueError) as error:
        return response(request, ResponseCode.SYSTEM_ERROR, remark=f"not properties: {error}")
    refused = sorted(given.keys() & set(barred))
    if refused:
        return response(request, ResponseCode.NO_PERMISSION,
                        remark=f"Can not update config in black list: {', '.join(refused)}")
    if not given:
        return response(request)
    try:
        changed = made(given)
        edit = Edit(given, text(now), text(changed), other_names)
        files.replace(path, edit.of(files.read(path)))
    except ConfigError as error:
        return response(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
    except OSError as error:
        return response(request, ResponseCode.SYSTEM_ERROR, remark=f"cannot write {path}: {error}")
    waiting = sorted(given.keys() - set(live))
    logger.info("configuration changed", extra={
        "peer": connection.peer, "keys": hidden(dict(sorted(given.items()))), "at_next_start": waiting})
    use(changed)
    return response(request, remark=f"at the next start: {', '.join(waiting)}" if waiting else None)
