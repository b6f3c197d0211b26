"""The command on sound, crashed, damaged and live directories. It must find what is wrong and touch nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from raft import raftlog
from raft.messages import HardState, Write
from raft.storage.audit import audit, recover_live
from raft.storage.conformance import frames, read_all, snapshot_at
from raft.storage.directory import DirectoryFiles, ReadOnlyFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

SEGMENT_BYTES = 32 << 10
FIRST = "log/00000000000000000001.seg"


def opened(place: Path) -> SegmentStorage:
    files = DirectoryFiles(place)
    format_directory(files, "c", "n", bytes(range(16)))
    storage = SegmentStorage(files, "c", "n", segment_bytes=SEGMENT_BYTES, rng=Random(1))
    storage.open()
    return storage


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Several segments, a truncation, a vote, two snapshots; closed."""
    storage = opened(tmp_path)
    log = frames(60, size=2_000)
    for frame in log:
        storage.write([Write(frame.first, 1, frames=[frame])])
    storage.write([Write(100, 1, truncate_from=56, hard_state=HardState(2, "m"))])
    storage.write([Write(101, 1, frames=frames(3, term=2, after=log[54]))])
    storage.sync()
    for at in (10, 20):
        sink = storage.create_snapshot(1, snapshot_at(log[at]))
        sink.write(b"state" * 100)
        sink.finish()
    storage.close()
    return tmp_path


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def image(place: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path.relative_to(place)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(place.rglob("*")) if path.is_file()}


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = raftlog.main([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


def test_sound_directory(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = image(place)
    code, text = run(capsys, "verify", place)
    assert code == 0
    assert text.splitlines()[-1] == "sound"
    assert text.count("footer good") >= 3
    assert text.count(".snap") == 2
    for command in ("verify", "cat", "stat"):
        for more in ([], ["--json"]):
            assert run(capsys, command, place, *more)[0] == 0
    assert image(place) == before, "a command that looks has written"


def test_verify_as_json_counts_everything(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(run(capsys, "verify", place, "--json")[1])
    assert values["sound"] is True
    assert values["problems"] == []
    assert values["identity"] == {"cluster": "c", "node": "n", "incarnation": bytes(range(16)).hex()}
    assert sum(segment["frames"] for segment in values["segments"]) == 63
    assert [segment["footer"] for segment in values["segments"]][-1] == "open"
    assert [snapshot["index"] for snapshot in values["snapshots"]] == [11, 21]


def test_stat(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "stat", place)[1]
    assert "node n of cluster c, incarnation 000102" in text
    assert "group 1: term 2, voted for m, entries 1..58, last term 2, 2 terms in the log" in text
    assert "snapshot of group 1 at 21 (term 1), 500 bytes, voters a, b" in text
    values = json.loads(run(capsys, "stat", place, "--json")[1])
    assert values["groups"]["1"]["last"] == 58


def test_cat_shows_records_as_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "cat", place)[1].splitlines()
    assert sum("COMMANDS" in line for line in lines) == 63
    assert sum("truncate: the log ends at 55 of term 1" in line for line in lines) == 1
    assert sum("term 2, voted for m" in line and "segment begins" not in line for line in lines) == 1
    assert any("segment begins: term 0, voted for nobody, last entry" in line for line in lines)
    some = run(capsys, "cat", place, "--from", "56", "--to", "57", "--json", "--payload")[1].splitlines()
    values = [json.loads(line) for line in some]
    assert [(value["first"], value["term"]) for value in values] == [(56, 1), (57, 1), (56, 2), (57, 2)]
    assert bytes.fromhex(values[0]["payloads"][0]) == b"56." * 500
    assert run(capsys, "cat", place, "--group", "2")[1] == ""
    assert "    3  b'3.3." in run(capsys, "cat", place, "--from", "3", "--to", "3", "--payload")[1]


def test_rot_in_a_sealed_segment_is_found_though_its_footer_is_good(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(place / FIRST, 5_000)
    code, text = run(capsys, "verify", place)
    assert code == 1
    assert f"DAMAGED {FIRST} at byte " in text
    assert text.splitlines()[-1] == "damaged"
    values = json.loads(run(capsys, "verify", place, "--json")[1])
    (problem,) = values["problems"]
    assert problem["path"] == FIRST
    assert problem["offset"] <= 5_000 < problem["offset"] + 2_000
    assert "CRC" in problem["reason"]


@pytest.mark.parametrize("where", ["footer", "trailer"])
def test_a_damaged_footer_is_no_damage_of_the_log(place: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    flip(place / FIRST, SEGMENT_BYTES - {"footer": 60, "trailer": 3}[where])
    code, text = run(capsys, "verify", place)
    assert code == 0
    assert "no usable footer" in text


def test_a_footer_that_lies_is_damage(place: Path) -> None:
    """Good CRCs, wrong content: nothing but a comparison with the blocks can tell."""
    from raft.storage.blocks import encode_trailer
    from raft.storage.catalog import Segment, encode_footer
    from raft.storage.recovery import read_footer, read_head

    files, owner = DirectoryFiles(place), int.from_bytes(bytes(range(8)), "little")
    head = read_head(files, owner, 1)
    assert not isinstance(head, str)
    footer = read_footer(files, owner, head)
    assert footer is not None
    footer.spans[1].offsets[0] += 1
    segment = Segment(1, FIRST, head.size, footer.first_write, head.states, footer.spans, footer.end)
    data = encode_footer(segment, footer.last_write, footer.last_crc)
    offset = head.size - 48 - len(data)
    files.open(FIRST).pwrite([data, encode_trailer(owner, 1, offset, data)], offset)
    (problem,) = audit(ReadOnlyFiles(place)).problems
    assert problem.reason == "the footer differs from the blocks"


@pytest.mark.parametrize("offset", [3, 40, 300, -3])
def test_a_damaged_snapshot(place: Path, offset: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "snapshots/1-00000000000000000021-1.snap"
    flip(path, offset if offset > 0 else path.stat().st_size + offset)
    code, text = run(capsys, "verify", place)
    assert code == 1
    assert "DAMAGED snapshots/1-00000000000000000021-1.snap at byte " in text


def test_a_missing_segment(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "log/00000000000000000002.seg").unlink()
    code, text = run(capsys, "verify", place)
    assert code == 1
    assert "00000000000000000002.seg at byte 0: this segment is missing" in text
    assert raftlog.main(["stat", str(place)]) == 1
    assert raftlog.main(["cat", str(place), "--json"]) == 1


def test_a_torn_tail_is_sound(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = SegmentStorage(DirectoryFiles(place), "c", "n", segment_bytes=SEGMENT_BYTES, rng=Random(2))
    last = read_all(storage, 1, 1)[-1] if storage.open() else None
    assert last is not None
    storage.write([Write(1, 1, frames=frames(1, term=2, after=last))])
    end = storage._catalog.segments[-1].end
    path = place / storage._catalog.segments[-1].path
    storage.close()
    # what closing wrote, too, is lost
    data = bytearray(path.read_bytes())
    data[end - 50 :] = bytes(len(data) - end + 50)
    path.write_bytes(data)
    code, text = run(capsys, "verify", place)
    assert (code, text.splitlines()[-1]) == (0, "sound")
    assert run(capsys, "stat", place)[1].count("entries 1..58") == 1


def test_what_is_no_raft_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["verify", str(tmp_path)], ["cat", str(tmp_path / "nowhere")], ["stat", str(tmp_path)]):
        assert raftlog.main(arguments) == 1
    assert "no file 'identity'" in capsys.readouterr().err
    assert raftlog.main(["verify", str(tmp_path), "--json"]) == 1
    assert "no file 'identity'" in json.loads(capsys.readouterr().out)["error"]
    with pytest.raises(SystemExit) as error:
        raftlog.main(["repair", str(tmp_path)])
    assert error.value.code == 2


def test_beside_a_writer_that_rolls_and_recycles(tmp_path: Path) -> None:
    """A live directory is sound at every look, though files grow, get sealed and are recycled meanwhile."""
    storage, log = opened(tmp_path), frames(400, size=4_000)

    def write() -> None:
        for frame in log:
            storage.write([Write(frame.first, 1, frames=[frame])])
            if frame.first % 100 == 0:
                storage.create_snapshot(1, snapshot_at(log[frame.first - 51])).finish()
                storage.write([Write(frame.first, 1, purge_to=frame.first - 50)])
                storage.write([Write(frame.first, 1, hard_state=HardState(frame.first))])
                storage.sync()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while writer.is_alive():
        report = audit(ReadOnlyFiles(tmp_path))
        assert report.problems == []
        assert recover_live(ReadOnlyFiles(tmp_path), int.from_bytes(bytes(range(8)), "little")) is not None
        looks += 1
    writer.join()
    assert looks > 1
    assert len(list((tmp_path / "log").glob("*.seg"))) < 30, "nothing was recycled"


def test_damage_is_damage_whoever_reads_of_it(place: Path) -> None:
    flip(place / FIRST, 5_000)
    line = f"{sys.executable} -m raft.raftlog verify {place} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (raftlog.DAMAGED, "")


def test_what_the_disk_does_not_give_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = min((place / "log").iterdir())
    segment.unlink()
    segment.mkdir()
    for command in ("verify", "cat", "stat"):
        assert raftlog.main([command, str(place)]) == raftlog.DAMAGED
        said = capsys.readouterr()
        assert segment.name in said.err + said.out
