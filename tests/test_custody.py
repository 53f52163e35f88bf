"""Custody: an adapter stays what its data were until a trusted person signs, and the gate is asked before it leaves."""

from __future__ import annotations

import json
from datetime import date

import pytest
from fixtures_governance import LATER, TODAY, Governance
from fixtures_run import RUN_ID, write_run

from grpo_lib import adapter_state, custody, keys, overlays, tasks, treeheads
from grpo_lib.custody import lower, release
from grpo_lib.errors import Refused, WrongInput
from grpo_lib.ledger import Ledger, check_chain, read_events
from grpo_lib.runfolder import RunFolder, canonical, file_sha256, sha256

DAY = date.fromisoformat(TODAY)
PERSON = "A. Secretary"


@pytest.fixture
def governance(tmp_path, monkeypatch) -> Governance:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("GRPO_KEY_PASSPHRASE", raising=False)
    keys.create("operator")
    # Classes above synthetic need a task whose data are somebody's; no question of it is asked here.
    monkeypatch.setitem(tasks.TASKS, "letters", tasks.ArithmeticTask)
    governance = Governance(tmp_path / "governance")
    governance.trust()
    return governance


def make(tmp_path, manifest_class="restricted", **changed) -> RunFolder:
    """A finished run in the Kingdom with restricted data, as its ledger says."""
    given = {"data_class": "restricted", "task": "letters", "controller": "government", "jurisdictions": "sa"}
    run = RunFolder(write_run(tmp_path / "runs", **{**given, "runs_dir": "runs", **changed}))
    manifest = json.loads(run.data_manifest.read_text(encoding="utf-8"))
    run.data_manifest.write_text(json.dumps({**manifest, "class": manifest_class}), encoding="utf-8")
    Ledger(run.ledger, RUN_ID, "launcher").append(
        "data_declared", data_manifest_sha256=file_sha256(run.data_manifest)
    )
    return run


@pytest.fixture
def run(governance, tmp_path) -> RunFolder:
    return make(tmp_path)


def lowered(run: RunFolder, governance: Governance, to: str = "public") -> dict:
    return lower(run, to, PERSON, "secretary", "aggregates only", governance.lawyer)


def english(caught) -> str:
    assert any("\u0600" <= char <= "\u06ff" for char in caught.value.ar)
    return caught.value.en


def last(run: RunFolder) -> dict:
    return read_events(run.ledger)[-1]


# ---- what is inherited ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "declared", "stands"),
    [
        ("restricted", "restricted", "restricted"),
        ("internal", "secret", "secret"),
        ("top_secret", "public", "top_secret"),
        ("", "public", ""),
        ("internal", "", ""),
        ("internal", None, ""),
        ("internal", "unheard-of", ""),
    ],
)
def test_an_adapter_inherits_the_stricter_class_and_none_where_one_is_not_said(
    governance, tmp_path, stated, declared, stands
):
    found = adapter_state.of(make(tmp_path, declared, data_class=stated))
    assert (found["class"], found["inherited_class"], found["state"]) == (stands, stands, "held")


@pytest.mark.parametrize("file", ["settings.json", "data_manifest.json"])
def test_a_class_is_not_lowered_by_editing_a_file(run, file):
    path = run.root / file
    path.write_text(path.read_text(encoding="utf-8").replace("restricted", "public"), encoding="utf-8")
    assert adapter_state.of(run)["class"] == ""
    assert release(run, "push", "huggingface", DAY)["verdict"] == "deny"


def test_a_class_is_not_lowered_by_editing_the_ledger(run):
    path = run.settings
    before = file_sha256(path)
    path.write_text(path.read_text(encoding="utf-8").replace("restricted", "public"), encoding="utf-8")
    run.ledger.write_bytes(run.ledger.read_bytes().replace(before.encode(), file_sha256(path).encode()))
    assert not check_chain(run.ledger).intact and adapter_state.of(run)["class"] == ""


def test_custody_json_is_never_believed(run):
    adapter_state.write(run)
    stored = json.loads(run.custody.read_text(encoding="utf-8"))
    assert stored["class"] == "restricted"
    run.custody.write_text(json.dumps({**stored, "class": "public", "inherited_class": "public"}))
    assert adapter_state.of(run)["class"] == "restricted"


@pytest.mark.parametrize("content", ["", "{", "5"])
def test_a_damaged_data_manifest_is_said(run, content):
    run.data_manifest.write_text(content)
    with pytest.raises(WrongInput) as caught:
        adapter_state.of(run)
    assert "data_manifest.json" in english(caught)


# ---- lowering -------------------------------------------------------------------------------------------------


def test_a_trusted_person_lowers_the_class_and_it_is_signed_and_recorded(run, governance):
    stands = lowered(run, governance)
    assert (stands["class"], stands["inherited_class"]) == ("public", "restricted")
    statement = json.loads((run.root / "lowerings" / "000001.json").read_text(encoding="utf-8"))
    assert (statement["by"], statement["role"], statement["from"], statement["to"]) == (
        PERSON,
        "secretary",
        "restricted",
        "public",
    )
    event = last(run)
    assert (event["event"], event["data"]["from"], event["data"]["to"]) == (
        "class_lowered",
        "restricted",
        "public",
    )
    assert event["data"]["statement_sha256"] == file_sha256(run.root / "lowerings" / "000001.json")
    assert event["data"]["custody_sha256"] == file_sha256(run.custody)
    stored = json.loads(run.custody.read_text(encoding="utf-8"))
    assert (
        stored["class"] == "public"
        and stored["lowered"][0]["by"] == PERSON
        and stored["lowered"][0]["counts"]
    )
    assert PERSON.encode() not in run.ledger.read_bytes(), "no name of a person goes into the ledger"
    assert check_chain(run.ledger).intact
    assert treeheads.read(run)[-1].size == len(read_events(run.ledger)) + 1, (
        "the torn line of the fixture counts"
    )


def test_a_lowering_counts_only_while_the_key_is_trusted(run, governance):
    lowered(run, governance)
    (governance.root / "trusted" / "lawyer.pub.pem").unlink()
    assert adapter_state.of(run)["class"] == "restricted"
    with pytest.raises(WrongInput) as caught:
        lower(run, "public", PERSON, "secretary", "reason", governance.stranger)
    assert "stranger is not among those that count" in english(caught) and "keys trust" in caught.value.en


@pytest.mark.parametrize("field", ["to", "from", "by", "adapter_sha256", "run_id", "signature", "key_sha256"])
def test_a_changed_statement_counts_for_nothing(run, governance, field):
    lowered(run, governance, "internal")
    path = run.root / "lowerings" / "000001.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    other = {
        "to": "public",
        "from": "secret",
        "by": "Another",
        "run_id": "run-2",
        "key_sha256": governance.stranger.fingerprint,
    }
    value[field] = other.get(field) or ("0" * 64 if field == "adapter_sha256" else value[field][:-4] + "AAA=")
    path.write_text(json.dumps(value), encoding="utf-8")
    # Even where the ledger is made to name the changed file.
    Ledger(run.ledger, RUN_ID, "x").append("class_lowered", statement_sha256=file_sha256(path))
    assert adapter_state.of(run)["class"] == "restricted"


def test_a_signature_counts_whatever_its_letters(run, governance):
    """Base64 has slashes: in about one of thirty it looks like a path, or like two."""
    for number in range(200):
        body = {"schema": "grpo-lib/lowering/1", "run_id": RUN_ID, "adapter_sha256": sha256(b"adapter 60")}
        body |= {
            "from": "restricted",
            "to": "public",
            "by": f"Person {number}",
            "role": "r",
            "reason": "x",
            "date": TODAY,
        }
        path = run.root / "lowerings" / "000001.json"
        overlays.write(path, body, governance.lawyer)
        signature = json.loads(path.read_text(encoding="utf-8"))["signature"]
        if signature.startswith("/") or "+/" in signature:
            break
    Ledger(run.ledger, RUN_ID, "x").append("class_lowered", statement_sha256=file_sha256(path))
    assert number < 199 and adapter_state.of(run)["class"] == "public"


def test_a_signed_statement_that_the_ledger_does_not_know_counts_for_nothing(run, governance):
    body = {"schema": "grpo-lib/lowering/1", "run_id": RUN_ID, "adapter_sha256": sha256(b"adapter 60")}
    body |= {"from": "restricted", "to": "public", "by": PERSON, "role": "r", "reason": "x", "date": TODAY}
    path = run.root / "lowerings" / "000001.json"
    overlays.write(path, body, governance.lawyer)
    assert adapter_state.of(run)["class"] == "restricted"
    Ledger(run.ledger, RUN_ID, "x").append("class_lowered", statement_sha256=file_sha256(path))
    assert adapter_state.of(run)["class"] == "public", "it was the ledger alone that was missing"


def test_a_statement_about_another_run_counts_for_nothing(run, governance):
    """The same adapter may have come out of two runs, of data of different classes."""
    body = {"schema": "grpo-lib/lowering/1", "run_id": "run-2", "adapter_sha256": sha256(b"adapter 60")}
    body |= {"from": "restricted", "to": "public", "by": PERSON, "role": "r", "reason": "x", "date": TODAY}
    path = run.root / "lowerings" / "000001.json"
    overlays.write(path, body, governance.lawyer)
    Ledger(run.ledger, RUN_ID, "x").append("class_lowered", statement_sha256=file_sha256(path))
    assert adapter_state.of(run)["class"] == "restricted"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b"[" * 9000, b'{"to":"public","to":"public"}']
)
def test_a_file_that_is_no_statement_counts_for_nothing(run, governance, content):
    (run.root / "lowerings").mkdir()
    (run.root / "lowerings" / "000001.json").write_bytes(content)
    assert adapter_state.of(run)["class"] == "restricted"
    assert lowered(run, governance)["class"] == "public", "and is no obstacle to one that is"


def test_steps_down_hang_together(run, governance):
    lowered(run, governance, "internal")
    assert lowered(run, governance, "public")["class"] == "public"
    (run.root / "lowerings" / "000001.json").unlink()
    assert adapter_state.of(run)["class"] == "restricted", "the second step began where the first had led"


def test_another_adapter_is_not_covered(run, governance):
    lowered(run, governance)
    newer = run.adapter(61) / "adapter_model.safetensors"
    newer.parent.mkdir()
    newer.write_bytes(b"adapter 61")
    assert adapter_state.of(run)["class"] == "restricted"


def test_a_replaced_adapter_is_neither_lowered_nor_released(run, governance):
    (run.adapter(60) / "adapter_model.safetensors").write_bytes(b"something else")
    for call in (lambda: lowered(run, governance), lambda: release(run, "push", "huggingface", DAY)):
        with pytest.raises(WrongInput) as caught:
            call()
        assert "v000060 is not the one" in english(caught)
    assert not (run.root / "releases").exists() and not (run.root / "lowerings").exists()


@pytest.mark.parametrize("to", ["restricted", "secret", "", "unheard-of"])
def test_only_a_lower_class_is_a_lowering(run, governance, to):
    with pytest.raises(WrongInput) as caught:
        lowered(run, governance, to)
    assert "is not lower" in english(caught) and not (run.root / "lowerings").exists()


@pytest.mark.parametrize("blank", ["", "  ", "\u202e"])
@pytest.mark.parametrize("field", ["by", "role", "reason"])
def test_nobody_lowers_a_class_without_name_role_and_reason(run, governance, field, blank):
    given = {"by": PERSON, "role": "secretary", "reason": "x", field: blank}
    with pytest.raises(WrongInput) as caught:
        lower(run, "public", **given, person=governance.lawyer)
    assert field in english(caught)


def test_an_unknown_class_cannot_be_lowered(governance, tmp_path):
    run = make(tmp_path, "")
    with pytest.raises(WrongInput):
        lowered(run, governance)


def test_nothing_is_decided_while_the_run_is_in_progress(run, governance):
    with run.locked():
        for call in (lambda: lowered(run, governance), lambda: release(run, "push", "huggingface", DAY)):
            with pytest.raises(WrongInput) as caught:
                call()
            assert "in progress" in english(caught)


def test_without_the_operators_key_nothing_is_written(run, governance, tmp_path):
    for path in (tmp_path / "keys").iterdir():
        path.unlink()
    before = run.ledger.read_bytes()
    for call in (lambda: lowered(run, governance), lambda: release(run, "push", "huggingface", DAY)):
        with pytest.raises(WrongInput):
            call()
    assert run.ledger.read_bytes() == before and not (run.root / "lowerings").exists()


# ---- releasing ------------------------------------------------------------------------------------------------


def rules(decision: dict) -> set[str]:
    return {reason["rule"] for reason in decision["reasons"] if reason["effect"] == "deny"}


@pytest.mark.parametrize("action", custody.ACTIONS)
def test_restricted_data_make_an_adapter_that_may_not_leave(run, governance, action):
    governance.complete("sa", "SA")
    decision = release(run, action, "huggingface", DAY)
    assert decision["verdict"] == "deny" and "sa-classified" in rules(decision)
    kept = run.root / "releases" / "000001.json"
    data = last(run)["data"]
    assert (data["action"], data["to"], data["class"], data["verdict"]) == (
        action,
        "huggingface",
        "restricted",
        "deny",
    )
    assert data["release_sha256"] == file_sha256(kept) and data["custody_sha256"] == file_sha256(run.custody)
    assert json.loads(kept.read_text(encoding="utf-8"))["decision"] == json.loads(json.dumps(decision))
    assert adapter_state.of(run)["state"] == "held" and check_chain(run.ledger).intact


def test_once_lowered_to_public_it_may_leave_with_record(run, governance):
    assert release(run, "push", "huggingface", DAY)["verdict"] == "deny"
    lowered(run, governance)
    decision = release(run, "push", "huggingface", DAY)
    assert (decision["verdict"], decision["data"]["class"], decision["provider"]["id"]) == (
        "allow",
        "public",
        "huggingface",
    )
    assert adapter_state.of(run)["state"] == "released"
    assert [path.name for path in sorted((run.root / "releases").iterdir())] == ["000001.json", "000002.json"]


def test_persons_in_the_data_are_not_lowered_away(governance, tmp_path):
    governance.complete("sa", "SA")
    run = make(tmp_path, personal_data="some")
    assert lowered(run, governance)["personal_data"] == "some"
    assert "sa-transfer" in rules(release(run, "push", "huggingface", DAY))


def test_a_place_of_ones_own_in_the_country_may_have_it_with_all_papers(run, governance):
    assert "sa-review" in rules(release(run, "hand_over", "this-machine", DAY))
    governance.complete("sa", "SA")
    decision = release(run, "hand_over", "room-sa", DAY)
    assert decision["verdict"] == "allow_with_conditions" and decision["place"]["country"] == "SA"
    assert decision["place"]["observed"] == "place room-sa, by its form"


def test_a_place_abroad_may_not_whatever_its_form_says(run, governance):
    governance.complete("sa", "SA", "AE")
    assert "sa-classified" in rules(release(run, "hand_over", "room-ae", DAY))


def test_an_unknown_or_lapsed_destination_is_said(run, governance):
    governance.form("SA", id="room-sa", date="2025-01-01", expires="2026-01-01")
    for to, said in (("my-bucket", "is not known"), ("room-sa", "not today")):
        with pytest.raises(WrongInput) as caught:
            release(run, "hand_over", to, DAY)
        assert said in english(caught) and to in caught.value.ar
    assert "room-sa" in caught.value.en and not (run.root / "releases").exists()


def test_an_override_of_the_launch_does_not_serve_for_a_release(run, governance):
    governance.complete("sa", "SA")
    asked = release(run, "push", "huggingface", DAY)
    governance.override(sorted(rules(asked)), run_id=RUN_ID)
    assert release(run, "push", "huggingface", DAY)["verdict"] == "deny"
    from grpo_lib import gate
    from grpo_lib.settings import read

    governance.override(
        sorted(rules(asked)), run_id=None, settings_sha256=gate.settings_digest(read(run.settings))
    )
    assert release(run, "push", "huggingface", DAY)["verdict"] == "deny"
    governance.override(sorted(rules(asked)), run_id=f"{RUN_ID}:push")
    assert release(run, "push", "huggingface", DAY)["verdict"] == "allow_with_conditions"
    assert release(run, "merge", "huggingface", DAY)["verdict"] == "deny", "for one action alone"


def test_a_release_is_of_this_adapter(run, governance):
    lowered(run, governance)
    release(run, "push", "huggingface", DAY)
    newer = run.adapter(61) / "adapter_model.safetensors"
    newer.parent.mkdir()
    newer.write_bytes(b"adapter 61")
    Ledger(run.ledger, RUN_ID, "learner").append(
        "adapter_published", version=61, sha256=sha256(b"adapter 61")
    )
    assert adapter_state.of(run)["state"] == "held"
    assert release(run, "push", "huggingface", DAY)["verdict"] == "deny"


def test_an_unanswered_finding_of_the_screen_denies_the_release_too(governance, tmp_path):
    run = make(tmp_path, "synthetic", data_class="synthetic")
    assert release(run, "export", "huggingface", DAY)["verdict"] == "allow"
    run.screen.write_text(json.dumps({"findings": [{"kind": "email", "rows": 3}], "unanswered": ["email"]}))
    assert "pii-unanswered" in rules(release(run, "export", "huggingface", DAY))


def test_a_run_without_an_adapter_has_none_to_release(run):
    (run.adapter(60) / "adapter_model.safetensors").unlink()
    run.adapter(60).rmdir()
    assert adapter_state.of(run)["state"] == "none"
    with pytest.raises(WrongInput) as caught:
        release(run, "push", "huggingface", DAY)
    assert "holds no adapter" in english(caught)
    Ledger(run.ledger, RUN_ID, "purge").append("purged", what=[{"folder": "adapters"}])
    assert adapter_state.of(run)["state"] == "purged"


# ---- the command ----------------------------------------------------------------------------------------------


def call(monkeypatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["custody", *words])
    custody.main()


def test_the_command_refuses_with_exit_code_3_and_says_what_would_turn_it(run, monkeypatch, capsys):
    with pytest.raises(Refused) as caught:
        call(monkeypatch, "release", RUN_ID, "--action", "push", "--to", "huggingface")
    assert caught.value.exit_code == 3 and "sa-classified" in english(caught)
    assert "\u2066sa-classified\u2069" in caught.value.ar, "rule ids keep their order inside Arabic"
    assert "←" in caught.value.ar and "←" in caught.value.en


def test_the_command_lowers_shows_and_allows(run, governance, monkeypatch, capsys):
    keys.create("secretary")
    keys.trust(keys.folder() / "secretary.pub.pem", "secretary", governance.root)
    given = [
        "--to",
        "public",
        "--by",
        PERSON,
        "--role",
        "secretary",
        "--reason",
        "aggregates",
        "--key",
        "secretary",
    ]
    call(monkeypatch, "lower", RUN_ID, *given)
    assert json.loads(capsys.readouterr().out)["class"] == "public"
    call(monkeypatch, "release", RUN_ID, "--action", "push", "--to", "huggingface")
    assert "may be released (allow)" in capsys.readouterr().out
    call(monkeypatch, "show", RUN_ID)
    assert json.loads(capsys.readouterr().out)["state"] == "released"
    with pytest.raises(WrongInput):
        call(monkeypatch, "show", "another-run")


def test_the_statement_is_signed_over_its_canonical_form(run, governance):
    """So that it can be checked with other tools."""
    lowered(run, governance)
    value = json.loads((run.root / "lowerings" / "000001.json").read_text(encoding="utf-8"))
    import base64

    signature = base64.b64decode(value.pop("signature"))
    governance.lawyer.key.public_key().verify(signature, canonical(value))
    assert value["date"] <= LATER
