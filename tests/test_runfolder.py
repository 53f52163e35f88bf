"""The run folder: files appear whole, and one launch at a time holds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_lib import runfolder
from grpo_lib.errors import WrongInput
from grpo_lib.runfolder import (
    RunFolder,
    append_line,
    canonical,
    file_sha256,
    read_lines,
    sha256,
    write_atomic,
    write_json,
)


def test_a_file_is_written_with_its_folders_and_readable_by_others(tmp_path):
    path = tmp_path / "a" / "b" / "file.txt"
    write_atomic(path, "مرحبا")
    assert path.read_text(encoding="utf-8") == "مرحبا"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, broken):
    path = tmp_path / "file.txt"
    write_atomic(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(runfolder.os, broken, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_the_new_content_is_complete_before_it_takes_the_name(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    path.write_bytes(b"old")
    seen = []

    def replace(source, target, real=os.replace):
        seen.append((Path(source).read_bytes(), path.read_bytes()))
        real(source, target)

    monkeypatch.setattr(runfolder.os, "replace", replace)
    write_atomic(path, b"new" * 1000)
    assert seen == [(b"new" * 1000, b"old")] and path.read_bytes() == b"new" * 1000


def test_json_is_readable_and_the_same_for_the_same_value(tmp_path):
    write_json(tmp_path / "one.json", {"ب": 1, "ا": "نص"})
    write_json(tmp_path / "two.json", {"ا": "نص", "ب": 1})
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert "نص" in (tmp_path / "one.json").read_text(encoding="utf-8")


def test_lines_come_back_but_for_a_torn_one(tmp_path):
    path = tmp_path / "deep" / "lines.jsonl"
    assert read_lines(path) == []
    append_line(path, {"step": 1})
    append_line(path, {"step": 2, "نص": "قيمة"})
    with path.open("ab") as handle:
        handle.write(b'{"step": 3, "lo')
    assert read_lines(path) == [{"step": 1}, {"step": 2, "نص": "قيمة"}]


def test_digests_are_of_bytes_and_of_canonical_json(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert (
        file_sha256(path)
        == sha256(b"abc")
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    assert canonical({"b": 1.0, "a": "ا"}) == '{"a":"ا","b":1}'.encode()


def test_adapter_versions_are_those_that_are_whole(tmp_path):
    run = RunFolder(tmp_path / "run-1")
    assert run.adapter_versions() == []
    for version in (20, 3):
        run.adapter(version).mkdir(parents=True)
    (run.adapters / ".v000021").mkdir()  # being written
    assert run.adapter_versions() == [3, 20]
    assert run.adapter(3).name == "v000003" and run.run_id == "run-1"


def test_the_lock_is_free_again_after_use_and_after_an_error(tmp_path):
    run = RunFolder(tmp_path / "run-1")
    with pytest.raises(RuntimeError), run.locked():
        raise RuntimeError
    with run.locked():
        pass


def test_a_folder_held_by_another_process_is_refused_in_both_languages(tmp_path):
    code = (
        "import sys; from grpo_lib.runfolder import RunFolder\n"
        "with RunFolder(sys.argv[1]).locked(): print('held', flush=True); sys.stdin.read()"
    )
    run = RunFolder(tmp_path / "run-1")
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(run.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(WrongInput) as caught, run.locked():
            pass
        assert "run-1" in caught.value.en and "run-1" in caught.value.ar
    finally:
        holder.kill()  # a killed launcher must not leave the run locked
        holder.communicate()
    with run.locked():
        pass
