"""Purge: destroy the key and the data of a run, keep its evidence, and record who did it and why.

What goes: the run key, `rollouts/`, `checkpoints/`, the replay annex, and with `--adapters` the adapters. What stays: the
ledger, which still verifies and says what went, with settings, decision, metrics and reports.

What it does and does not do. Nothing is overwritten: on flash storage, copy-on-write and journalling file systems an
overwrite need not reach the old blocks. Sealed rollouts become unreadable because their key is gone (cryptographic
erase, NIST SP 800-88), here and in every copy, unless somebody kept a copy of the key; a key that was wrapped needs its
passphrase as well. Checkpoints and adapters are not sealed: their names are removed and their blocks stay until they are
used again. Backups, snapshots and copies made elsewhere are not reached.

    python -m grpo_lib.purge RUN_ID --by ROLE --reason TEXT [--adapters] [--yes]
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from grpo_lib import adapter_state, bundle, command, keys, packs, treeheads, vault
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.incidents import public
from grpo_lib.ledger import Ledger, utc_now
from grpo_lib.process import exit_with
from grpo_lib.runfolder import RunFolder, file_sha256, write_json
from grpo_lib.settings import read

NOT_REACHED = {
    "ar": "لم تُكتب بيانات فوق القديمة: ما كان مختومًا لا يُقرأ لأن مفتاحه أُتلف، ونقاط الحفظ والمُهايئات أزيلت أسماؤها وتبقى كتلها على "
    "القرص حتى يعاد استعمالها. والنسخ الاحتياطية واللقطات والنسخ في أماكن أخرى لم يصلها الإتلاف.",
    "en": "Nothing was overwritten: what was sealed cannot be read because its key is gone; checkpoints and adapters had "
    "their names removed, and their blocks stay on the disk until used again. Backups, snapshots and copies elsewhere "
    "were not reached.",
}


def _targets(run: RunFolder, adapters: bool) -> dict[str, Path]:
    """What a purge removes, by the name of its folder in the run."""
    found = {"rollouts": run.rollouts, "checkpoints": run.checkpoints}
    found |= {bundle.FOLDER: bundle.path_of(run, "replay")}
    return found | ({"adapters": run.adapters} if adapters else {})


def planned(run: RunFolder, adapters: bool) -> list[dict[str, Any]]:
    """What would go: folder, number of files and bytes; what holds nothing is left out."""
    rows = []
    for folder, path in _targets(run, adapters).items():
        files = [one for one in [path, *path.rglob("*")] if one.is_file()]
        rows.append(
            {"folder": folder, "files": len(files), "bytes": sum(one.lstat().st_size for one in files)}
        )
    return [row for row in rows if row["files"]]


def purge(
    run: RunFolder, by_role: str, reason: str, adapters: bool = False, signer: keys.Signer | None = None
) -> dict[str, Any]:
    """Destroy key and data, and record it; returns what the ledger says. A purge that was cut off can be run again.

    Args:
        signer: signs the ledger afterwards; None where the operator's key is not at hand.

    Raises:
        WrongInput: the run is in progress, nobody says who or why, or there is nothing left to purge.
    """
    by_role, reason = public(by_role).strip(), public(reason).strip()
    if not by_role or not reason:
        raise WrongInput(
            ar=f"الإتلاف يحتاج صفة من أمر به وسببه: {isolate('--by')} و{isolate('--reason')}.",
            en="A purge needs the role of who ordered it and the reason: --by and --reason.",
        )
    with run.locked(), run.locked("learner"):
        what = planned(run, adapters)
        if not what and not vault.key_path(run.run_id).exists():
            raise WrongInput(
                ar=f"لا شيء في {isolate(run.run_id)} يُتلف: لا مفتاح ولا بيانات"
                + ("." if adapters else " (والمُهايئات لم تُطلب)."),
                en=f"There is nothing to purge in {run.run_id}: no key and no data"
                + ("." if adapters else " (adapters were not asked for)."),
            )
        ledger = Ledger(run.ledger, run.run_id, "purge")
        said: dict[str, Any] = {"by_role": by_role, "reason": reason, "what": what}
        # Said before and after: one that was cut off in between is seen in the ledger.
        ledger.append("purge_started", **said)
        had_key = vault.destroy_key(run.run_id)  # first: from here on nothing that was sealed can be read
        for folder, path in _targets(run, adapters).items():
            if any(row["folder"] == folder for row in what):
                _remove(path)
        said |= {"key_destroyed": had_key, "at": utc_now()}
        _record(run, ledger, said)
        if signer is not None:
            treeheads.sign_head(run, signer)
        return said


def _remove(path: Path) -> None:
    """Remove a file or folder; links are removed, what they lead to is not touched.

    Raises:
        WrongInput: the system would not let it go.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        raise WrongInput(
            ar=f"تعذّر حذف {isolate(path.name)} ({isolate(error.strerror)}). أتلف المفتاح، وبقيت ملفات. أصلح الصلاحيات ثم أعد الأمر.",
            en=f"{path.name} could not be removed ({error.strerror}). The key was destroyed and files remain. "
            "Correct the permissions, then run the command again.",
        ) from None


def _record(run: RunFolder, ledger: Ledger, said: dict[str, Any]) -> None:
    """Append `purged` with the digest of custody.json as it stands after it."""
    try:
        stands = adapter_state.of(run, {"event": "purged", "data": said})
    except WrongInput:
        # Damaged settings or data manifest must not keep anybody from destroying data.
        ledger.append("purged", **said)
        return
    write_json(run.custody, stands)
    ledger.append("purged", **said, custody_sha256=file_sha256(run.custody))


def records_kept(run: RunFolder) -> list[dict[str, Any]]:
    """How many years after the end each rule pack of the decision has records kept, that is, the evidence.

    Our paraphrase of the pack's article; `years` is None where the period is not verified, which is never "no duty".
    """
    rows = []
    for path in sorted(run.packs.glob("*.yaml")):
        rule = packs.load(path.stem, run.packs).personal_data_law.records
        rows.append({"pack": path.stem, "article": rule.article, "years": rule.keep_years_after_end})
    return rows


def _kept_line(row: dict[str, Any]) -> str:
    article = row["article"] or "?"
    if row["years"] is None:
        return f"{isolate(row['pack'])}: مدة حفظ الأدلة غير متحقق منها | {row['pack']}: how long to keep the evidence is not verified"
    return (
        f"{isolate(row['pack'])}: تُحفظ الأدلة {isolate(row['years'])} سنوات بعد نهاية المعالجة ({isolate(article)}، بصياغتنا) | "
        f"{row['pack']}: keep the evidence {row['years']} years after processing ends ({article}, our paraphrase)"
    )


def _operator(run: RunFolder, name: str) -> keys.Signer:
    """The key that signs the ledger; `name` where the settings cannot say it."""
    return keys.load(name or read(run.settings).signing_key)


def _confirmed(run: RunFolder, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise WrongInput(
            ar=f"الإتلاف لا رجعة فيه. أكّده بإضافة {isolate('--yes')}.",
            en="A purge cannot be undone. Confirm it with --yes.",
        )
    return input(f"للتأكيد اكتب المعرّف | to confirm, type the run id {run.run_id}: ").strip() == run.run_id


def main() -> None:
    parser = command.parser(
        "purge",
        "Destroy key and data of a run; its evidence stays.",
        "إتلاف مفتاح التشغيل وبياناته مع بقاء أدلته",
    )
    command.add_run(parser)
    parser.add_argument(
        "--by", required=True, metavar="ROLE", help="صفة من أمر، لا اسمه | role of who ordered it, no name"
    )
    parser.add_argument(
        "--reason", required=True, help="السبب، بلا بيانات شخصية | why, without personal data"
    )
    parser.add_argument("--adapters", action="store_true", help="والمُهايئات أيضًا | the adapters too")
    parser.add_argument("--yes", action="store_true", help="بلا سؤال | do not ask")
    parser.add_argument(
        "--key", default="", help="مفتاح السجل، إن لم تُقرأ الإعدادات | ledger key, if settings are damaged"
    )
    args = parser.parse_args()
    run = command.run_of(args)
    signer = _operator(run, args.key)
    for row in planned(run, args.adapters):
        print(f"  {row['folder']}/  {row['files']} files  {row['bytes']} bytes")
    for row in records_kept(run):
        print(f"  {_kept_line(row)}")
    if not _confirmed(run, args.yes):
        print("لم يُتلف شيء | nothing was purged")
        return
    done = purge(run, args.by, args.reason, args.adapters, signer)
    key = "أُتلف المفتاح | key destroyed" if done["key_destroyed"] else "لم يكن مفتاح | there was no key"
    print(f"{key}\n{NOT_REACHED['ar']}\n{NOT_REACHED['en']}")
    print("ابنِ التقارير من جديد لتذكر الإتلاف | build the reports again, so that they say so:")
    print(f"  python -m grpo_lib.run -p run_id {run.run_id} -p runs_dir {args.runs_dir} --only report")


if __name__ == "__main__":
    exit_with(main)
