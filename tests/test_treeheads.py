"""Tree heads, notary, witness and closing statement: what is signed is what is there, and a rewrite is refused."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.exceptions import InvalidSignature

from grpo_lib import attestation, keys, treeheads
from grpo_lib.errors import WrongInput
from grpo_lib.ledger import Ledger
from grpo_lib.notary import Notary
from grpo_lib.runfolder import RunFolder, write_json
from grpo_lib.witness import Rewritten, Witness

# Leaves and roots of the reference tree of RFC 6962 (certificate-transparency test data).
LEAVES = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    bytes(range(0x50, 0x58)),
    bytes(range(0x60, 0x70)),
]
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.setenv(keys.FOLDER_VARIABLE, str(tmp_path / "keys"))
    return RunFolder(tmp_path / "runs" / "demo")


def write(run: RunFolder, count: int) -> Ledger:
    ledger = Ledger(run.ledger, run.run_id, "launcher")
    for step in range(count):
        ledger.append("step", step=step)
    return ledger


@pytest.mark.parametrize("size", ROOTS)
def test_roots_are_those_of_rfc_6962(size) -> None:
    assert treeheads.merkle_root(LEAVES[:size]).hex() == ROOTS[size]


def test_a_head_is_a_signed_note(run) -> None:
    write(run, 5)
    signer = keys.create("operator")
    raw = treeheads.sign_head(run, signer).read_bytes()
    text, signatures = treeheads.parse(raw)
    assert text.decode().splitlines()[:2] == ["grpo-lib/demo", "5"]
    name, signature = signatures[0]
    assert name == "operator"
    signer.key.public_key().verify(signature[4:], text)
    with pytest.raises(InvalidSignature):
        signer.key.public_key().verify(signature[4:], text.replace(b"5", b"6"))
    assert treeheads.read(run)[0].size == 5


def test_a_torn_line_is_not_signed(run) -> None:
    write(run, 3)
    with run.ledger.open("ab") as handle:
        handle.write(b'{"half":')
    assert treeheads.read(run) == []
    treeheads.sign_head(run, keys.create("operator"))
    assert treeheads.read(run)[0].size == 3


def test_the_notary_signs_what_others_rely_on(run) -> None:
    ledger = write(run, 4)
    with Notary(run, keys.create("operator")) as notary:
        notary._look(always=False)
        assert treeheads.read(run) == []
        ledger.append("checkpoint_saved", step=4)
        notary._look(always=False)
        assert [head.size for head in treeheads.read(run)] == [5]
        ledger.append("step", step=5)
    heads = treeheads.read(run)
    assert [head.size for head in heads] == [5, 6]
    lines = treeheads.whole_lines(run.ledger)
    assert all(treeheads.merkle_root(lines[: head.size]).hex() == head.root for head in heads)
    assert notary.seconds > 0


def test_a_witness_cosigns_growth_and_refuses_a_rewrite(run, tmp_path) -> None:
    operator, auditor = keys.create("operator"), keys.create("auditor")
    ledger = write(run, 4)
    treeheads.sign_head(run, operator)
    witness = Witness(run, auditor, tmp_path / "witness")
    assert witness.look() == 4
    assert witness.look() is None
    ledger.append("step", step=4)
    treeheads.sign_head(run, operator)
    assert witness.look() == 5
    assert treeheads.read(run)[-1].witness == "auditor"

    for path in [run.ledger, *run.tree_heads.glob("*.note")]:
        path.unlink()
    write(run, 7)
    treeheads.sign_head(run, operator)
    with pytest.raises(Rewritten):
        witness.look()
    # A new process with the same memory refuses as well.
    with pytest.raises(Rewritten):
        Witness(run, auditor, tmp_path / "witness").look()


def test_a_witness_is_somebody_else(run, tmp_path) -> None:
    operator = keys.create("operator")
    write(run, 2)
    treeheads.sign_head(run, operator)
    with pytest.raises(WrongInput, match="operator's own"):
        Witness(run, operator, tmp_path / "witness").look()
    with pytest.raises(WrongInput, match="within the operator's reach"):
        Witness(run, keys.create("auditor"), run.root / "witness")


def test_a_witness_knows_its_operator(run, tmp_path) -> None:
    write(run, 2)
    treeheads.sign_head(run, keys.create("operator"))
    with pytest.raises(Rewritten):
        Witness(run, keys.create("auditor"), tmp_path / "witness", operator="0" * 64).look()


def test_the_statement_names_files_and_ledger(run) -> None:
    signer = keys.create("operator")
    write(run, 3)
    write_json(run.settings, {"seed": 0})
    adapter = run.adapter(1) / "adapter_model.safetensors"
    adapter.parent.mkdir(parents=True)
    adapter.write_bytes(b"weights")
    attestation.write(run, signer, draft=False)
    envelope = json.loads(run.statement.read_text(encoding="utf-8"))
    payload = base64.b64decode(envelope["payload"])
    signer.key.public_key().verify(
        base64.b64decode(envelope["signatures"][0]["sig"]), attestation.pae(payload)
    )
    told = attestation.payload_of(run.statement)
    assert {one["name"] for one in told["subject"]} == {
        "settings.json",
        "adapters/v000001/adapter_model.safetensors",
    }
    assert told["predicate"]["ledger"]["size"] == 3
    assert attestation.pae(b"hi") == b"DSSEv1 28 application/vnd.in-toto+json 2 hi"
