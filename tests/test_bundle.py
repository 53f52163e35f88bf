"""The two bundles: what is in them, what is not, and that the same folder gives the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from fixtures_run import write_run

from grpo_lib import attestation, bundle, keys, treeheads
from grpo_lib.errors import WrongInput
from grpo_lib.ledger import Ledger
from grpo_lib.rollouts import Header, RolloutBatch, Span
from grpo_lib.runfolder import RunFolder, file_sha256, sha256
from grpo_lib.step_records import Reader, Sealer
from grpo_lib.tasks import load_task
from grpo_lib.vault import create_key, key_path

ADAPTER = safetensors.numpy.save(
    {"layer.lora_A.weight": np.random.default_rng(0).normal(size=(16, 64)).astype("<f4")}
)
COMPLETIONS = [f"<فكر>أجمع {n}</فكر><جواب>{n}</جواب>" for n in range(16)]
PROMPTS = [load_task("arithmetic", 0).train_example(index).prompt for index in range(2)]


def payload(seed: int) -> bytes:
    random = np.random.default_rng(seed)
    return RolloutBatch(
        header=Header("w", seed, seed, 1, "p", "b", (0, 1), ("correct",), (Span("generate", 0.0, 1.0),)),
        input_ids=random.integers(0, 500, 16 * 20, dtype=np.int32),
        completion_mask=np.ones(16 * 20, np.uint8),
        old_log_probs=-random.random(16 * 20, dtype=np.float32),
        lengths=np.full(16, 20, np.int32),
        rewards=random.random((16, 1), dtype=np.float32),
        advantages=random.random(16, dtype=np.float32),
    ).to_bytes()


PAYLOADS = [payload(seed) for seed in range(3)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run with everything that must stay inside, in every place where a run could leave it."""
    monkeypatch.setenv("GRPO_KEYS_DIR", str(tmp_path / "keys"))
    run = RunFolder(write_run(tmp_path / "runs", runs_dir="runs"))
    sealer, ledger = Sealer(run, create_key(run.run_id)), Ledger(run.ledger, run.run_id, "learner")
    for step, one in enumerate(PAYLOADS, start=1):
        ledger.append(
            "step", step=step, prompts=[0, 1], samples=16, rollouts=sealer.step(step, [(one, 0), (one, 1)])
        )
    for path in run.adapters.rglob("adapter_model.safetensors"):
        path.write_bytes(ADAPTER)
    talk = "\n".join([*PROMPTS, *COMPLETIONS])
    for place in (
        "logs/worker-0.log",
        "notebooks/train.ipynb",
        "reports/scratch.txt",
        "notes.json",
        "ledger/events.jsonl.bak",
    ):
        (run.root / place).parent.mkdir(exist_ok=True)
        (run.root / place).write_text(talk, encoding="utf-8")
    (run.root / "checkpoints" / "checkpoint-60" / "adapter_model.safetensors").write_bytes(ADAPTER)
    (run.reports / "training-audit.ar.html").write_text("<p>تقرير</p>", encoding="utf-8")
    (run.root / "packs").mkdir()
    (run.root / "packs" / "sa.yaml").write_text("id: sa\n")
    return run


def members(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def windows(data: bytes, size: int = 32) -> set[bytes]:
    return {data[at : at + size] for at in range(0, len(data) - size + 1, size)}


def spellings(text: str) -> set[bytes]:
    """How a text could stand in a file: plain, escaped as in JSON, or in two bytes a letter."""
    return {text.encode(), json.dumps(text)[1:-1].encode(), text.encode("utf-16-le")}


# ---- evidence: nothing of the data ----------------------------------------------------------------------------


def leaks(files: dict[str, bytes]) -> list[str]:
    """Names of files in which a prompt, a completion, rollout arrays or adapter weights can be seen."""
    texts = {form for text in [*PROMPTS, *COMPLETIONS] for form in spellings(text)}
    pieces = {piece for one in PAYLOADS for piece in windows(one[600:])} | windows(ADAPTER[200:])
    found = []
    for name, data in files.items():
        aligned = {data[at : at + 32] for at in range(len(data) - 31)}
        if aligned & pieces or any(text in data for text in texts):
            found.append(name)
    return found


def test_no_prompt_completion_or_adapter_weight_is_in_the_evidence(run):
    files = members(bundle.evidence(run))
    assert leaks(files) == []
    assert not any(name.endswith((".safetensors", ".sealed", ".pt", ".key")) for name in files)


def test_the_scan_sees_what_it_looks_for(run):
    """The same scan over the files that stay behind finds each of them."""
    behind = {
        str(path.relative_to(run.root)): path.read_bytes()
        for folder in ("logs", "notebooks", "checkpoints", "adapters")
        for path in (run.root / folder).rglob("*")
        if path.is_file() and path.name != "optimizer.pt"
    }
    assert set(leaks(behind)) == set(behind) and len(behind) == 4
    assert leaks({"x": json.dumps({"a": PROMPTS[0]}).encode(), "y": b"." + ADAPTER[210:300]}) == ["x", "y"]


def test_only_files_that_are_named_go_in(run):
    names = {name.partition("/")[2] for name in members(bundle.evidence(run))}
    assert {
        "settings.json",
        "decision.json",
        "data_manifest.json",
        "ledger/events.jsonl",
        "metrics.jsonl",
    } <= names
    assert {"evaluation.json", "timeline.jsonl", "reports/training-audit.ar.html", "packs/sa.yaml"} <= names
    assert {"README.md", "verify.py", "bundle.json", "SHA256SUMS"} <= names
    assert not names & {"notes.json", "reports/scratch.txt", "ledger/events.jsonl.bak", "logs/worker-0.log"}


def test_adapters_are_named_by_digest_alone(run):
    about = json.loads(members(bundle.evidence(run))[f"{run.run_id}/bundle.json"])
    assert about["adapters_by_digest"] == [
        {
            "file": "adapters/v000060/adapter_model.safetensors",
            "sha256": sha256(ADAPTER),
            "bytes": len(ADAPTER),
        }
    ]
    assert about["kind"] == "evidence"
    assert [(one["file"], one["sha256"]) for one in about["withheld"]] == [
        ("reports/scratch.txt", file_sha256(run.reports / "scratch.txt"))
    ], "what the closing statement names and does not leave is said with its digest"


@pytest.mark.parametrize(
    "changed",
    [{"runs_dir": "/home/someone/runs"}, {"model": "/srv/models/base"}, {"governance_dir": "~someone/g"}],
)
def test_settings_that_hold_a_local_path_are_withheld_and_named_by_digest(tmp_path, changed):
    run = RunFolder(write_run(tmp_path, **{"runs_dir": "runs", **changed}))
    files = members(bundle.evidence(run))
    assert f"{run.run_id}/settings.json" not in files
    withheld = json.loads(files[f"{run.run_id}/bundle.json"])["withheld"]
    assert [(one["file"], one["sha256"]) for one in withheld] == [
        ("settings.json", file_sha256(run.settings))
    ]
    assert not any(b"someone" in data or b"/srv/" in data for data in files.values())


def test_a_link_does_not_lead_other_files_in(run, tmp_path):
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "inside.html").write_text("secret row")
    (run.reports / "linked.html").symlink_to(secret / "inside.html")
    (run.root / "packs" / "sa.yaml").unlink()
    (run.root / "packs").rmdir()
    (run.root / "packs").symlink_to(secret)
    (secret / "x.yaml").write_text("secret row")
    assert not any(b"secret row" in data for data in members(bundle.evidence(run)).values())


# ---- both: the same bytes, and a way to check them ------------------------------------------------------------


@pytest.mark.parametrize("kind", [bundle.evidence, bundle.replay])
def test_the_same_folder_gives_the_same_bytes(run, kind):
    first = kind(run).read_bytes()
    for path in run.root.rglob("*"):
        if path.is_file():
            path.touch()
    assert kind(run).read_bytes() == first
    with zipfile.ZipFile(bundle.path_of(run, kind.__name__)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert [e.filename for e in archive.infolist()] == sorted(e.filename for e in archive.infolist())
        assert all(entry.external_attr >> 16 == 0o644 and not entry.extra for entry in archive.infolist())


@pytest.mark.parametrize("kind", [bundle.evidence, bundle.replay])
def test_the_sums_hold_and_a_changed_file_shows(run, kind, tmp_path):
    made = kind(run)
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "out")
    inside = tmp_path / "out" / run.run_id
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=inside, capture_output=True).returncode == 0
    listed = {line.split("  ")[1] for line in (inside / "SHA256SUMS").read_text().splitlines()}
    assert listed | {"SHA256SUMS"} == {name.partition("/")[2] for name in members(made)}
    (inside / "settings.json").write_bytes((inside / "settings.json").read_bytes() + b" ")
    assert subprocess.run(check, cwd=inside, capture_output=True).returncode == 1


@pytest.mark.parametrize("kind", [bundle.evidence, bundle.replay])
def test_the_readme_tells_both_languages_how_to_verify(run, kind):
    text = members(kind(run))[f"{run.run_id}/README.md"].decode()
    arabic, _, english = text.partition("\n---\n")
    assert "كيف تتحقق" in arabic and "How to verify" in english
    assert "{" not in text and text.count(run.run_id) >= 3
    commands = arabic.split("```sh\n")[1].split("```")[0]
    assert "verify.py . --fingerprint HEX" in commands and "\u2068" not in commands
    assert f"\u2068{run.run_id}\u2069" in arabic and "\u2068" not in english
    assert "لم يراجعها أحد" in arabic, "Arabic by us is unreviewed, and says so"


def test_a_run_in_progress_is_not_bundled(run):
    with run.locked(), pytest.raises(WrongInput) as caught:
        bundle.evidence(run)
    assert "in progress" in caught.value.en


def test_without_a_ledger_there_is_nothing_to_verify(run):
    run.ledger.unlink()
    with pytest.raises(WrongInput) as caught:
        bundle.evidence(run)
    assert "no ledger" in caught.value.en and not bundle.path_of(run, "evidence").exists()


@pytest.mark.parametrize("kind", [bundle.evidence, bundle.replay])
@pytest.mark.parametrize("unpacked", [True, False])
def test_the_verifier_inside_verifies_the_bundle(run, kind, unpacked, tmp_path):
    """With the command that the README gives, and nothing of this project but the bundle itself."""
    signer = keys.create("operator")
    for path in run.adapters.rglob("adapter_model.safetensors"):
        path.write_bytes(b"adapter 60")  # as the fixture's ledger has it
    (run.reports / "scratch.txt").unlink()
    treeheads.sign_head(run, signer)
    attestation.write(run, signer, draft=False)
    treeheads.sign_head(run, signer)
    made = kind(run)
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "out")
    inside = tmp_path / "out" / run.run_id

    def verify() -> dict:
        command = [
            sys.executable,
            "-I",
            "verify.py",
            "." if unpacked else made,
            "--json",
            "--fingerprint",
            signer.fingerprint,
        ]
        done = subprocess.run([str(word) for word in command], cwd=inside, capture_output=True, text=True)
        return json.loads(done.stdout)

    told = verify()
    assert told["verdicts"]["integrity"] == "holds", told["notes"]["integrity"]
    assert told["verdicts"]["signer"] == "known"
    if unpacked:
        (inside / "data_manifest.json").write_bytes((inside / "data_manifest.json").read_bytes() + b" ")
        (inside / "ledger" / "events.jsonl").write_bytes(
            (inside / "ledger" / "events.jsonl").read_bytes()[:-9]
        )
        assert verify()["verdicts"]["integrity"] == "broken"


# ---- the replay annex -----------------------------------------------------------------------------------------


def test_the_annex_holds_the_sealed_records_and_opens_with_the_key_alone(run, tmp_path):
    files = members(bundle.replay(run))
    assert leaks(files) == [], "sealed: nothing can be read in it"
    with zipfile.ZipFile(bundle.path_of(run, "replay")) as archive:
        archive.extractall(tmp_path / "out")
    from grpo_lib.vault import load_key

    reader = Reader(RunFolder(tmp_path / "out" / run.run_id), load_key(run.run_id))
    assert [reader.read(n).groups[0][0] for n in reader.replay_order()] == PAYLOADS
    assert not any(load_key(run.run_id).secret.hex().encode() in data for data in files.values())


def test_no_annex_of_records_that_do_not_match_the_ledger(run):
    (run.rollouts / "000001.sealed").write_bytes((run.rollouts / "000000.sealed").read_bytes())
    with pytest.raises(WrongInput) as caught:
        bundle.replay(run)
    assert "000001.sealed" in caught.value.en and "000001.sealed" in caught.value.ar
    assert not bundle.path_of(run, "replay").exists()


def test_no_annex_without_the_key(run):
    key_path(run.run_id).unlink()
    with pytest.raises(WrongInput):
        bundle.replay(run)


def test_no_annex_without_records(run):
    for path in run.rollouts.iterdir():
        path.unlink()
    with pytest.raises(WrongInput) as caught:
        bundle.replay(run)
    assert "no sealed records" in caught.value.en


def test_the_command_writes_and_says_the_digest(run, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "grpo_lib.bundle", "evidence", run.run_id, "--runs-dir", str(run.root.parent)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert file_sha256(bundle.path_of(run, "evidence")) in done.stdout
    gone = subprocess.run(
        [sys.executable, "-m", "grpo_lib.bundle", "evidence", "none"], capture_output=True, text=True
    )
    assert gone.returncode == 2 and "none" in gone.stderr and "Traceback" not in gone.stderr
