#!/usr/bin/env python3
"""Verify a run folder or an evidence bundle of grpo-lib, offline, with Python's standard library and the openssl program.

    python3 verify.py PATH --fingerprint HEX [--witness-fingerprint HEX] [--tree-head FILE] [--lang ar|en] [--json]

Get the fingerprint from the operator another way than with the files, for instance by telephone: a key that comes with
the files proves only that the files agree with it. The verdicts are kept apart, because they are about different things:

    integrity      the chain, every tree head and its signature, every attested file
    signer         whose key it is, as far as somebody outside has said so
    witness        whether another key cosigned, and when
    completeness   whether the events that a whole run records are there, up to the last head
    time           whose clock the times come from
    draft          whether the reports were finished by people

Exit code: 0 all hold; 1 integrity broken; 2 wrong use; 3 signer unknown; 4 incomplete or draft.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

OK, BROKEN, WRONG_USE, UNKNOWN, INCOMPLETE = 0, 1, 2, 3, 4
LEDGER, HEADS, STATEMENT = "ledger/events.jsonl", "ledger/tree-heads/", "statement.dsse.json"
EXPECTED = [
    "run_started",
    "data_declared",
    "pii_screened",
    "gate_decided",
    "process_started",
    "base_loaded",
    "worker_joined",
    "adapter_published",
    "step",
    "checkpoint_saved",
    "training_finished",
    "evaluated",
    "network_observed",
    "run_ended",
]
# event -> (file, field of its digest)
RECORDED = {
    "run_started": ("settings.json", "settings_sha256"),
    "data_declared": ("data_manifest.json", "data_manifest_sha256"),
    "pii_screened": ("pii.json", "pii_sha256"),
    "evaluated": ("evaluation.json", "evaluation_sha256"),
    "network_observed": ("network.json", "network_sha256"),
    "stated": ("statements.json", "statements_sha256"),
    "class_lowered": ("custody.json", "custody_sha256"),
    "release_decided": ("custody.json", "custody_sha256"),
    "purged": ("custody.json", "custody_sha256"),
    "statement_signed": (STATEMENT, "statement_sha256"),
}
TITLES = {
    "integrity": ("السلامة", "integrity"),
    "signer": ("الموقِّع", "signer"),
    "witness": ("الشاهد", "witness"),
    "completeness": ("الاكتمال", "completeness"),
    "time": ("الوقت", "time"),
    "draft": ("المسودة", "draft"),
}
WORDS = {
    "holds": ("سليمة", "holds"),
    "broken": ("مختلّة", "BROKEN"),
    "known": ("معروف", "known"),
    "unknown": ("غير معروف", "UNKNOWN"),
    "wrong": ("ليس من ذُكر", "NOT the one named"),
    "present": ("موجود", "present"),
    "absent": ("لا يوجد", "absent"),
    "complete": ("مكتمل", "complete"),
    "incomplete": ("ناقص", "INCOMPLETE"),
    "operator": ("ساعة المشغّل وحدها", "the operator's clock alone"),
    "witnessed": ("ساعة الشاهد", "a witness's clock"),
    "final": ("ليست مسودة", "not a draft"),
    "draft": ("مسودة", "DRAFT"),
    "unstated": ("غير مذكور", "not stated"),
}


class Files:
    """A folder or a zip file, read by relative names."""

    def __init__(self, path: Path) -> None:
        self._zip, self._root, self._prefix = None, path, ""
        if path.is_file():
            self._zip = zipfile.ZipFile(path)
            names = self._zip.namelist()
            ledgers = [name for name in names if f"/{name}".endswith(f"/{LEDGER}")] or [LEDGER]
            if len(ledgers) > 1 or len(set(names)) < len(names):
                # What was verified would not be what another program shows.
                raise ValueError("the zip file holds two ledgers, or two files of one name")
            self._prefix = ledgers[0][: -len(LEDGER)]

    def names(self, folder: str) -> list[str]:
        if self._zip:
            start = self._prefix + folder
            return sorted(
                n[len(self._prefix) :] for n in self._zip.namelist() if n.startswith(start) and n != start
            )
        return sorted(
            p.relative_to(self._root).as_posix() for p in (self._root / folder).rglob("*") if p.is_file()
        )

    def read(self, name: str) -> bytes | None:
        if ".." in Path(name).parts or Path(name).is_absolute():
            return None  # a name that leads out of the folder is nobody's evidence
        try:
            return self._zip.read(self._prefix + name) if self._zip else (self._root / name).read_bytes()
        except (KeyError, OSError):
            return None


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def roots(lines: list[bytes]) -> list[bytes]:
    """RFC 6962 root over the first n lines, for every n from 0: one pass, log(n) hashes each."""
    peaks: list[tuple[int, bytes]] = []
    found = [hashlib.sha256(b"").digest()]
    for line in lines:
        height, value = 0, hashlib.sha256(b"\x00" + line).digest()
        while peaks and peaks[-1][0] == height:
            value = hashlib.sha256(b"\x01" + peaks.pop()[1] + value).digest()
            height += 1
        peaks.append((height, value))
        root = peaks[-1][1]
        for _, left in reversed(peaks[:-1]):
            root = hashlib.sha256(b"\x01" + left + root).digest()
        found.append(root)
    return found


def public_der(pem: bytes) -> bytes:
    """DER bytes of a PEM public key; ValueError where it is none."""
    inner = re.fullmatch(rb"\s*-----BEGIN PUBLIC KEY-----(.*)-----END PUBLIC KEY-----\s*", pem, re.DOTALL)
    if not inner:
        raise ValueError("not a PEM public key")
    return base64.b64decode(b"".join(inner[1].split()), validate=True)


def signature_holds(pem: bytes, data: bytes, signature: bytes) -> bool:
    """Ed25519, checked by openssl."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / name for name in ("key", "data", "sig")}
        for name, content in (("key", pem), ("data", data), ("sig", signature)):
            files[name].write_bytes(content)
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(files["key"]), "-rawin"]
        command += ["-in", str(files["data"]), "-sigfile", str(files["sig"])]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Head:
    """One tree head: (size, root, signatures). ValueError where it is no signed note."""

    def __init__(self, name: str, raw: bytes) -> None:
        self.name = name
        text, gap, tail = raw.partition(b"\n\n")
        if not gap:
            raise ValueError("no signatures")
        self.text = text + b"\n"
        self.origin, size, root = text.decode("utf-8").split("\n")
        if not re.fullmatch(r"0|[1-9][0-9]*", size):
            raise ValueError("no size")
        self.size, self.root = int(size), base64.b64decode(root, validate=True)
        self.signatures = []
        for line in tail.decode("utf-8").removesuffix("\n").split("\n"):
            mark, signer, encoded = line.split(" ")
            if mark != "—":
                raise ValueError("a line that is no signature")
            self.signatures.append((signer, base64.b64decode(encoded, validate=True)))

    def signed_by(self, pem: bytes) -> bool:
        """Whether the operator's key signed it (signed note, key type 1)."""
        signer, raw = self.signatures[0]
        if len(raw) != 68 or raw[:4] != _key_hash(signer, 1, pem):
            return False
        return signature_holds(pem, self.text, raw[4:])

    def cosigned_by(self, pem: bytes) -> tuple[str, int] | None:
        """(name, Unix time) of a cosignature by this key (cosignature/v1, key type 4)."""
        for signer, raw in self.signatures[1:]:
            if len(raw) == 76 and raw[:4] == _key_hash(signer, 4, pem):
                time = struct.unpack(">Q", raw[4:12])[0]
                if signature_holds(pem, f"cosignature/v1\ntime {time}\n".encode() + self.text, raw[12:]):
                    return signer, time
        return None


def _key_hash(name: str, kind: int, pem: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_der(pem)[-32:]).digest()[:4]


class Check:
    """All verdicts about one run, with the reasons in both languages."""

    def __init__(self, files: Files, options: argparse.Namespace) -> None:
        self.files, self.options = files, options
        self.verdict = {"integrity": "holds", "signer": "unknown", "witness": "absent", "time": "operator"}
        self.verdict |= {"completeness": "incomplete", "draft": "unstated"}
        self.notes: dict[str, list[tuple[str, str]]] = {name: [] for name in TITLES}
        self.lines: list[bytes] = []
        self.events: list[dict] = []
        self.heads: list[Head] = []
        self.pem: bytes | None = None
        self.torn_end = False
        self.attested: set[str] = set()

    def note(self, part: str, ar: str, en: str) -> None:
        self.notes[part].append((ar, en))

    def broken(self, ar: str, en: str) -> None:
        self.verdict["integrity"] = "broken"
        self.note("integrity", ar, en)

    def run(self) -> int:
        for step in (
            self._chain,
            self._signer,
            self._heads,
            self._outside_head,
            self._witness,
            self._recorded_files,
            self._statement,
            self._unattested,
            self._completeness,
        ):
            try:
                step()
            except Exception as error:  # whatever a forged value or a damaged archive can raise: never a pass
                self.broken(
                    f"قيمة لا تُقرأ ({type(error).__name__})",
                    f"a value that cannot be read ({type(error).__name__})",
                )
        if self.verdict["integrity"] == "broken" or self.verdict["signer"] == "wrong":
            return BROKEN
        if self.verdict["signer"] == "unknown":
            return UNKNOWN
        whole = self.verdict["completeness"] == "complete" and self.verdict["draft"] == "final"
        return OK if whole else INCOMPLETE

    # ------------------------------------------------------------------------------------------ the chain

    def _chain(self) -> None:
        raw = self.files.read(LEDGER) or b""
        if not raw:
            self.broken("السجل مفقود أو فارغ", "the ledger is missing or empty")
            return
        if not raw.endswith(b"\n"):
            self.torn_end = True
            self.note("completeness", "السطر الأخير مبتور", "the last line is torn")
        self.lines = raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]
        previous, torn = "0" * 64, False
        for number, line in enumerate(self.lines, 1):
            try:
                event = json.loads(line)
                seq, prev, name = event["seq"], event["prev"], event["event"]
                if not isinstance(name, str) or not isinstance(event["data"], dict):
                    raise ValueError("not a record")
            except (ValueError, KeyError, TypeError, RecursionError):
                torn = True
            else:
                if prev != previous:
                    self.broken(
                        f"السطر {number}: لا يتصل بما قبله",
                        f"line {number} does not follow the one before it",
                    )
                if seq != number - 1:
                    self.broken(
                        f"السطر {number}: رقم تسلسل خاطئ", f"line {number} has a wrong sequence number"
                    )
                if torn and name != "resumed":
                    self.broken(
                        f"السطر {number}: قبله سطر ليس من السجل",
                        f"before line {number} stands a line that is no record",
                    )
                torn = False
                self.events.append(event)
            previous = sha256(line)
        if torn:
            self.broken("السطر الأخير ليس من السجل", "the last line is no record")

    # ---------------------------------------------------------------------------------------- signatures

    def _key(self, name: str, given: Path | None) -> bytes | None:
        try:
            pem = given.read_bytes() if given else self.files.read(HEADS + name)
            if pem is not None:
                public_der(pem)
            return pem
        except (OSError, ValueError):
            return None

    def _signer(self) -> None:
        self.pem = pem = self._key("operator.pub.pem", self.options.key)
        if pem is None:
            self.note("signer", "لا مفتاح عام صالح", "there is no sound public key")
            return
        found = sha256(public_der(pem))
        self.note("signer", f"بصمة المفتاح {found}", f"fingerprint of the key {found}")
        if self.options.fingerprint and self.options.fingerprint != found:
            self.verdict["signer"] = "wrong"
        elif self.options.fingerprint or self.options.key:
            self.verdict["signer"] = "known"
        else:
            self.note(
                "signer",
                "المفتاح جاء مع الملفات نفسها، فلا يثبت شيئا وحده. أعط ‎--fingerprint‎ من خارجها",
                "the key came with the files themselves and proves nothing alone; give --fingerprint from outside",
            )

    def _heads(self) -> None:
        run_id = str(self.events[0].get("run_id")) if self.events else ""
        found = roots(self.lines)
        for name in self.files.names(HEADS):
            if not name.endswith(".note"):
                continue
            try:
                head = Head(name, self.files.read(name) or b"")
            except (ValueError, UnicodeDecodeError):
                self.broken(f"رأس شجرة تالف: {name}", f"a damaged tree head: {name}")
                continue
            self.heads.append(head)
            if head.origin != f"grpo-lib/{run_id}" or Path(name).name.split(".")[0] != f"{head.size:09d}":
                self.broken(f"رأس شجرة ليس في مكانه: {name}", f"a tree head that is not in its place: {name}")
            if head.size > len(self.lines):
                self.broken(
                    f"رأس الشجرة يغطي {head.size} سطرا والموجود {len(self.lines)}: قُطع آخر السجل",
                    f"a tree head covers {head.size} lines and {len(self.lines)} are there: the end was cut",
                )
            elif found[head.size] != head.root:
                self.broken(
                    f"أسطر السجل حتى {head.size} ليست التي وُقّعت",
                    f"the lines up to {head.size} are not those that were signed",
                )
        self.heads.sort(key=lambda head: head.size)
        if not self.heads:
            self.note(
                "integrity",
                "لا رأس شجرة موقعا: سلسلة بلا توقيع",
                "no signed tree head: a chain without signature",
            )
            self.verdict["signer"] = "unknown" if self.verdict["signer"] != "wrong" else "wrong"
        elif self.pem:
            with ThreadPoolExecutor(4) as pool:
                signed = list(pool.map(lambda head: head.signed_by(self.pem), self.heads))
            for head, good in zip(self.heads, signed, strict=True):
                if not good:
                    self.broken(f"توقيع لا يصح: {head.name}", f"a signature that does not hold: {head.name}")

    def _outside_head(self) -> None:
        if not self.options.tree_head:
            return
        try:
            head = Head("--tree-head", self.options.tree_head.read_bytes())
        except (OSError, ValueError, UnicodeDecodeError):
            self.broken("رأس الشجرة المعطى من الخارج لا يُقرأ", "the tree head from outside cannot be read")
            return
        if head.size > len(self.lines) or roots(self.lines[: head.size])[-1] != head.root:
            self.broken(
                f"السجل ليس امتدادا لرأس الشجرة المحفوظ خارجه عند {head.size}",
                f"the ledger does not extend the tree head held outside, at {head.size}",
            )

    def _witness(self) -> None:
        pem = self._key("witness.pub.pem", self.options.witness_key)
        wanted = self.options.witness_fingerprint
        outside = bool(self.options.witness_key or wanted)
        if pem and wanted and sha256(public_der(pem)) != wanted:
            self.broken("مفتاح الشاهد ليس المذكور", "the witness's key is not the one named")
        seen = [(head, head.cosigned_by(pem)) for head in self.heads if pem and ".witness." in head.name]
        for head, found in seen:
            if found is None:
                self.broken(f"شهادة لا تصح: {head.name}", f"a cosignature that does not hold: {head.name}")
        good = [(head, found) for head, found in seen if found]
        self.verdict["time"] = "witnessed" if good else "operator"
        self.verdict["witness"] = "present" if good else "absent"
        if good:
            head, (name, time) = good[-1]
            moment = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            self.note(
                "witness",
                f"شهد {name} على {head.size} سطرا في {moment}"
                + ("" if outside else "، ومفتاحه جاء مع الملفات"),
                f"{name} cosigned {head.size} lines at {moment}"
                + ("" if outside else "; its key came with the files"),
            )
        else:
            if outside:
                self.broken(
                    "ذُكر شاهد ولا شهادة له هنا", "a witness was named and there is no cosignature of it here"
                )
            self.note(
                "witness",
                "بلا شاهد: من يملك مفتاح المشغّل يستطيع إعادة كتابة السجل وتوقيعه ولا يظهر ذلك هنا",
                "without a witness, whoever holds the operator's key can rewrite the ledger and sign it again unseen",
            )
        times = [str(event.get("time")) for event in self.events]
        if times:
            self.note("time", f"من {times[0]} إلى {times[-1]}", f"from {times[0]} to {times[-1]}")

    # --------------------------------------------------------------------------------------------- files

    def _withheld(self) -> dict[str, str]:
        """Files that a bundle leaves out on purpose, by name: their digests are stated instead."""
        try:
            about = json.loads(self.files.read("bundle.json") or b"{}")
            return {
                one["file"]: one["sha256"]
                for key in ("withheld", "adapters_by_digest")
                for one in about.get(key, [])
            }
        except (ValueError, KeyError, TypeError):
            return {}

    def _purged(self) -> tuple[str, ...]:
        """Folders that a recorded purge has emptied."""
        done = [event["data"] for event in self.events if event["event"] == "purged"]
        return tuple(str(one.get("folder")) + "/" for data in done for one in data.get("what", []))

    def _compare(self, name: str, digests: set[str]) -> None:
        data = self.files.read(name)
        if data is None:
            stated = self._withheld().get(name)
            if stated is not None and stated not in digests:
                self.broken(
                    f"بصمة {name} المذكورة ليست المسجلة",
                    f"the digest stated for {name} is not the recorded one",
                )
            elif stated is not None:
                self.note(
                    "integrity", f"ليس هنا: {name}، وبصمته {stated}", f"not here: {name}, digest {stated}"
                )
            bundle = self.files.read("bundle.json") is not None
            if (
                stated is None
                and not name.startswith(self._purged() or ("\0",))
                and not (bundle and _data(name))
            ):
                self.broken(f"ملف مفقود: {name}", f"a missing file: {name}")
        elif sha256(data) not in digests and not (
            name.endswith(".json") and _canonical_digests(data) & digests
        ):
            self.broken(f"ملف غُيّر: {name}", f"a changed file: {name}")

    def _recorded_files(self) -> None:
        latest: dict[str, set[str]] = {}
        for event in self.events:
            data = event.get("data") or {}
            if event["event"] in RECORDED:
                name, field = RECORDED[event["event"]]
                if data.get(field):
                    latest[name] = {str(data[field])}
            elif event["event"] == "gate_decided":
                latest["decision.json"] = {str(data.get("decision_sha256"))}
            elif event["event"] in ("adapter_published", "training_finished"):
                digest = data.get("sha256") or data.get("adapter_sha256")
                name = f"adapters/v{int(data['version']):06d}/adapter_model.safetensors"
                if event["event"] == "training_finished" or self.files.read(name) is not None:
                    latest[name] = {str(digest)}
            elif event["event"] == "report_built":
                latest |= {f"reports/{name}": {str(digest)} for name, digest in data.get("files", {}).items()}
        self.attested |= latest.keys()
        for name, digests in latest.items():
            self._compare(name, digests)

    def _statement(self) -> None:
        raw = self.files.read(STATEMENT)
        if raw is None:
            self.note("draft", "لا بيان ختاميا موقعا", "there is no signed closing statement")
            return
        try:
            envelope = json.loads(raw)
            payload = base64.b64decode(envelope["payload"], validate=True)
            kind = envelope["payloadType"].encode()
            signature = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
            statement = json.loads(payload)
            subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
            ledger, draft = statement["predicate"]["ledger"], statement["predicate"]["draft"]
            size, root = ledger["size"], ledger["root"]
            if type(size) is not int or size < 0:
                raise ValueError("no size")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            self.broken("البيان الختامي تالف", "the closing statement is damaged")
            return
        encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        if self.pem and not signature_holds(self.pem, encoded, signature):
            self.broken("توقيع البيان الختامي لا يصح", "the signature of the closing statement does not hold")
        if size > len(self.lines) or roots(self.lines[:size])[-1].hex() != root:
            self.broken("البيان الختامي عن سجل آخر", "the closing statement is about another ledger")
        # By sequence number: a torn line has a place in the ledger and none in the list of events.
        later = {name for event in self.events if event["seq"] >= size for name in _changed_by(event)}
        self.attested |= subjects.keys()
        for name, digest in subjects.items():
            if name not in later:
                self._compare(name, {digest})
        self.verdict["draft"] = "draft" if draft else "final"

    def _unattested(self) -> None:
        """Name what lies among the reports and adapters of a closed run without belonging to it."""
        if self.verdict["draft"] != "unstated":
            for name in [*self.files.names("reports/"), *self.files.names("adapters/")]:
                if name not in self.attested:
                    self.note("integrity", f"لم يشهد له أحد: {name}", f"a file that nobody attested: {name}")

    # -------------------------------------------------------------------------------------- completeness

    def _completeness(self) -> None:
        names = [event["event"] for event in self.events]
        missing = [name for name in EXPECTED if name not in names]
        self.note("completeness", "المتوقع: " + ", ".join(EXPECTED), "expected: " + ", ".join(EXPECTED))
        if missing:
            self.note("completeness", "المفقود: " + ", ".join(missing), "missing: " + ", ".join(missing))
        ended = [event["data"].get("status") for event in self.events if event["event"] == "run_ended"]
        complete = not missing and ended[-1:] == ["complete"] and not self.torn_end
        if ended[-1:] != ["complete"]:
            self.note(
                "completeness",
                "لا يسجل السجل نهاية مكتملة: ما قُطع بعد آخر رأس شجرة لا يظهر نقصه",
                "no complete end is recorded: lines cut after the last tree head cannot be seen to be missing",
            )
        beyond = len(self.lines) - (self.heads[-1].size if self.heads else 0)
        if beyond:
            complete = complete and not self.heads
            self.note(
                "completeness",
                f"بعد آخر رأس شجرة {beyond} من الأسطر تحميها السلسلة وحدها",
                f"{beyond} lines after the last tree head are covered by the chain alone",
            )
        self.verdict["completeness"] = "complete" if complete else "incomplete"


def _data(name: str) -> bool:
    """What an evidence bundle never holds."""
    return name.startswith(("adapters/", "checkpoints/", "rollouts/"))


def _changed_by(event: dict) -> tuple[str, ...]:
    """Files that an event later than the statement has changed by right; their newest digest is in the ledger."""
    return {
        "class_lowered": ("custody.json",),
        "release_decided": ("custody.json",),
        "purged": ("custody.json",),
        "stated": ("statements.json",),
        "report_built": tuple(f"reports/{name}" for name in (event.get("data") or {}).get("files", {})),
    }.get(event["event"], ())


def _canonical_digests(data: bytes) -> set[str]:
    """Digest of a JSON object in canonical form, whole and without its own `digest` field (no floats in these files)."""
    try:
        value = json.loads(data)
        rest = {key: one for key, one in value.items() if key != "digest"}
    except (ValueError, AttributeError):
        return set()
    forms = (
        json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for one in (value, rest)
    )
    return {sha256(form.encode("utf-8")) for form in forms}


_LATIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _./:@+=\-,]*[A-Za-z0-9]|[A-Za-z0-9]")


def shown(check: Check, code: int, language: int) -> str:
    """The verdicts as text; in Arabic every Latin run is isolated (U+2066 ... U+2069)."""
    rows = []
    for part, titles in TITLES.items():
        rows.append(f"{titles[language]}: {WORDS[check.verdict[part]][language]}")
        rows += [f"   - {texts[language]}" for texts in check.notes[part]]
    rows.append(("رمز الخروج: ", "exit code: ")[language] + str(code))
    text = "\n".join(rows)
    return _LATIN.sub(lambda run: f"\u2066{run[0]}\u2069", text) if language == 0 else text


def _digest(text: str) -> str:
    value = "".join(text.split()).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise argparse.ArgumentTypeError("البصمة 64 رقما ستة عشريا / a fingerprint has 64 hexadecimal digits")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(
        description="يتحقق من تشغيل دون اتصال. Verifies a run offline.",
        epilog=__doc__.split("\n\n", 2)[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="مجلد التشغيل أو الحزمة / run folder or bundle")
    parser.add_argument(
        "--key", type=Path, help="المفتاح العام للمشغّل من الخارج / the operator's public key, from outside"
    )
    parser.add_argument("--fingerprint", type=_digest, help="بصمته من الخارج / its fingerprint, from outside")
    parser.add_argument("--witness-key", type=Path, help="المفتاح العام للشاهد / the witness's public key")
    parser.add_argument("--witness-fingerprint", type=_digest, help="بصمته / its fingerprint")
    parser.add_argument(
        "--tree-head", type=Path, help="رأس شجرة محفوظ خارج الحزمة / a tree head held outside"
    )
    parser.add_argument(
        "--lang", choices=("ar", "en"), help="اللغة، والافتراضي كلتاهما / language, both by default"
    )
    parser.add_argument("--json", action="store_true", help="النتيجة بصيغة JSON / the result as JSON")
    options = parser.parse_args()
    try:
        files = Files(options.path)
        subprocess.run(["openssl", "version"], capture_output=True, check=True)
        if not options.path.exists():
            raise FileNotFoundError(options.path.name)
        for key in (options.key, options.witness_key):
            if key:
                public_der(key.read_bytes())
    except (
        OSError,
        ValueError,
        NotImplementedError,
        zipfile.BadZipFile,
        subprocess.CalledProcessError,
    ) as error:
        print(f"تعذّر البدء: {error}\ncannot start: {error}", file=sys.stderr)
        return WRONG_USE
    check = Check(files, options)
    code = check.run()
    if options.json:
        notes = {part: [en for _, en in texts] for part, texts in check.notes.items()}
        print(
            json.dumps(
                {"exit_code": code, "verdicts": check.verdict, "notes": notes}, indent=1, ensure_ascii=False
            )
        )
    else:
        for language in {"ar": (0,), "en": (1,), None: (0, 1)}[options.lang]:
            print(shown(check, code, language) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
