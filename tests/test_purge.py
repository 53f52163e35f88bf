"""Purge: key and data go, evidence stays, and the ledger says who did it, why and what went."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from fixtures_run import RUN_ID, write_run

from compliance import path as data_path
from grpo_lib import adapter_state, bundle, keys, purge, treeheads, vault
from grpo_lib.errors import WrongInput
from grpo_lib.ledger import Ledger, check_chain, read_events
from grpo_lib.runfolder import RunFolder, file_sha256
from grpo_lib.step_records import Sealer

DATA = b"a prompt and its completion"


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunFolder:
    """A finished, signed run with sealed records, a checkpoint, an adapter and both bundles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("GRPO_KEY_PASSPHRASE", raising=False)
    run = RunFolder(write_run(tmp_path / "runs", runs_dir="runs"))
    sealer, ledger = Sealer(run, vault.create_key(RUN_ID)), Ledger(run.ledger, RUN_ID, "learner")
    for step in (1, 2):
        ledger.append("step", step=step, rollouts=sealer.step(step, [(DATA, 0)]))
    run.packs.mkdir()
    for pack in ("sa", "iq"):
        (run.packs / f"{pack}.yaml").write_bytes(data_path("rules", f"{pack}.yaml").read_bytes())
    treeheads.sign_head(run, keys.create("operator"))
    bundle.evidence(run), bundle.replay(run)
    return run


def done(run: RunFolder, **changed) -> dict:
    given = {"by_role": "head of data", "reason": "purpose ended", "signer": keys.load("operator")}
    return purge.purge(run, **{**given, **changed})


def english(caught) -> str:
    assert any("\u0600" <= char <= "\u06ff" for char in caught.value.ar)
    return caught.value.en


def events(run: RunFolder, name: str) -> list[dict]:
    return [event["data"] for event in read_events(run.ledger) if event["event"] == name]


def kept(run: RunFolder) -> dict[str, str]:
    """Every file of the run but the ledger and what grows with it, with its digest."""
    files = [path for path in run.root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    grows = (run.ledger, run.custody)
    return {
        str(path.relative_to(run.root)): file_sha256(path)
        for path in files
        if path not in grows and run.tree_heads not in path.parents
    }


def test_key_and_data_go_and_everything_else_stays_as_it_was(run):
    key, before = vault.load_key(RUN_ID), kept(run)
    copy = (run.rollouts / "000000.sealed").read_bytes()
    done(run)
    gone = {
        name
        for name in before
        if name.startswith(("rollouts/", "checkpoints/")) or name.endswith("-replay.zip")
    }
    assert (
        kept(run) == {name: digest for name, digest in before.items() if name not in gone} and len(gone) == 4
    )
    assert not vault.key_path(RUN_ID).exists() and not run.rollouts.exists() and not run.checkpoints.exists()
    # A copy made elsewhere is still shut; it would open with a copy of the key alone.
    with pytest.raises(WrongInput):
        vault.load_key(RUN_ID)
    assert DATA not in copy and DATA in vault.unseal(key, 0, copy, "x")


def test_the_ledger_says_what_went_who_and_why_and_still_verifies(run):
    size = sum(path.stat().st_size for path in run.rollouts.iterdir())
    annex = bundle.path_of(run, "replay").stat().st_size
    lines = run.ledger.read_bytes()
    said = done(run)
    [data] = events(run, "purged")
    assert data["what"] == [
        {"folder": "rollouts", "files": 2, "bytes": size},
        {"folder": "checkpoints", "files": 1, "bytes": len(b"optimizer state")},
        {"folder": "bundles", "files": 1, "bytes": annex},
    ]
    assert (data["by_role"], data["reason"], data["key_destroyed"]) == ("head of data", "purpose ended", True)
    assert {**said, "custody_sha256": file_sha256(run.custody)} == data and data["at"].endswith("Z")
    assert run.ledger.read_bytes().startswith(lines) and check_chain(run.ledger).intact
    assert [head.size for head in treeheads.read(run)][-1] == run.ledger.read_bytes().count(b"\n")


def test_the_offline_verifier_takes_a_purge_for_no_damage(run):
    def verdicts() -> dict:
        command = [sys.executable, data_path("verify.py"), run.root, "--json"]
        command += ["--fingerprint", keys.load("operator").fingerprint]
        return json.loads(subprocess.run(map(str, command), capture_output=True, text=True).stdout)

    assert verdicts()["verdicts"]["integrity"] == "holds", verdicts()["notes"]["integrity"]
    done(run, adapters=True)
    assert verdicts()["verdicts"]["integrity"] == "holds", verdicts()["notes"]["integrity"]
    (run.root / "evaluation.json").unlink()
    assert verdicts()["verdicts"]["integrity"] == "broken", "what no purge names is missed"


def test_adapters_go_only_when_asked_for(run):
    done(run)
    assert run.adapter_versions() == [60] and adapter_state.of(run)["state"] == "held"
    said = done(run, adapters=True)
    assert [row["folder"] for row in said["what"]] == ["adapters"] and said["key_destroyed"] is False
    assert run.adapter_versions() == [] and adapter_state.of(run)["state"] == "purged"
    assert json.loads(run.custody.read_text(encoding="utf-8"))["state"] == "purged"


def test_a_run_in_progress_is_not_purged(run):
    for name in ("run", "learner"):
        with run.locked(name), pytest.raises(WrongInput) as caught:
            done(run)
        assert "in progress" in english(caught)
    assert vault.key_path(RUN_ID).exists() and not events(run, "purge_started")


@pytest.mark.parametrize("blank", ["", " ", "\u200e\n"])
@pytest.mark.parametrize("field", ["by_role", "reason"])
def test_nobody_purges_without_role_and_reason(run, field, blank):
    with pytest.raises(WrongInput) as caught:
        done(run, **{field: blank})
    assert "--by" in english(caught) and vault.key_path(RUN_ID).exists()


def test_a_second_purge_finds_nothing(run):
    done(run, adapters=True)
    before = run.ledger.read_bytes()
    with pytest.raises(WrongInput) as caught:
        done(run, adapters=True)
    assert "nothing to purge" in english(caught) and run.ledger.read_bytes() == before


def test_a_purge_that_was_cut_off_is_seen_and_can_be_finished(run, monkeypatch):
    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(purge.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            done(run)
    assert not vault.key_path(RUN_ID).exists(), "the key goes first"
    assert events(run, "purge_started") and not events(run, "purged") and run.rollouts.exists()
    assert [row["folder"] for row in done(run)["what"]] == ["rollouts", "checkpoints", "bundles"]
    assert not run.rollouts.exists() and len(events(run, "purged")) == 1


def test_what_the_system_will_not_remove_is_said_and_not_recorded_as_gone(run, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(purge.shutil, "rmtree", refused)
    with pytest.raises(WrongInput) as caught:
        done(run)
    assert "rollouts could not be removed (Permission denied)" in english(caught) and not events(
        run, "purged"
    )


def test_a_link_is_removed_and_what_it_leads_to_is_not(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    run.checkpoints.rename(elsewhere)
    run.checkpoints.symlink_to(elsewhere)
    done(run)
    assert not run.checkpoints.is_symlink() and (elsewhere / "checkpoint-60" / "optimizer.pt").is_file()


@pytest.mark.parametrize("file", ["settings.json", "data_manifest.json"])
def test_damaged_files_keep_nobody_from_destroying_data(run, file):
    (run.root / file).write_text("{")
    done(run)
    assert not run.rollouts.exists() and len(events(run, "purged")) == 1


def test_paths_do_not_reach_the_ledger(run):
    done(run, reason="see /home/someone/notes.txt")
    assert b"someone" not in run.ledger.read_bytes()


def test_a_purged_run_is_not_resumed_and_gives_no_annex(run):
    done(run)
    with pytest.raises(WrongInput) as caught:
        vault.key_for_launch(run)
    assert "purged" in english(caught)
    with pytest.raises(WrongInput):
        bundle.replay(run)
    assert bundle.evidence(run).is_file(), "evidence can be handed on after the data have gone"


def test_another_runs_key_and_data_are_not_touched(run):
    other = vault.create_key(f"{RUN_ID}-2")
    done(run)
    assert vault.load_key(f"{RUN_ID}-2") == other


def test_how_long_evidence_is_kept_comes_from_the_packs_and_null_is_not_none(run):
    rows = {row["pack"]: row for row in purge.records_kept(run)}
    assert rows["sa"]["years"] == 5 and "33" in rows["sa"]["article"] and rows["iq"]["years"] is None
    assert "not verified" in purge._kept_line(rows["iq"]) and "غير متحقق" in purge._kept_line(rows["iq"])
    assert "5 years" in purge._kept_line(rows["sa"]) and "our paraphrase" in purge._kept_line(rows["sa"])


def command(*words: str) -> subprocess.CompletedProcess:
    whole = [sys.executable, "-m", "grpo_lib.purge", *words]
    return subprocess.run(whole, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_the_command_asks_before_it_destroys(run):
    given = [RUN_ID, "--by", "head of data", "--reason", "purpose ended"]
    asked = command(*given)
    assert asked.returncode == 2 and "--yes" in asked.stderr and vault.key_path(RUN_ID).exists()
    told = command(*given, "--yes")
    assert told.returncode == 0, told.stderr
    for said in (
        "Backups, snapshots and copies elsewhere",
        "rollouts/  2 files",
        "key destroyed",
        "--only report",
    ):
        assert said in told.stdout
    assert not run.rollouts.exists() and run.adapter_versions() == [60]


def test_the_command_needs_the_ledgers_key_before_it_destroys_anything(run, tmp_path):
    (tmp_path / "keys" / "operator.pem").unlink()
    told = command(RUN_ID, "--by", "x", "--reason", "y", "--yes")
    assert told.returncode == 2 and "operator" in told.stderr and vault.key_path(RUN_ID).exists()


def test_with_damaged_settings_the_command_is_told_which_key_signs(run):
    run.settings.write_text("{")
    told = command(RUN_ID, "--by", "x", "--reason", "y", "--yes")
    assert told.returncode == 2 and "settings.json" in told.stderr and vault.key_path(RUN_ID).exists()
    told = command(RUN_ID, "--by", "x", "--reason", "y", "--yes", "--key", "operator")
    assert told.returncode == 0 and not vault.key_path(RUN_ID).exists(), told.stderr


@pytest.mark.parametrize("name", ["..", "../runs", "none", "/etc"])
def test_the_command_goes_nowhere_else(run, monkeypatch, name):
    given = [name, "--by", "x", "--reason", "y", "--yes", "--key", "operator"]
    monkeypatch.setattr("sys.argv", ["purge", *given])
    with pytest.raises(WrongInput) as caught:
        purge.main()
    assert name in english(caught)
