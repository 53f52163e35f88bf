"""Both offline routes against tampering: every line flipped, dropped, swapped, inserted; the tail cut; files replaced."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest

from compliance import path as data_path
from grpo_lib import attestation, keys, treeheads
from grpo_lib.ledger import Ledger
from grpo_lib.runfolder import RunFolder, canonical, file_sha256, sha256, write_atomic, write_json
from grpo_lib.witness import Witness

SPEC = importlib.util.spec_from_file_location("verify", data_path("verify.py"))
verify = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(verify)

NOTHING = dict(key=None, fingerprint=None, witness_key=None, witness_fingerprint=None, tree_head=None)


def check(root: Path, **given) -> tuple[int, verify.Check]:
    found = verify.Check(verify.Files(root), Namespace(**(NOTHING | given)))
    return found.run(), found


def shell(root: Path, key: Path) -> int:
    return subprocess.run(["sh", data_path("verify.sh"), root, key], capture_output=True).returncode


def build(root: Path, signer: keys.Signer, extra: int = 0) -> RunFolder:
    """A small complete run, signed as a real one is."""
    run = RunFolder(root)
    write_json(run.settings, {"seed": 0})
    decision = {"verdict": "allow"}
    decision["digest"] = sha256(canonical(decision))
    write_json(run.decision, decision)
    adapter = run.adapter(1) / "adapter_model.safetensors"
    write_atomic(adapter, b"weights of a test")
    write_atomic(run.reports / "audit.en.html", "<p>a report</p>")
    ledger = Ledger(run.ledger, run.run_id, "launcher")
    data = {
        "run_started": {"settings_sha256": file_sha256(run.settings)},
        "gate_decided": {"verdict": "allow", "decision_sha256": decision["digest"]},
        "adapter_published": {"version": 1, "sha256": file_sha256(adapter)},
        "training_finished": {"version": 1, "adapter_sha256": file_sha256(adapter)},
        "run_ended": {"status": "complete", "exit_code": 0},
    }
    for event in attestation.EXPECTED_EVENTS:
        ledger.append(event, **data.get(event, {}))
        if event in ("gate_decided", "checkpoint_saved", "run_ended"):
            treeheads.sign_head(run, signer)
        if event == "step":
            for step in range(extra):
                ledger.append("step", step=step)
    ledger.append("report_built", files={"audit.en.html": file_sha256(run.reports / "audit.en.html")})
    attestation.write(run, signer, draft=False)
    treeheads.sign_head(run, signer)
    return run


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> tuple[RunFolder, keys.Signer, Path]:
    root = tmp_path_factory.mktemp("signed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(keys.FOLDER_VARIABLE, str(root / "keys"))
        signer = keys.create("operator")
        yield build(root / "run", signer), signer, root / "keys" / "operator.pub.pem"


@pytest.fixture
def copy(signed, tmp_path) -> RunFolder:
    shutil.copytree(signed[0].root, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_sound_run_holds_by_both_routes(signed) -> None:
    run, signer, key = signed
    assert check(run.root, fingerprint=signer.fingerprint)[0] == 0
    assert check(run.root, key=key)[0] == 0
    assert shell(run.root, key) == 0
    code, found = check(run.root)
    assert code == 3 and found.verdict["signer"] == "unknown" and found.verdict["integrity"] == "holds"
    assert check(run.root, fingerprint="0" * 64)[0] == 1
    shown = subprocess.run(
        [sys.executable, data_path("verify.py"), run.root, "--fingerprint", keys.grouped(signer.fingerprint)],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0 and "without a witness" in shown.stdout and "بلا شاهد" in shown.stdout


LINES = len(attestation.EXPECTED_EVENTS) + 2


@pytest.mark.parametrize("number", range(LINES))
@pytest.mark.parametrize("change", ["flip", "drop", "swap", "insert"])
def test_no_line_changes_unseen(signed, copy, number, change) -> None:
    lines = copy.ledger.read_bytes().splitlines(keepends=True)
    assert len(lines) == LINES
    match change:
        case "flip":
            middle = len(lines[number]) // 2
            lines[number] = (
                lines[number][:middle] + bytes([lines[number][middle] ^ 1]) + lines[number][middle + 1 :]
            )
        case "drop":
            del lines[number]
        case "swap":
            other = number - 1 if number else 1
            lines[number], lines[other] = lines[other], lines[number]
        case "insert":
            lines.insert(number, lines[number])
    copy.ledger.write_bytes(b"".join(lines))
    assert check(copy.root, fingerprint=signed[1].fingerprint)[0] == 1
    if number % 5 == 0 or number == LINES - 1:
        assert shell(copy.root, signed[2]) == 1


@pytest.mark.parametrize("kept", range(LINES))
def test_no_tail_is_cut_unseen(signed, copy, kept) -> None:
    lines = copy.ledger.read_bytes().splitlines(keepends=True)
    copy.ledger.write_bytes(b"".join(lines[:kept]))
    assert check(copy.root, fingerprint=signed[1].fingerprint)[0] == 1
    if kept in (1, LINES - 1):
        assert shell(copy.root, signed[2]) == 1


@pytest.mark.parametrize(
    "name",
    [
        "adapters/v000001/adapter_model.safetensors",
        "reports/audit.en.html",
        "settings.json",
        "decision.json",
        "statement.dsse.json",
    ],
)
def test_no_file_is_replaced_unseen(signed, copy, name) -> None:
    path = copy.root / name
    path.write_bytes(path.read_bytes().replace(b"a", b"e", 1) + b" ")
    assert check(copy.root, fingerprint=signed[1].fingerprint)[0] == 1
    if name != "statement.dsse.json" or b'"payload"' in path.read_bytes():
        assert shell(copy.root, signed[2]) == 1 or name == "statement.dsse.json"
    path.unlink()
    if name != "statement.dsse.json":
        assert check(copy.root, fingerprint=signed[1].fingerprint)[0] == 1


@pytest.mark.parametrize("change", ["swap", "signature", "size", "noise"])
def test_no_tree_head_changes_unseen(signed, copy, change) -> None:
    heads = sorted(copy.tree_heads.glob("*.note"))
    raw = heads[0].read_bytes()
    match change:
        case "swap":
            heads[0].write_bytes(heads[1].read_bytes())
            heads[1].write_bytes(raw)
        case "signature":
            last = raw.rstrip().rsplit(b" ", 1)
            heads[0].write_bytes(last[0] + b" " + last[1][:-8] + b"AAAAAA==\n")
        case "size":
            heads[0].write_bytes(raw.replace(b"\n4\n", b"\n3\n"))
        case "noise":
            heads[0].write_bytes(b"\xff\x00")
    assert check(copy.root, fingerprint=signed[1].fingerprint)[0] == 1
    assert shell(copy.root, signed[2]) == 1


def test_a_rewrite_with_the_key_is_caught_by_a_witness_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(keys.FOLDER_VARIABLE, str(tmp_path / "keys"))
    operator, auditor = keys.create("operator"), keys.create("auditor")
    run = build(tmp_path / "run", operator)
    assert Witness(run, auditor, tmp_path / "state").look()
    known = {"fingerprint": operator.fingerprint}
    assert check(run.root, witness_fingerprint=auditor.fingerprint, **known)[0] == 0
    kept = {path: path.read_bytes() for path in run.tree_heads.glob("witness*")}
    kept |= {path: path.read_bytes() for path in run.tree_heads.glob("*.witness.note")}
    shutil.rmtree(run.root)
    build(tmp_path / "run", operator, extra=3)
    code, found = check(run.root, **known)
    assert code == 0 and "rewrite the ledger" in str(found.notes["witness"]), (
        "without a witness it is not seen, and said"
    )
    assert check(run.root, tree_head=tmp_path / "state" / "run.note", **known)[0] == 1
    assert check(run.root, witness_fingerprint=auditor.fingerprint, **known)[0] == 1, (
        "its cosignature is gone"
    )
    for path, raw in kept.items():
        path.write_bytes(raw)
    assert check(run.root, witness_fingerprint=auditor.fingerprint, **known)[0] == 1, "it is of other lines"


def test_an_unfinished_run_says_what_cannot_be_seen(signed, tmp_path, monkeypatch) -> None:
    run = RunFolder(tmp_path / "open")
    ledger = Ledger(run.ledger, run.run_id, "launcher")
    for step in range(3):
        ledger.append("step", step=step)
    treeheads.sign_head(run, signed[1])
    ledger.append("step", step=3)
    code, found = check(run.root, fingerprint=signed[1].fingerprint)
    assert code == 4 and "cannot be seen to be missing" in str(found.notes["completeness"])


def test_a_draft_is_not_complete(signed, copy, monkeypatch) -> None:
    attestation.write(copy, signed[1], draft=True)
    treeheads.sign_head(copy, signed[1])
    assert check(copy.root, fingerprint=signed[1].fingerprint)[0] == 4


@pytest.mark.parametrize(
    "name", ["ledger/events.jsonl", "statement.dsse.json", "ledger/tree-heads/operator.pub.pem"]
)
@pytest.mark.parametrize("raw", [b"", b"\xff" * 64, b"{}\n", b"[1]\n", b'{"seq":0}\n'])
def test_rubbish_is_neither_sound_nor_a_traceback(signed, copy, name, raw) -> None:
    (copy.root / name).write_bytes(raw)
    done = subprocess.run(
        [sys.executable, data_path("verify.py"), copy.root, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (1, 3) and "Traceback" not in done.stderr, done.stderr
    assert json.loads(done.stdout)["exit_code"] == done.returncode


def test_wrong_use_is_said(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, data_path("verify.py"), tmp_path / "nowhere"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "cannot start" in done.stderr and "Traceback" not in done.stderr


def test_a_long_ledger_is_verified_in_seconds(signed, tmp_path) -> None:
    run, (_, signer, _) = RunFolder(tmp_path / "long"), signed
    ledger, tree = Ledger(run.ledger, run.run_id, "learner"), treeheads.Tree()
    for step in range(5000):
        ledger.append("step", step=step, reward_mean=0.5)
    for number, line in enumerate(treeheads.whole_lines(run.ledger), 1):
        tree.add(line)
        if number % 10 == 0:
            treeheads.write_head(run, signer, tree.size, tree.root())
    begun = time.perf_counter()
    code, _ = check(run.root, fingerprint=signer.fingerprint)
    seconds = time.perf_counter() - begun
    print(f"5,000 lines and 500 heads: {seconds:.2f} s")
    assert code == 4 and seconds < 15  # 2.6 s on a machine at rest


def test_the_verifier_expects_what_the_statement_names() -> None:
    assert tuple(verify.EXPECTED) == attestation.EXPECTED_EVENTS
