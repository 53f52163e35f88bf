"""The command line of the gate: read a rule pack out, sign a review, ask the gate beforehand, sign an override.

    python -m grpo_lib.residency explain SA
    python -m grpo_lib.residency review SA --by NAME --role ROLE --until 2027-12-31 --key KEY
    python -m grpo_lib.residency check -p data_class restricted -p jurisdictions sa -p country SA
    python -m grpo_lib.residency check --template evidence > governance/evidence/permit.yaml
    python -m grpo_lib.residency override --rules sa-review --by NAME --role ROLE --reason TEXT --until 2027-01-31 \
        --key KEY --run-id RUN_ID

`check` ends with 0 when the gate allows and 3 when it denies; it records nothing. An override is bound to a run id, or
to the settings that `-p` names.
"""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from compliance import path as data_path
from grpo_lib import command, gate, keys, overlays, packs
from grpo_lib import settings as run_settings
from grpo_lib.errors import EXIT_REFUSED, WrongInput, isolate
from grpo_lib.process import exit_with
from grpo_lib.sentences import LANGUAGES, isolated, say
from grpo_lib.settings import RunSettings

TEMPLATES = ("evidence", "place")


def main(arguments: list[str] | None = None) -> None:
    """Run one command; ends with `SystemExit(3)` where the gate denies."""
    args = _parser().parse_args(arguments)
    {"explain": _explain, "review": _review, "check": _check, "override": _override}[args.command](args)


# ------------------------------------------------------------------------------------------------ packs


def _explain(args: argparse.Namespace) -> None:
    pack = packs.load(_pack_id(args.pack), _own_packs(args))
    print("\n\n".join(packs.explain(pack, language) for language in _languages(args)))


def _review(args: argparse.Namespace) -> None:
    """Write the review of a pack as it is now; it lapses when the pack changes or the date passes."""
    pack = packs.load(_pack_id(args.pack), _own_packs(args))
    signer = keys.load(args.key)
    body = {"schema": "grpo-lib/review/1", "pack": pack.id, "pack_sha256": pack.digest, **_person(args)}
    path = args.governance_dir / overlays.REVIEWS / f"{pack.id}-{signer.fingerprint[:8]}.review.json"
    overlays.write(path, body, signer)
    print(f"وُقّعت مراجعة {isolate(pack.id)}: {isolate(path)}\nReview of {pack.id} signed: {path}")
    _say_whether_trusted(args, signer)


def _override(args: argparse.Namespace) -> None:
    """Write an override of named rules for one run id, or for the settings given."""
    if bool(args.run_id) == bool(args.p):
        raise WrongInput(
            ar=f"اربط الاستثناء بشيء واحد: {isolate('--run-id')} أو الإعدادات بخيارات {isolate('-p')}.",
            en="Bind the override to one thing: --run-id, or settings given with -p.",
        )
    signer = keys.load(args.key)
    rules = sorted({rule for rule in args.rules.split(",") if rule})
    body = {
        "schema": "grpo-lib/override/1",
        "rules": rules,
        "reason": _stated("reason", args.reason),
        "run_id": args.run_id or None,
        "settings_sha256": None if args.run_id else gate.settings_digest(_settings(args)),
        **_person(args),
    }
    name = f"{_today():%Y%m%d}-{signer.fingerprint[:8]}-{'-'.join(rules)[:60]}.override.json"
    path = args.governance_dir / overlays.OVERRIDES / name
    overlays.write(path, body, signer)
    print(f"وُقّع الاستثناء: {isolate(path)}\nOverride signed: {path}")
    _say_whether_trusted(args, signer)


def _person(args: argparse.Namespace) -> dict[str, str]:
    try:
        until = date.fromisoformat(args.until)
    except ValueError:
        until = None
    if until is None or len(args.until) != len("YYYY-MM-DD") or until < _today():
        raise WrongInput(
            ar=f"{isolate(f'--until {args.until}')}: المطلوب تاريخ لم يمض، مثل {isolate('2031-12-31')}.",
            en=f"--until {args.until}: give a date that has not passed, such as 2031-12-31.",
        )
    return {
        "by": _stated("by", args.by),
        "role": _stated("role", args.role),
        "date": _today().isoformat(),
        "until": until.isoformat(),
    }


def _stated(name: str, value: str) -> str:
    if not value.strip():
        raise WrongInput(
            ar=f"{isolate(f'--{name}')} فارغ. القرار يحتاج اسم صاحبه وصفته وسببه.",
            en=f"--{name} is empty. A decision needs a name, a role and a reason.",
        )
    return value.strip()


def _say_whether_trusted(args: argparse.Namespace, signer: keys.Signer) -> None:
    """A signature counts only once somebody has put its key among the trusted ones."""
    if signer.fingerprint in keys.trusted(args.governance_dir):
        return
    how = f"python -m grpo_lib.keys trust {signer.name}.pub.pem --as {signer.name} --governance-dir {args.governance_dir}"
    print(
        f"لن يُحتسب التوقيع حتى يُعتمد مفتاحه بعد التأكد من بصمته: {isolate(how)}\n"
        f"The signature does not count until its key is trusted, after its fingerprint was checked: {how}\n"
        f"  {keys.grouped(signer.fingerprint)}"
    )


# ------------------------------------------------------------------------------------------------ the gate


def _check(args: argparse.Namespace) -> None:
    if args.template:
        print(data_path("forms", f"{args.template}.yaml").read_text(encoding="utf-8"), end="")
        return
    decision = gate.decide(_settings(args))
    for language in _languages(args):
        lines = _lines(decision, language)
        print(
            "\n".join(isolated(line) for line in lines) if language == "ar" else "\n".join(lines), end="\n\n"
        )
    if decision["verdict"] == "deny":
        raise SystemExit(EXIT_REFUSED)


def _lines(decision: dict[str, Any], language: str) -> list[str]:
    """A decision as plain text, in the order in which a person decides on it."""

    def t(key: str, **values: Any) -> str:
        return say(key, **values)[language]

    def section(key: str, rows: list[str]) -> list[str]:
        return ["", f"{t(key)}:", *(f"  • {row}" for row in rows)] if rows else []

    def named(rows: list[dict[str, Any]], name: str) -> list[str]:
        return [f"{one[name]}: {one[language]}" for one in rows]

    lines = [t(f"verdict_{decision['verdict']}")]
    if override := decision["override"]:
        lines.append(
            t("head_override", **{name: override[name] for name in ("by", "role", "reason", "until")})
        )
    lines += section("head_reasons", named(decision["reasons"], "rule"))
    states = {True: t("condition_met"), False: t("condition_unmet")}
    conditions = [f"{one['id']} ({states[one['met']]}): {one[language]}" for one in decision["conditions"]]
    lines += section("head_conditions", conditions)
    commands = [f"\n    {one['command']}" if one["command"] else "" for one in decision["remedies"]]
    remedies = [f"{one['rule']}: {one[language]}" for one in decision["remedies"]]
    lines += section("head_remedies", [text + how for text, how in zip(remedies, commands, strict=True)])
    if nearest := decision["nearest_allowed"]:
        lines += ["", f"{t('head_nearest')}: {nearest[language]}"]
    lines += section("head_conflicts", named(decision["conflicts"], "pack"))
    lines += section("head_unverified", named(decision["unverified"], "pack"))
    return [*lines, "", t("basis"), t("preview")]


# ------------------------------------------------------------------------------------------------ arguments


def _settings(args: argparse.Namespace) -> RunSettings:
    """The settings that `-p` names. The gate's question does not depend on the task, so a class that the task could not
    have may be asked about; the gate itself refuses a class that it does not know.
    """
    given = dict(args.p)
    data_class = given.pop("data_class", None)
    settings = run_settings.load({"governance_dir": str(args.governance_dir)} | given)
    return settings if data_class is None else settings.model_copy(update={"data_class": data_class})


def _own_packs(args: argparse.Namespace) -> Path:
    return args.governance_dir / "rules"


def _pack_id(given: str) -> str:
    return given.strip().lower()


def _languages(args: argparse.Namespace) -> tuple[str, ...]:
    return LANGUAGES if args.lang == "both" else (args.lang,)


def _today() -> date:
    return datetime.now(UTC).date()


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "residency", "Rule packs, and the gate before a launch.", "حزم القواعد والبوابة قبل الإطلاق"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    explain = commands.add_parser("explain", help="اقرأ حزمة قواعد | read a rule pack out")
    review = commands.add_parser("review", help="وقّع مراجعة حزمة | sign the review of a pack")
    check = commands.add_parser("check", help="اسأل البوابة قبل الإطلاق | ask the gate before a launch")
    override = commands.add_parser("override", help="وقّع استثناء | sign an override")
    for one in (explain, review):
        one.add_argument("pack", metavar="PACK", help="معرّف الحزمة مثل SA | id of the pack, such as SA")
    for one in (explain, check):
        one.add_argument("--lang", choices=("ar", "en", "both"), default="both", help="اللغة | language")
    for one in (check, override):
        one.add_argument(
            "-p",
            nargs=2,
            action="append",
            default=[],
            metavar=("NAME", "VALUE"),
            help="معامل واحد كما في التشغيل | one parameter, as for a run",
        )
    for one in (review, override):
        one.add_argument("--by", required=True, metavar="NAME", help="اسم صاحب القرار | who decides")
        one.add_argument("--role", required=True, help="صفته | their role")
        one.add_argument("--until", required=True, metavar="DATE", help="يسري حتى | holds until, YYYY-MM-DD")
        one.add_argument("--key", required=True, help="مفتاح صاحب القرار | the key of who decides")
    for one in (explain, review, check, override):
        one.add_argument(
            "--governance-dir",
            type=Path,
            default=Path("governance"),
            help="مجلد الحوكمة | the organisation's own folder",
        )
    check.add_argument("--template", choices=TEMPLATES, help="اطبع نموذجا فارغا | print an empty form")
    override.add_argument(
        "--rules", required=True, help="القواعد المتجاوزة بفواصل | rules to set aside, with commas"
    )
    override.add_argument("--reason", required=True, help="السبب | why")
    override.add_argument("--run-id", default="", help="معرّف التشغيل | id of the run")
    return parser


if __name__ == "__main__":
    exit_with(main)
