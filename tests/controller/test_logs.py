"""Log lines of servers: one line each, with the record's fields."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from controller.logs import set_up


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def logged(*, as_json: bool) -> str:
    stream = io.StringIO()
    set_up("info", as_json=as_json, stream=stream)
    logger = logging.getLogger("t")
    logger.debug("not shown")
    logger.warning("a %s", "word", extra={"broker": "a b", "id": 0, "line": "x\ny"})
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("failed")
    return stream.getvalue()


def test_text_has_fields_behind_the_words() -> None:
    first, second, *rest = logged(as_json=False).splitlines()
    assert first.partition(" ")[2] == 'WARNING t a word broker="a b" id=0 line="x\\ny"'
    assert first.partition(" ")[0].endswith("Z")
    assert second.endswith("ERROR t failed")
    assert rest[-1] == "ValueError: why"


def test_json_has_fields_as_members() -> None:
    first, second = map(json.loads, logged(as_json=True).splitlines())
    assert {name: first[name] for name in ("level", "logger", "message", "broker", "id")} == {
        "level": "WARNING", "logger": "t", "message": "a word", "broker": "a b", "id": 0}
    assert "ValueError: why" in second["exception"]
