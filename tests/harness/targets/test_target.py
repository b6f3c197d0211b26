"""A target's file: what it says, how its placeholders are filled, and words for what it must not say."""

from __future__ import annotations

import pytest

from harness.targets.fields import FormatError
from harness.targets.target import Places, parse, places, places_of

TEXT = """
about = "a store"

[options]
bug = ""
sync = true

[nodes.store]
after = ["names"]
count = 2
ports = ["client", "peer"]
command = ["{python}", "{here}/s.py", "--listen", "{listen.client}", "--peers", "{store.peer;}", "--bug={option.bug}"]
files = { "store.conf" = "port={port.peer}\\n{{raw}}" }

[nodes.names]
ports = ["client"]
command = ["names"]

[client]
command = ["client", "{store.client}"]
"""


def test_kinds_start_behind_those_that_they_come_after() -> None:
    target = parse(TEXT, "store")
    assert target.nodes == ("names-1", "store-1", "store-2")
    assert target.kind_of("store-2").ready.what == "client"
    assert target.options == {"bug": "", "sync": "true"}


def test_placeholders_are_filled() -> None:
    target = parse(TEXT, "store", {"bug": "early"})
    addresses = {"names-1": {"client": "10.0.0.1:1"}, "store-1": {"client": "10.0.0.2:2", "peer": "10.0.0.2:3"},
                 "store-2": {"client": "10.0.0.3:2", "peer": "10.0.0.3:3"}}
    whole = places(target, addresses, python="py", here="/h", run="/r")
    of = places_of(whole, target, "store-2", addresses["store-2"], {"client": "0.0.0.0:2", "peer": "0.0.0.0:3"},
                   directory="/d", data="/d/data")
    assert of.filled(target.kinds["store"].before.command) == [
        "py", "/h/s.py", "--listen", "0.0.0.0:2", "--peers", "10.0.0.2:3;10.0.0.3:3", "--bug=early"]
    assert of.fill(target.kinds["store"].before.files["store.conf"]) == "port=3\n{raw}"
    assert whole.fill("{store.client} {store.nodes} {store-1.peer}") == (
        "10.0.0.2:2,10.0.0.3:2 store-1,store-2 10.0.0.2:3")


@pytest.mark.parametrize(("old", "new", "words"), [
    ('about = "a store"', "", "about is missing"),
    ('about = "a store"', "about = 3", "about is 3; a text is wanted"),
    ("count = 2", "cuont = 2", r"\[nodes.store\] cuont is unknown; did you mean count\?"),
    ("count = 2", "count = 200", "more than 100 nodes"),
    ('after = ["names"]', 'after = ["name"]', "no kind name; did you mean names"),
    ('after = ["names"]', 'after = ["store"]', "wait for each other"),
    ("[nodes.names]", "[nodes.N]", "small letters"),
    ('command = ["names"]', "command = []", "command is empty"),
    ('command = ["names"]', 'command = ["names"]\nstop = "TERM"', "as SIGTERM"),
    ('command = ["names"]', 'command = ["names"]\nready = { tcp = "peer" }', "the ports of this kind are client"),
    ('command = ["client", "{store.client}"]', "", "either command or class"),
    ('command = ["client", "{store.client}"]', 'command = ["c"]\nclass = "m:C"', "either command or class"),
    ("[nodes.names]", "[nodes.store.upgraded]\n[nodes.names]", "has a command, environment or files that differ"),
    ("[client]", "[client", "no TOML"),
])
def test_what_a_target_must_not_say(old: str, new: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse(TEXT.replace(old, new, 1), "store")


def test_another_version_says_what_differs() -> None:
    more = '[nodes.store.upgraded]\nenvironment = { NEW = "1" }\nfiles = { more = "x" }\n[client]'
    kind = parse(TEXT.replace("[client]", more, 1), "store").kinds["store"]
    assert kind.upgraded is not None and kind.upgraded.command == kind.before.command
    assert (kind.upgraded.environment, kind.upgraded.files) == ({"NEW": "1"}, {**kind.before.files, "more": "x"})
    assert parse(TEXT, "store").kinds["store"].upgraded is None


def test_an_option_that_is_not_there() -> None:
    with pytest.raises(FormatError, match="no option bgu; did you mean bug"):
        parse(TEXT, "store", {"bgu": "x"})


@pytest.mark.parametrize(("text", "words"), [
    ("{prot.client}", r"unknown placeholder \{prot.client\}; did you mean port.client"), ("{a", "a lonely {")])
def test_a_placeholder_that_is_not_there(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        Places({"port.client": "1"}).fill(text)
