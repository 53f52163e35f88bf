"""A governance folder for tests: trusted keys, signed reviews and overrides, evidence with its document, place forms."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from compliance import path as data_path
from grpo_lib import overlays, packs, papers
from grpo_lib.keys import Signer
from grpo_lib.runfolder import sha256

TODAY = "2026-12-01"
LATER = "2027-12-01"
DOCUMENT = b"%PDF a letter"


_load_file = packs.load_file


@cache
def _parsed(path: Path, raw: bytes) -> packs.Pack:
    return _load_file(path)


def parse_packs_once(monkeypatch) -> None:
    """Reading a pack is nine tenths of the time of a decision; the same bytes are read once."""
    monkeypatch.setattr(packs, "load_file", lambda path: _parsed(path, path.read_bytes()))


class Governance:
    """Writes into `root` what an organisation would."""

    def __init__(self, root: Path):
        self.root = root
        self.lawyer = Signer("lawyer", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
        self.stranger = Signer("stranger", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))

    def put(self, name: str, content: Any) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = (
                content
                if isinstance(content, str)
                else yaml.safe_dump(json.loads(json.dumps(content)), allow_unicode=True, sort_keys=False)
            )
            path.write_text(text, encoding="utf-8")
        return path

    def trust(self, signer: Signer | None = None) -> None:
        signer = signer or self.lawyer
        self.put(f"trusted/{signer.name}.pub.pem", signer.public_pem)

    def review(self, pack_id: str, signer: Signer | None = None, **changed: Any) -> Path:
        pack = packs.load(pack_id, self.root / "rules")
        body = {"schema": "grpo-lib/review/1", "pack": pack_id, "pack_sha256": pack.digest}
        body |= {"by": "A. Lawyer", "role": "legal adviser", "date": TODAY, "until": LATER} | changed
        path = self.root / f"reviews/{pack_id}.review.json"
        overlays.write(path, body, signer or self.lawyer)
        return path

    def override(self, rules: list[str], signer: Signer | None = None, /, **changed: Any) -> Path:
        body = {"schema": "grpo-lib/override/1", "rules": rules, "reason": "ordered by the minister"}
        body |= {"by": "B. Minister", "role": "minister", "date": TODAY, "until": LATER}
        body |= {"run_id": "run-1", "settings_sha256": None} | changed
        path = self.root / "overrides/one.override.json"
        overlays.write(path, body, signer or self.lawyer)
        return path

    def form(self, country: str, /, **changed: Any) -> Path:
        body = {"schema": "grpo-lib/place/1", "id": f"room-{country.lower()}", "kind": "on-premises"}
        body |= {"operator": "Ministry of Tests", "country": country, "named_officer": "C. Officer"}
        body |= {"stays_in_country": list(papers.STAYS)}
        body |= {"role": "head of operations", "date": TODAY, "expires": LATER} | changed
        return self.put(f"places/{body['id']}.yaml", body)

    def evidence(self, pack: str, condition: str, kind: str, country: str, /, **changed: Any) -> Path:
        self.put(f"evidence/{condition}.pdf", DOCUMENT)
        body = {"schema": "grpo-lib/evidence/1", "pack": pack, "condition": condition, "kind": kind}
        body |= {"ref": "12/2026", "issuer": "the authority", "signed_by": "D. Head", "date": TODAY}
        body |= {"expires": LATER, "countries": [country], "document": f"{condition}.pdf"}
        return self.put(f"evidence/{condition}.yaml", body | {"sha256": sha256(DOCUMENT)} | changed)

    def complete(self, pack_id: str, *countries: str) -> None:
        """Everything that papers can do for one pack, in each country."""
        self.trust()
        self.review(pack_id)
        pack = packs.load(pack_id, self.root / "rules")
        zones = [pack_id] if "-" in pack_id else []
        for country in countries:
            self.form(country, zones=zones if country == pack.country else [])
        rules = [pack.personal_data_law.transfer, *pack.government_hosting.rules]
        for one in [condition for rule in rules for condition in rule.conditions]:
            self.evidence(pack_id, one.id, one.evidence, "XX", countries=list(countries))

    def own_pack(self, pack_id: str = "ye", change: Any = None, like: str = "sa") -> dict[str, Any]:
        """A pack of the organisation's own, made from a shipped one, with ids of its own."""
        text = data_path("rules", f"{like}.yaml").read_text(encoding="utf-8")
        values = yaml.safe_load(text.replace(f"{like}-", f"{pack_id}-"))
        values |= {"id": pack_id, "country": pack_id[:2].upper(), "names": {"ar": "اليمن", "en": "Yemen"}}
        if change:
            change(values)
        self.put(f"rules/{pack_id}.yaml", values)
        return values
