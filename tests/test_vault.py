"""The run key and sealed files: what opens, what does not, and what the message says."""

from __future__ import annotations

import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_lib import vault
from grpo_lib.errors import WrongInput
from grpo_lib.ledger import Ledger
from grpo_lib.runfolder import RunFolder, sha256
from grpo_lib.vault import (
    RunKey,
    create_key,
    destroy_key,
    key_for_launch,
    key_from_environment,
    key_path,
    load_key,
    seal,
    unseal,
)

KEY = RunKey("run-1", bytes(range(32)))


@pytest.fixture(autouse=True)
def keys_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("GRPO_KEY_PASSPHRASE", raising=False)
    return tmp_path / "keys"


def bilingual(caught) -> str:
    """The English half, after checking that both are there."""
    assert any("\u0600" <= char <= "\u06ff" for char in caught.value.ar)
    return caught.value.en


# ---- the run key ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passphrase", ["", "عبارة مرور طويلة"])
def test_a_key_is_stored_outside_the_run_folder_for_its_owner_alone(keys_dir, monkeypatch, passphrase):
    if passphrase:
        monkeypatch.setenv("GRPO_KEY_PASSPHRASE", passphrase)
    key = create_key("run-1")
    path = key_path("run-1")
    assert path == keys_dir / "runs" / "run-1.key" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key("run-1") == key and len(key.secret) == 32
    assert (key.secret.hex() in path.read_text()) == (not passphrase), "a passphrase wraps it"
    assert key.secret.hex() not in repr(key) and key.name not in key.secret.hex()


def test_a_wrapped_key_needs_its_passphrase(monkeypatch):
    monkeypatch.setenv("GRPO_KEY_PASSPHRASE", "one")
    create_key("run-1")
    monkeypatch.setenv("GRPO_KEY_PASSPHRASE", "two")
    with pytest.raises(WrongInput) as caught:
        load_key("run-1")
    assert "passphrase does not open" in bilingual(caught)
    monkeypatch.delenv("GRPO_KEY_PASSPHRASE")
    with pytest.raises(WrongInput) as caught:
        load_key("run-1")
    assert "Set GRPO_KEY_PASSPHRASE" in bilingual(caught)


def test_the_key_file_of_one_run_does_not_serve_another():
    create_key("run-1")
    key_path("run-1").rename(key_path("run-2"))
    with pytest.raises(WrongInput) as caught:
        load_key("run-2")
    assert "another run" in bilingual(caught)


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"schema":"grpo-lib/run-key/1","run_id":"run-1","wrap":null,"key":"00"}'])  # fmt: skip
def test_a_damaged_key_file_is_said(text):
    create_key("run-1")
    key_path("run-1").write_text(text)
    with pytest.raises(WrongInput) as caught:
        load_key("run-1")
    assert "run-1.key" in bilingual(caught)


@pytest.mark.parametrize("change", ["n", "salt", "nonce", "key"])
def test_a_wrapped_key_that_was_changed_does_not_open(monkeypatch, change):
    monkeypatch.setenv("GRPO_KEY_PASSPHRASE", "one")
    create_key("run-1")
    stored = json.loads(key_path("run-1").read_text())
    place = stored if change == "key" else stored["wrap"]
    place[change] = (
        1024 if change == "n" else place[change][:-2] + ("00" if place[change][-2:] != "00" else "11")
    )
    key_path("run-1").write_text(json.dumps(stored))
    with pytest.raises(WrongInput):
        load_key("run-1")


def test_an_existing_key_is_never_replaced():
    first = create_key("run-1")
    with pytest.raises(WrongInput) as caught:
        create_key("run-1")
    assert "not replaced" in bilingual(caught)
    assert load_key("run-1") == first


def test_a_launch_makes_the_key_once_and_a_resume_finds_it(tmp_path):
    run = RunFolder(tmp_path / "run-1")
    assert key_for_launch(run) == key_for_launch(run) == load_key("run-1")


def test_a_lost_key_is_not_replaced_while_records_need_it(tmp_path):
    run = RunFolder(tmp_path / "run-1")
    run.rollouts.mkdir(parents=True)
    (run.rollouts / "000000.sealed").write_bytes(b"something")
    with pytest.raises(WrongInput) as caught:
        key_for_launch(run)
    assert "no key" in bilingual(caught) and not key_path("run-1").exists()


def test_a_destroyed_key_is_gone_with_its_drafts(keys_dir):
    create_key("run-1"), create_key("run-10")
    (keys_dir / "runs" / ".run-1.key.77").write_text("left by a crash")
    assert destroy_key("run-1") and not destroy_key("run-1")
    assert [path.name for path in (keys_dir / "runs").iterdir()] == ["run-10.key"]


@pytest.mark.parametrize("event", ["purge_started", "purged"])
def test_a_purged_run_gets_no_new_key(tmp_path, event):
    run = RunFolder(tmp_path / "run-1")
    Ledger(run.ledger, "run-1", "purge").append(event)
    with pytest.raises(WrongInput) as caught:
        key_for_launch(run)
    assert "purged" in bilingual(caught) and not key_path("run-1").exists()


def test_the_learner_takes_the_key_out_of_its_environment(monkeypatch):
    monkeypatch.setenv("GRPO_RUN_KEY", KEY.secret.hex())
    assert key_from_environment("run-1") == KEY
    assert "GRPO_RUN_KEY" not in os.environ


@pytest.mark.parametrize("value", [None, "", "xyz", "00" * 31])
def test_a_missing_or_short_key_in_the_environment_is_said(monkeypatch, value):
    monkeypatch.delenv("GRPO_RUN_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("GRPO_RUN_KEY", value)
    with pytest.raises(WrongInput) as caught:
        key_from_environment("run-1")
    assert "GRPO_RUN_KEY" in bilingual(caught) and (not value or value not in caught.value.en)


# ---- sealing --------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.integers(0, 10**7))
def test_what_is_sealed_opens_again(data, number):
    assert unseal(KEY, number, seal(KEY, number, data), "x") == data


def test_the_same_data_sealed_twice_looks_different_and_shows_nothing():
    data = "ما ناتج جمع خمسة مع سبعة؟".encode() * 20
    one, two = seal(KEY, 0, data), seal(KEY, 0, data)
    assert one != two and data[:20] not in one and one.startswith(b'{"bytes":')


def test_another_key_is_called_so():
    with pytest.raises(WrongInput) as caught:
        unseal(RunKey("run-1", bytes(32)), 0, seal(KEY, 0, b"data"), "000000.sealed")
    assert "000000.sealed is sealed with another key" in bilingual(caught) and KEY.name in caught.value.en


def test_a_key_of_the_same_secret_for_another_run_does_not_open():
    with pytest.raises(WrongInput):
        unseal(RunKey("run-2", KEY.secret), 0, seal(KEY, 0, b"data"), "x")


def test_a_swapped_file_is_called_so():
    with pytest.raises(WrongInput) as caught:
        unseal(KEY, 4, seal(KEY, 3, b"data"), "000004.sealed")
    assert "000004.sealed stands in another's place: sealed as 3" in bilingual(caught)


def test_a_file_does_not_take_anothers_place_by_a_rewritten_header():
    """The number in the header is for the message; what binds a file to its place is the authenticated tag."""
    sealed = seal(KEY, 3, b"data")
    with pytest.raises(WrongInput) as caught:
        unseal(KEY, 4, sealed.replace(b'"record":3', b'"record":4'), "000004.sealed")
    assert "was changed after it was sealed" in bilingual(caught)


@pytest.mark.parametrize("cut", [1, 8, 15, 16, 20])
def test_a_cut_file_is_called_so(cut):
    with pytest.raises(WrongInput) as caught:
        unseal(KEY, 0, seal(KEY, 0, b"some data")[:-cut], "000000.sealed")
    assert "is cut" in bilingual(caught)


@pytest.mark.parametrize("blob", [b"", b"\n", b"{}\n", b"[1]\ndata", b"PK\x03\x04", b"[" * 9000, b'{"schema":"grpo-lib/sealed/1"}\n'])  # fmt: skip
def test_what_is_no_sealed_file_is_called_so(blob):
    with pytest.raises(WrongInput) as caught:
        unseal(KEY, 0, blob, "000000.sealed")
    assert "not a file that this suite sealed" in bilingual(caught)


def test_any_changed_byte_keeps_it_shut():
    sealed = seal(KEY, 0, b"data of a row")
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(WrongInput):
            unseal(KEY, 0, changed, "x")


def test_a_changed_file_is_called_so():
    sealed = seal(KEY, 0, b"data of a row")
    with pytest.raises(WrongInput) as caught:
        unseal(KEY, 0, sealed[:-1] + bytes([sealed[-1] ^ 1]), "000000.sealed")
    assert "was changed after it was sealed" in bilingual(caught)


def test_digests_are_keyed():
    row = "نعم".encode()
    assert KEY.digest(row) != sha256(row) and KEY.digest(row) != RunKey("run-1", bytes(32)).digest(row)
    assert KEY.digest(row) == RunKey("run-1", KEY.secret).digest(row) and len(KEY.digest(row)) == 64
    assert vault.RunKey("run-2", KEY.secret).digest(row) != KEY.digest(row)
