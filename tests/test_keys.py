"""Keys: kept private, never replaced by accident, never inside a run folder; a fingerprint that openssl agrees with."""

from __future__ import annotations

import base64
import json
import stat
import subprocess

import pytest

from grpo_lib import keys
from grpo_lib.errors import WrongInput
from grpo_lib.runfolder import canonical


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(keys.FOLDER_VARIABLE, str(tmp_path / "keys"))
    monkeypatch.delenv(keys.PASSPHRASE_VARIABLE, raising=False)
    return tmp_path / "keys"


def test_a_key_is_private_and_its_fingerprint_is_openssls(folder) -> None:
    signer = keys.create("operator")
    assert stat.S_IMODE((folder / "operator.pem").stat().st_mode) == 0o600
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", folder / "operator.pub.pem", "-outform", "DER"],
        capture_output=True,
        check=True,
    ).stdout
    shown = (
        subprocess.run(["sha256sum"], input=der, capture_output=True, check=True).stdout.split()[0].decode()
    )
    assert signer.fingerprint == shown
    assert keys.load("operator").fingerprint == signer.fingerprint


def test_an_existing_key_is_not_replaced() -> None:
    first = keys.create("operator")
    with pytest.raises(WrongInput, match="not replaced"):
        keys.create("operator")
    assert keys.load_or_create("operator").fingerprint == first.fingerprint


def test_a_passphrase_protects(monkeypatch, folder) -> None:
    monkeypatch.setenv(keys.PASSPHRASE_VARIABLE, "a long phrase")
    keys.create("operator")
    assert b"ENCRYPTED" in (folder / "operator.pem").read_bytes()
    for wrong in ("another", None):
        if wrong is None:
            monkeypatch.delenv(keys.PASSPHRASE_VARIABLE)
        else:
            monkeypatch.setenv(keys.PASSPHRASE_VARIABLE, wrong)
        with pytest.raises(WrongInput) as caught:
            keys.load("operator")
        assert keys.PASSPHRASE_VARIABLE in caught.value.ar and keys.PASSPHRASE_VARIABLE in caught.value.en


def test_keys_do_not_lie_in_a_run_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "run" / "ledger").mkdir(parents=True)
    (tmp_path / "run" / "ledger" / "events.jsonl").touch()
    monkeypatch.setenv(keys.FOLDER_VARIABLE, str(tmp_path / "run" / "keys"))
    with pytest.raises(WrongInput, match="run folder"):
        keys.create("operator")


@pytest.mark.parametrize("name", ["", "../up", "Upper", "a/b", "مفتاح"])
def test_names_are_plain(name) -> None:
    with pytest.raises(WrongInput):
        keys.create(name)


def test_rotation_is_signed_by_the_old_key(folder) -> None:
    old = keys.create("operator")
    new, statement = keys.rotate("operator")
    told = json.loads(statement.read_text(encoding="utf-8"))
    signature = base64.b64decode(told.pop("signature"))
    old.key.public_key().verify(signature, canonical(told))
    assert told["new_sha256"] == new.fingerprint == keys.load("operator").fingerprint != old.fingerprint
    assert (folder / f"operator.{old.fingerprint[:8]}.pem").is_file()


def test_trusted_keys_are_only_sound_ones(tmp_path, folder) -> None:
    signer = keys.create("auditor")
    governance = tmp_path / "governance"
    assert keys.trust(folder / "auditor.pub.pem", "auditor", governance) == signer.fingerprint
    (governance / "trusted" / "noise.pub.pem").write_text("no key")
    assert list(keys.trusted(governance)) == [signer.fingerprint]
    with pytest.raises(WrongInput):
        keys.trust(governance / "trusted" / "noise.pub.pem", "noise", governance)


def test_command_line(capsys) -> None:
    assert keys.main(["create", "operator"]) == 0
    assert keys.main(["list"]) == 0
    assert "operator" in capsys.readouterr().out
    assert keys.main(["show", "nobody"]) == 2
    assert "python -m grpo_lib.keys create nobody" in capsys.readouterr().err
