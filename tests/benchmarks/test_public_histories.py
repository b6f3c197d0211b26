"""Verdicts are held against those of a history's owners: here with checkouts of a few lines, made as theirs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.public_histories import compared, knossos, porcupine

WROTE = "0\t:invoke\t:write\t3\n0\t:ok\t:write\t3\n"
READ = "1\t:invoke\t:read\tnil\n1\t:ok\t:read\t{}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "porcupine_test.go").write_text("checkJepsen(t, 0, true)\n checkJepsen(t, 1, false)\n")
    folder = tmp_path / "test_data" / "jepsen"
    folder.mkdir(parents=True)
    (folder / "etcd_000.log").write_text(WROTE + READ.format(3))
    (folder / "etcd_001.log").write_text(WROTE + READ.format(4))
    return tmp_path


def test_a_verdict_agrees_or_differs(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(porcupine(checkout)) == {"agrees": 2}
    wrong = checkout / "porcupine_test.go"
    wrong.write_text(wrong.read_text().replace("true", "false"))
    assert compared(porcupine(checkout)) == {"agrees": 1, "differs": 1}
    assert "etcd_000.log: True; its owners say False" in capsys.readouterr().out


def test_folders_say_what_is_good(tmp_path: Path) -> None:
    for kind, told in (("good", 3), ("bad", 4)):
        folder = tmp_path / "data" / "cas-register" / kind
        folder.mkdir(parents=True)
        (folder / "one.edn").write_text(
            "".join(f"{{:process {who}, :type :{what}, :f :{does}, :value {value}}}\n" for who, what, does, value in
                    ((0, "invoke", "write", 3), (0, "ok", "write", 3), (1, "invoke", "read", "nil"),
                     (1, "ok", "read", told))))
    assert compared(knossos(tmp_path)) == {"agrees": 2}


def test_what_cannot_be_judged_is_unknown(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "test_data" / "jepsen" / "etcd_000.log").write_text("0\t:ok\t:write\t3\n")
    assert compared(porcupine(checkout)) == {"unknown": 1, "agrees": 1}
    assert "has not begun" in capsys.readouterr().out
