"""The register: every run listed, damaged ones said and never fatal, and who saw which data."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from fixtures_run import RUN_ID, write_run

from grpo_lib import register
from grpo_lib.errors import WrongInput
from grpo_lib.runfolder import RunFolder, file_sha256, sha256

DATA = sha256(b"synthetic corpus")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Three whole runs; the third with other data, class and decision."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "runs"
    for name, changed in (("run-a", {}), ("run-b", {"purpose": "غرض آخر"}), ("run-c", {})):
        write_run(root, **changed)
        (root / RUN_ID).rename(root / name)
    third = RunFolder(root / "run-c")
    edit(third.data_manifest, sha256=sha256(b"another corpus"))
    edit(
        third.decision,
        verdict="allow_with_conditions",
        override={"until": "2027-05-01"},
        packs=[{"id": "sa", "review": {"until": "2027-03-01"}}, {"id": "ae", "review": None}],
        conditions=[{"evidence": {"expires": "2027-02-01"}}, {"evidence": None}],
    )
    return root


def edit(path, **changed) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changed}), encoding="utf-8")


def by_id(found) -> dict:
    return {row["run_id"]: row for row in found["runs"]}


def test_every_run_is_listed_with_what_an_officer_asks(root):
    rows = by_id(register.collect(root))
    assert list(rows) == ["run-a", "run-b", "run-c"] and not any(row["damaged"] for row in rows.values())
    row = rows["run-a"]
    assert (row["purpose"], row["class"], row["personal_data"]) == (
        "تجربة مسار التدريب قبل استعماله",
        "synthetic",
        "none",
    )
    assert (row["decision"], row["decision_until"], row["retention_until"]) == ("allow", None, "2027-06-30")
    assert (row["status"], row["started"]) == ("complete", "2026-12-01T08:00:01.000Z")
    assert row["adapter"] == {"class": "synthetic", "inherited_class": "synthetic", "state": "held"}
    weights = root / "run-a" / "adapters" / "v000060" / "adapter_model.safetensors"
    assert row["adapters"] == {"v000060": file_sha256(weights)}
    assert rows["run-b"]["purpose"] == "غرض آخر"


def test_a_decision_lapses_with_the_first_thing_that_it_rests_on(root):
    assert by_id(register.collect(root))["run-c"]["decision_until"] == "2027-02-01"
    edit(root / "run-c" / "decision.json", conditions=[])
    assert by_id(register.collect(root))["run-c"]["decision_until"] == "2027-03-01"


@pytest.mark.parametrize("digits", [64, 8])
def test_which_adapters_saw_this_data_set(root, digits):
    assert list(by_id(register.collect(root, DATA[:digits]))) == ["run-a", "run-b"]
    manifest = file_sha256(root / "run-c" / "data_manifest.json")
    assert list(by_id(register.collect(root, manifest[:digits]))) == ["run-c"]
    assert register.collect(root, "0" * digits)["runs"] == []


def test_a_damaged_run_is_not_left_out_of_the_answer(root):
    (root / "run-c" / "data_manifest.json").write_text("{")
    assert list(by_id(register.collect(root, DATA))) == ["run-a", "run-b", "run-c"]


@pytest.mark.parametrize("data", ["abc", "g" * 64, "0" * 65, "../runs", "ABCDEF0123"])
def test_what_is_no_digest_is_refused(root, data):
    with pytest.raises(WrongInput) as caught:
        register.collect(root, data)
    assert data in caught.value.en and data in caught.value.ar


@pytest.mark.parametrize(
    "file", ["settings.json", "decision.json", "data_manifest.json", "ledger/events.jsonl"]
)
@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 5000, b'{"run_id": 5}', b"folder"])  # fmt: skip
def test_a_damaged_folder_is_listed_as_damaged_and_hides_no_other(root, file, content):
    path = root / "run-b" / file
    path.unlink()
    if content == b"folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    rows = by_id(register.collect(root))
    assert not rows["run-a"]["damaged"] and not rows["run-c"]["damaged"]
    # An object that merely lacks a field is an older or foreign decision, which is no damage of its own.
    if not (content == b'{"run_id": 5}' and file == "decision.json"):
        assert rows["run-b"]["damaged"], rows["run-b"]
    json.dumps(rows), register.table(register.collect(root))


@pytest.mark.parametrize("shape", [{"packs": 5}, {"packs": [5]}, {"override": "x"}, {"conditions": {"a": 1}}, {"conditions": ["x"]}])  # fmt: skip
def test_a_decision_of_another_shape_does_not_stop_the_register(root, shape):
    edit(root / "run-b" / "decision.json", **shape)
    rows = by_id(register.collect(root))
    assert len(rows) == 3 and not rows["run-a"]["damaged"]


def test_a_broken_chain_is_damage(root):
    ledger = root / "run-a" / "ledger" / "events.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"samples":128', b'"samples":129', 1))
    assert "ledger: line" in by_id(register.collect(root))["run-a"]["damaged"][0]


def test_an_adapter_without_weights_is_damage(root):
    (root / "run-a" / "adapters" / "v000060" / "adapter_model.safetensors").unlink()
    assert by_id(register.collect(root))["run-a"]["damaged"]


def test_files_and_empty_and_hidden_folders_are_no_runs(root):
    (root / "notes.txt").write_text("x")
    (root / "empty").mkdir()
    shutil.copytree(root / "run-a", root / ".hidden")
    assert len(register.collect(root)["runs"]) == 3


def test_no_local_path_is_printed(root):
    edit(
        root / "run-a" / "settings.json",
        purpose="see /home/someone/secret/plan.txt",
        runs_dir="/home/someone/runs",
    )
    (root / "run-b" / "settings.json").unlink()
    text = json.dumps(register.collect(root)) + register.table(register.collect(root))
    assert "someone" not in text and str(root) not in text


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(WrongInput) as caught:
        register.collect(tmp_path / "none")
    assert "none" in caught.value.en


def test_the_table_isolates_every_cell_and_names_the_damage(root):
    (root / "run-b" / "decision.json").unlink()
    lines = register.table(register.collect(root)).splitlines()
    assert len(lines) == 1 + 3 + 1 and "decision.json: missing" in lines[3]
    assert all(line.count("\u2068") == line.count("\u2069") == 7 for line in lines if "damaged" not in line)
    widths = {len(line) for line in lines if "damaged" not in line}
    assert len(widths) == 1, "columns line up"


def test_the_command_answers_in_both_forms(root):
    def call(*words):
        command = [sys.executable, "-m", "grpo_lib.register", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=root.parent)

    told = call("runs", "--data", DATA)
    weights = file_sha256(root / "run-a" / "adapters" / "v000060" / "adapter_model.safetensors")
    assert told.returncode == 0 and f"run-a  v000060  {weights}" in told.stdout and "run-c" not in told.stdout
    assert json.loads(call("runs", "--json").stdout)["runs"][2]["run_id"] == "run-c"
    wrong = call("nowhere")
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr and "nowhere" in wrong.stderr
