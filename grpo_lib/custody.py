"""Custody of the adapter: lowering its class, and asking the gate before it leaves.

An adapter is treated as the data that it was trained on until a named person, with their own key, signs that it may be
treated as less (`adapter_state` says when that counts). Before it is exported, merged, pushed or handed over, the gate
decides again, with the adapter's class and the destination; each decision is kept (`releases/<n>.json`) and recorded,
and a refusal ends with exit code 3. Nothing is moved here: this decides whether it may be.

    python -m grpo_lib.custody show RUN_ID
    python -m grpo_lib.custody lower RUN_ID --to public --by NAME --role ROLE --reason TEXT --key KEY
    python -m grpo_lib.custody release RUN_ID --action hand_over --to PLACE
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from grpo_lib import command, gate, keys, overlays, papers, treeheads
from grpo_lib.adapter_state import LOWERINGS, looser, of, record, sound_adapter
from grpo_lib.errors import Refused, WrongInput, isolate
from grpo_lib.incidents import public
from grpo_lib.places import Place
from grpo_lib.process import exit_with
from grpo_lib.runfolder import RunFolder, file_sha256, write_json
from grpo_lib.sentences import isolated
from grpo_lib.settings import DATA_CLASSES, RunSettings, read

ACTIONS = ("export", "merge", "push", "hand_over")
_RELEASES = "releases"


def lower(run: RunFolder, to: str, by: str, role: str, reason: str, person: keys.Signer) -> dict[str, Any]:
    """Lower the class of the newest adapter, in the name of a person who signs; returns how it stands then.

    Raises:
        WrongInput: no adapter, or not the one in the ledger; the class is not lower; a statement is missing; or nobody
            has said whose the person's key is.
    """
    with run.locked():
        settings, stands = read(run.settings), of(run)
        adapter = sound_adapter(run)
        _stated(by=by, role=role, reason=reason)
        if not (to in DATA_CLASSES and looser(to, stands["class"])):
            raise WrongInput(
                ar=f"تصنيف المُهايئ {isolate(stands['class'] or '?')}، و{isolate(to)} ليس أخف منه. الترتيب من الأخف إلى الأشد: "
                f"{isolate(', '.join(DATA_CLASSES))}.",
                en=f"The adapter's class is {stands['class'] or 'unknown'}, and {to} is not lower. From loosest to strictest: "
                f"{', '.join(DATA_CLASSES)}.",
            )
        if person.fingerprint not in keys.trusted(Path(settings.governance_dir)):
            raise WrongInput(
                ar=f"المفتاح {isolate(person.name)} ليس بين المفاتيح المعتمدة، فلا يُحتسب توقيعه. بعد التحقق من صاحبه: "
                f"{isolate(f'python -m grpo_lib.keys trust {person.name}.pub.pem --as {person.name}')}.",
                en=f"The key {person.name} is not among those that count. Once it is known whose it is: "
                f"python -m grpo_lib.keys trust {person.name}.pub.pem --as {person.name}",
            )
        operator = keys.load(settings.signing_key)
        path = _next(run, LOWERINGS)
        body = {"schema": "grpo-lib/lowering/1", "run_id": run.run_id, "adapter_sha256": adapter["sha256"]}
        body |= {
            "from": stands["class"],
            "to": to,
            "by": public(by),
            "role": public(role),
            "reason": public(reason),
        }
        overlays.write(path, {**body, "date": datetime.now(UTC).date().isoformat()}, person)
        # The name stays in the signed file: no name of a person goes into the ledger.
        said = {name: body[name] for name in ("adapter_sha256", "from", "to", "reason")}
        said |= {
            "by_role": body["role"],
            "key_sha256": person.fingerprint,
            "statement_sha256": file_sha256(path),
        }
        record(run, "class_lowered", **said)
        treeheads.sign_head(run, operator)
        return of(run)


def release(run: RunFolder, action: str, to: str, today: date | None = None) -> dict[str, Any]:
    """Ask the gate whether the newest adapter may go to `to`; the decision is kept and recorded either way.

    An override that was given for the launch does not serve here: one for a release names `RUN_ID:ACTION` as its run.

    Args:
        action: one of `ACTIONS`.
        to: `this-machine`, `huggingface`, or the id of a place form of the governance folder.

    Raises:
        WrongInput: no adapter, or not the one in the ledger; or the destination is unknown.
    """
    with run.locked():
        settings, stands, adapter = read(run.settings), of(run), sound_adapter(run)
        place = _destination(settings, to, today or datetime.now(UTC).date())
        # Place and class are the adapter's; name and back-end change so that no override of the launch fits.
        asked = {
            "data_class": stands["class"],
            "run_id": f"{run.run_id}:{action}",
            "backend": f"custody:{action}",
        }
        screen = json.loads(run.screen.read_text(encoding="utf-8")) if run.screen.is_file() else None
        operator = keys.load(settings.signing_key)
        decision = gate.decide(settings.model_copy(update=asked), place, screen, today)
        path = _next(run, _RELEASES)
        write_json(path, {"action": action, "to": to, "adapter": adapter, "decision": decision})
        record(
            run,
            "release_decided",
            action=action,
            to=public(to),
            adapter_sha256=adapter["sha256"],
            **{"class": stands["class"], "verdict": decision["verdict"], "release_sha256": file_sha256(path)},
        )
        treeheads.sign_head(run, operator)
        return decision


def _stated(**statements: str) -> None:
    empty = [name for name, value in statements.items() if not public(value).strip()]
    if empty:
        raise WrongInput(
            ar=f"قيم ناقصة: {isolate(', '.join(empty))}. القرار يحتاج اسم صاحبه وصفته وسببه.",
            en=f"Missing: {', '.join(empty)}. A decision needs a name, a role and a reason.",
        )


def _destination(settings: RunSettings, to: str, today: date) -> Place:
    if to == "this-machine":
        return Place.own_machine(settings.country)
    if to == "huggingface":
        return Place("hf_hub", "hf_hub", "", "storage of huggingface", "huggingface")
    forms = {one.body.id: one.body for one in papers.read(Path(settings.governance_dir)).forms}
    if to not in forms:
        known = ", ".join(["this-machine", "huggingface", *sorted(forms)])
        raise WrongInput(
            ar=f"الوجهة {isolate(to)} غير معروفة. المعروف: {isolate(known)}. لوجهة أخرى املأ نموذج مكان في "
            f"{isolate(f'{public(settings.governance_dir)}/places')}.",
            en=f"The destination {to} is not known. Known: {known}. For another one, fill a place form in "
            f"{public(settings.governance_dir)}/places.",
        )
    form = forms[to]
    if not form.date <= today.isoformat() <= form.expires:
        raise WrongInput(
            ar=f"نموذج المكان {isolate(to)} يسري من {isolate(form.date)} إلى {isolate(form.expires)} وليس اليوم. جدّده.",
            en=f"The form of place {to} holds from {form.date} to {form.expires}, and not today. Renew it.",
        )
    return replace(Place.own_machine(form.country), observed=f"place {public(to)}, by its form")


def _next(run: RunFolder, folder: str) -> Path:
    """Path of the next numbered file of a folder."""
    taken = [int(path.stem) for path in (run.root / folder).glob("[0-9]*.json") if path.stem.isdecimal()]
    return run.root / folder / f"{max(taken, default=0) + 1:06d}.json"


def refusal(decision: dict[str, Any]) -> Refused:
    """What denied, and what would turn it, in both languages."""
    denials = [reason for reason in decision["reasons"] if reason["effect"] == "deny"]
    texts = {
        language: [f"  • {one['rule']}: {one[language]}" for one in denials]
        + [f"    ← {one[language]}" for one in decision["remedies"]]
        for language in ("ar", "en")
    }
    return Refused(
        ar="رفضت البوابة إخراج المُهايئ:\n" + "\n".join(isolated(line) for line in texts["ar"]),
        en="The gate refused the release of the adapter:\n" + "\n".join(texts["en"]),
    )


def main() -> None:
    parser = command.parser(
        "custody",
        "How the adapter stands; lower its class; ask for a release.",
        "حال المُهايئ وتصنيفه وإخراجه",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("show", "كيف حال المُهايئ | how the adapter stands"),
        ("lower", "خفض تصنيف المُهايئ بتوقيع شخص مسمى | lower its class, signed by a named person"),
        ("release", "هل يجوز إخراجه؟ | may it be released?"),
    ):
        command.add_run(verbs.add_parser(verb, help=text, description=text))
    lowering, releasing = verbs.choices["lower"], verbs.choices["release"]
    lowering.add_argument("--to", required=True, help="التصنيف الجديد | the new class")
    lowering.add_argument("--by", required=True, metavar="NAME", help="اسم صاحب القرار | who decides")
    lowering.add_argument("--role", required=True, help="صفته | their role")
    lowering.add_argument("--reason", required=True, help="السبب | why")
    lowering.add_argument("--key", required=True, help="مفتاح صاحب القرار | the key of who decides")
    releasing.add_argument("--action", required=True, choices=ACTIONS, help="ما سيُفعل | what will be done")
    releasing.add_argument(
        "--to",
        required=True,
        metavar="PLACE",
        help="this-machine، huggingface، أو معرّف نموذج مكان | this-machine, huggingface, or the id of a place form",
    )
    args = parser.parse_args()
    run = command.run_of(args)
    if args.verb == "lower":
        stands = lower(run, args.to, args.by, args.role, args.reason, keys.load(args.key))
    elif args.verb == "release":
        decision = release(run, args.action, args.to)
        if decision["verdict"] == "deny":
            raise refusal(decision)
        print(
            f"يجوز إخراج المُهايئ ({isolate(decision['verdict'])}).\nThe adapter may be released ({decision['verdict']})."
        )
        return
    else:
        stands = of(run)
    print(json.dumps(stands, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    exit_with(main)
