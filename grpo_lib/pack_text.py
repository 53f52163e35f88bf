"""A rule pack read out as plain text, whole: what it says, how sure we are, and what nobody has verified.

A lawyer reviews what this prints, so no field on which the gate decides may be missing from it. What is null is printed
as "not verified", in its place, and never left out: silence would read as "no such duty". In Arabic every Latin word,
number and date is isolated (UAX #9), and an English value as a whole, so that its brackets stay where they belong.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from compliance import path as data_path
from grpo_lib.errors import isolate
from grpo_lib.wording import LANGUAGES, isolated, plain

if TYPE_CHECKING:
    from grpo_lib.packs import Pack

Texts = dict[str, str]


@cache
def table() -> dict[str, Texts]:
    """Every sentence of a reading: key -> language -> text with `{places}`."""
    return yaml.safe_load(data_path("pack-wording.yaml").read_text(encoding="utf-8"))


def explain(pack: Pack, language: str) -> str:
    """The pack in one language, as plain text."""
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r} is not one of {LANGUAGES}")
    return _Reading(language).of(pack)


class _Reading:
    """One pack in one language. Methods that return text isolate it; methods that return lines do not nest isolates."""

    def __init__(self, language: str):
        self.language = language
        self.arabic = language == "ar"
        self.nothing = plain("article_unverified", language)

    # ------------------------------------------------------------------------------------------------ pieces

    def say(self, key: str, **values: str) -> str:
        """A sentence; its values are texts that were isolated already."""
        return table()[key][self.language].format(**values)

    def word(self, prefix: str, value: str | None) -> str:
        """The word for one of a fixed set of values."""
        return self.nothing if value is None else self.say(f"{prefix}{value}")

    def code(self, value: Any) -> str:
        """A number, date, id or English text, as it was written."""
        if value is None:
            return self.nothing
        return isolate(value) if self.arabic else str(value)

    def texts(self, value: Texts | None) -> str:
        """A text that the pack holds in both languages."""
        if value is None:
            return self.nothing
        return isolated(value["ar"]) if self.arabic else value["en"]

    def suite_class(self, name: str) -> str:
        return plain(f"class_{name}", self.language)

    def listed(self, items: list[str]) -> str:
        return ("، " if self.arabic else ", ").join(items)

    def confidence(self, value: str | None) -> str:
        said = plain(f"confidence_{value}", self.language) if value else self.nothing
        return f"{plain('confidence', self.language)}: {said}"

    # ------------------------------------------------------------------------------------------------ parts

    def of(self, pack: Pack) -> str:
        value = pack.to_dict()
        parts = [
            self._head(value, pack.digest),
            self._instruments(value["instruments"]),
            *self._law(value["personal_data_law"]),
            *self._hosting(value["government_hosting"]),
            self._gate(value["gate"]),
            self._points("conflicts_of_sources", value["conflicts"]),
            self._points("unverified_points", value["unverified"]),
            self._sources(value["sources"]),
            [self._arabic_review(value["arabic_review"])],
        ]
        return "\n\n".join("\n".join(lines) for lines in parts if lines)

    def _head(self, value: dict[str, Any], digest: str) -> list[str]:
        checked = f"{plain('pack_verified_on', self.language)}: {self.code(value['verified_on'])}"
        status = plain(f"status_{value['status']}", self.language) if value["status"] else self.nothing
        reading = [plain(key, self.language) for key in ("reading_basis", "paraphrase_explained")]
        return [
            f"{self.texts(value['names'])} ({self.code(value['id'])})",
            f"{self.confidence(value['confidence'])}. {checked}. {plain('pack_status', self.language)}: {status}.",
            " ".join(reading),
            self.say("territory", country=self.code(value["country"])),
            *([self.say("part_of", parent=self.code(value["parent"]))] if value["parent"] else []),
            self.say("authority", name=self.texts(value["authority"])),
            self.say("digest", digest=self.code(digest)),
        ]

    def _instruments(self, instruments: list[dict[str, Any]]) -> list[str]:
        lines = [self.say("instruments") + ":"]
        for one in instruments:
            arabic = self.arabic and one["ar"]
            lines.append(f"- {isolated(one['ar']) if arabic else self.code(one['en'])}")
            lines.append("  " + self.say("title_basis", basis=self.word("title_", one["ar_basis"])))
            lines += [
                "  " + self.say(key, value=self.code(one[key])) for key in ("number", "issued", "in_force")
            ]
            lines += self._note(one["note"])
        return lines

    def _note(self, note: Texts | None) -> list[str]:
        """Remarks are not facts that could be verified: where there is none, nothing is said."""
        return ["  " + self.say("note", text=self.texts(note))] if note else []

    def _law(self, law: dict[str, Any]) -> list[list[str]]:
        binds = self.word("", law["binds_government"])
        heading = [
            self.say("law") + ":",
            self.say("binds_government", value=binds) + f". {self.texts(law['scope_note'])}",
        ]
        transfer, breach = law["transfer"], law["breach"]
        more = {
            "transfer": [
                "  " + self.say("effect", effect=self.word("effect_", transfer["effect"])),
                *self._conditions(transfer["effect"], transfer["conditions"]),
            ],
            "records": [
                "  " + self.say("keep_years", count=self.code(law["records"]["keep_years_after_end"]))
            ],
            "breach": [
                *(
                    "  " + self.say(key, count=self.code(breach[key]))
                    for key in ("authority_hours", "persons_hours")
                ),
                *(
                    ["  " + self.say("disagree", text=self.texts(breach["conflict"]))]
                    if breach["conflict"]
                    else []
                ),
            ],
        }
        parts = ("transfer", "records", "impact_assessment", "retention", "breach", "training")
        return [
            heading,
            *([self._rule(part, law[part]), *more.get(part, [])] for part in parts),
            [self._rule("penalties", law["penalties"])],
        ]

    def _rule(self, part: str, rule: dict[str, Any] | None) -> str:
        title = self.say("rule_penalties") if part == "penalties" else plain(f"rule_{part}", self.language)
        if rule is None:
            return f"{title}: {self.nothing}"
        about = [self.confidence(rule["confidence"])]
        if "article" in rule:
            about.insert(0, f"{plain('article', self.language)}: {self.code(rule['article'])}")
        return f"{title} ({self.listed(about)}): {self.texts(rule['paraphrase'])}"

    def _conditions(self, effect: str | None, conditions: list[dict[str, Any]]) -> list[str]:
        if not conditions:
            needed = effect in ("needs_evidence", "needs_authorisation")
            return ["  " + self.say("no_condition")] if needed else []
        lines = []
        for one in conditions:
            kind = self.say("asks_for", kind=self.word("kind_", one["evidence"]))
            issuer = [self.say("issued_by", issuer=self.texts(one["issuer"]))] if one["issuer"] else []
            said = self.say("condition", id=self.code(one["id"]), text=self.texts(one["paraphrase"]))
            lines.append(f"  - {said} [{self.listed([kind, *issuer])}]")
        return lines

    def _hosting(self, hosting: dict[str, Any]) -> list[list[str]]:
        heading = [self.say("hosting") + ":"]
        if not hosting["rules"]:
            heading.append(self.say("rules", value=self.nothing))
        levels = hosting["levels"]
        scale = [self.say("levels", value="" if levels else self.nothing).rstrip()]
        for one in levels or []:
            name = isolated(one["ar"]) if self.arabic and one["ar"] else self.code(one["en"])
            scale.append(f"  - {name} = {self.suite_class(one['suite'])}")
        return [heading, *(self._hosting_rule(rule) for rule in hosting["rules"]), scale]

    def _hosting_rule(self, rule: dict[str, Any]) -> list[str]:
        article = f"{plain('article', self.language)}: {self.code(rule['article'])}"
        about = self.listed([self.code(rule["id"]), article, self.confidence(rule["confidence"])])
        classes = self.listed([self.suite_class(one) for one in rule["classes"]]) or self.say("no_class")
        effects = (rule["abroad"], rule["in_country"])
        asks = next((one for one in effects if one in ("needs_evidence", "needs_authorisation")), None)
        return [
            f"{self.texts(rule['instrument'])} ({about}): {self.texts(rule['paraphrase'])}",
            "  " + self.say("classes", classes=classes),
            *(
                "  " + self.say(key, effect=self.word("effect_", rule[key]))
                for key in ("abroad", "in_country")
            ),
            *self._conditions(asks, rule["conditions"]),
        ]

    def _gate(self, gate: dict[str, Any]) -> list[str]:
        kinds = ("personal", "classified", "public")
        said = ["  - " + self.say(f"gate_{kind}", effect=self.word("effect_", gate[kind])) for kind in kinds]
        return [self.say("reading") + ":", *said, *self._note(gate["note"])]

    def _points(self, title: str, points: list[Texts]) -> list[str]:
        if not points:
            return []
        return [plain(title, self.language) + ":", *(f"  - {self.texts(one)}" for one in points)]

    def _sources(self, sources: list[dict[str, str]]) -> list[str]:
        lines = [f"  - {self.code(one['text'])} [{self.word('basis_', one['basis'])}]" for one in sources]
        return [plain("source", self.language) + ":", *lines]

    def _arabic_review(self, review: dict[str, str | None]) -> str:
        if not all(review.values()):
            return self.say("arabic_unreviewed")
        return self.say("arabic_reviewed", **{key: self.code(value) for key, value in review.items()})
