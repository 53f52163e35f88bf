"""How a report shows its governance half: rules and articles, dates in both calendars, actions, cells of documents."""

from __future__ import annotations

from datetime import date
from typing import Any

from markupsafe import Markup

from grpo_lib import calendars, documents
from grpo_lib.view import View
from grpo_lib.wording import ltr, own


class GovernanceView(View):
    """`View` with what the residency report, the action list and the documents need."""

    def value(self, fact: dict[str, Any], show: str = "text") -> Markup:
        """As in `View`, and dates in both calendars."""
        return self.day(fact["value"]) if show == "day" and fact["value"] else super().value(fact, show)

    def said_in(self, texts: dict[str, Any] | None) -> Markup:
        """Text that is kept in both languages: `{"ar": …, "en": …}`."""
        one = (texts or {}).get(self.language)
        return own(one) if one else self.absent("article_unverified")

    def article(self, one: str | None) -> Markup:
        """Article of a law; what is not verified is said to be so, never left out."""
        return ltr(one) if one else self.absent("article_unverified")

    def day(self, iso: str | None) -> Markup:
        """A date in both calendars: `2026-12-01`, and the Hijri date beside it."""
        if not iso:
            return self.absent("not_stated")
        try:
            gregorian = date.fromisoformat(str(iso)[:10])
        except ValueError:
            return own(iso)
        shown = ltr(str(iso).replace("T", " ").replace("+00:00", " UTC"))
        hijri = calendars.hijri(gregorian, self.language)
        return shown + Markup(" ({})").format(self.t("hijri", day=own(hijri))) if hijri else shown

    def pack_name(self, pack_id: str | None) -> Markup:
        pack = self._pack(pack_id)
        names = pack["names"][self.language] if pack else pack_id
        return Markup("{} ({})").format(own(names), ltr(pack_id)) if pack_id else Markup("")

    # ------------------------------------------------------------------------------------------ actions

    def action_rows(self) -> list[list[dict[str, Any]]]:
        """Actions as rows of the list: what is asked alike, of the same owner by the same day, is one row.

        Page 1 has to hold the list, and one question put under five packs is one question.
        """
        rows: dict[tuple, list[dict[str, Any]]] = {}
        for one in self.evidence["actions"]:
            rows.setdefault(
                tuple(one[name] for name in ("key", "owner", "due", "when", "document")), []
            ).append(one)
        return list(rows.values())

    def action_text(self, row: list[dict[str, Any]]) -> Markup:
        action = row[0]
        values: dict[str, Any] = dict(action["values"])
        if len(row) > 1 and "count" in values:
            values["count"] = sum(one["values"]["count"] for one in row)
        if "condition" in values:
            values["condition"] = self.listed([one["values"]["condition"] for one in row])
        if action["pack"]:
            values["pack"] = Markup(self._comma()).join(self.pack_name(one["pack"]) for one in row)
        if "names" in action:
            values["names"] = self.named(action["names"], "not_stated")
        return self.t(action["key"], **values)

    def action_due(self, action: dict[str, Any]) -> Markup:
        return self.day(action["due"]) if action["due"] else self.t(f"when_{action['when']}")

    def action_law(self, row: list[dict[str, Any]]) -> Markup:
        """Packs and articles, each once."""
        laws = dict.fromkeys((one["pack"], one["article"]) for one in row)
        return Markup("<br>").join(self._law(pack, article) for pack, article in laws)

    def _law(self, pack: str | None, article: str | None) -> Markup:
        """Pack and article; the pack alone where no article is asked for."""
        if article:
            return ltr(f"{pack}: {article}")
        if not pack:
            return Markup("")
        return ltr(pack) if article == "" else ltr(pack) + Markup(": ") + self.absent("article_unverified")

    def action_document(self, action: dict[str, Any]) -> Markup:
        return self.t(f"document_{action['document']}") if action["document"] else Markup("")

    # ----------------------------------------------------------------------------------------- decision

    def evidence_of(self, given: dict[str, Any] | None) -> Markup:
        if not given:
            return self.absent("evidence_missing")
        names = ("ref", "issuer", "date", "signed_by")
        parts = {name: own(given.get(name) or "—") for name in names}
        parts |= {"expires": self.day(given.get("expires")), "digest": self.hash(given.get("sha256"))}
        parts["countries"] = self.listed(given.get("countries") or ["—"])
        return self.t("evidence_of", **parts)

    def has_article(self, reason: dict[str, Any]) -> bool:
        """Whether a reason rests on a law: a review of a pack does not, and there is no article to verify."""
        return bool(reason["pack"]) and not str(reason["rule"]).endswith("-review")

    def rules_in_short(self) -> tuple[list[dict[str, Any]], list[str]]:
        """(reasons that page 1 gives in full, ids of the others): what denies, and few of any kind, is given in full.

        What an override set aside is named with the override.
        """
        override = self.evidence["decision"]["override"] or {}
        aside = override.get("rules") or []
        reasons = [one for one in self.evidence["decision"]["reasons"] if one["rule"] not in aside]
        if len(reasons) <= 3:
            return reasons, []
        full = [one for one in reasons if one.get("effect") == "deny"][:4]
        return full, [one["rule"] for one in reasons if one not in full]

    def hours(self, count: int | None) -> Markup:
        return self.t("hours", count=count) if count else self.absent("article_unverified")

    def purged(self, what: list[dict[str, Any]]) -> Markup:
        names = ("folder", "files", "bytes")
        rows = ({name: self.number(one.get(name)) for name in names} for one in what)
        return Markup(self._comma()).join(self.t("purged_what", **row) for row in rows)

    def exposure(self) -> Markup:
        """Whether memorisation was measured, and what came out."""
        found = self.evidence["memorisation"]
        if not found:
            return self.absent("memorisation_missing")
        one = found["exposure"]
        shown = ltr(f"{one['mean']:.2f} ({one['low']:.2f}–{one['high']:.2f})")
        rest = {"without": self.number(found["without_memory"]), "most": self.number(found["most"])}
        return self.t(
            "memorisation_measured", canaries=self.number(found["canaries"]), exposure=shown, **rest
        )

    def kinds(self, names: list[str]) -> Markup:
        return Markup(self._comma()).join(self.word("pii", name) for name in names)

    def listed(self, values: list[Any]) -> Markup:
        return Markup(self._comma()).join(own(value) for value in values)

    # ---------------------------------------------------------------------------------------- documents

    def cell(self, row: dict[str, Any], pack: dict[str, Any] | None) -> list[Markup]:
        """Contents of one cell, each with its source; empty when people have still to fill it in."""
        if "fact" in row:
            return [self.value(row["fact"], row["show"]) + " " + self.source(row["fact"])]
        if "list" in row:
            shown = getattr(self, f"_list_{row['list']}")(pack)
            return shown or [self.absent("document_none_of_list")]
        return [own(row["answer"])] if row["answer"] else []

    def document_title(self, document: dict[str, Any]) -> Markup:
        title = self.said_in(document["title"])
        return title + ": " + self.pack_name(document["pack"]["id"]) if document["pack"] else title

    def documents_needed(self) -> list[tuple[Markup, str]]:
        """(title, file name) of each document that the actions call for."""
        return [
            (self.t(f"document_{kind}"), f"{documents.name(kind, pack)}.{self.language}.html")
            for kind, pack in documents.needed(self.evidence)
        ]

    def _list_authority(self, pack: dict[str, Any] | None) -> list[Markup]:
        return [self._from_pack(self.said_in(pack["authority"]), pack)] if pack else []

    def _list_transfer_rule(self, pack: dict[str, Any] | None) -> list[Markup]:
        return self._rule(pack, "transfer")

    def _list_records_rule(self, pack: dict[str, Any] | None) -> list[Markup]:
        return self._rule(pack, "records")

    def _list_assessment_rule(self, pack: dict[str, Any] | None) -> list[Markup]:
        return self._rule(pack, "impact_assessment")

    def _list_training_rule(self, pack: dict[str, Any] | None) -> list[Markup]:
        return self._rule(pack, "training") if pack and pack["training"]["paraphrase"] else []

    def _list_breach_clock(self, pack: dict[str, Any] | None) -> list[Markup]:
        if not pack:
            return []
        return [
            self._from_pack(self.hours(pack["breach"]["authority_hours"]), pack),
            *self._rule(pack, "breach"),
        ]

    def _list_conditions(self, pack: dict[str, Any] | None) -> list[Markup]:
        return [
            Markup("{}: {} {}").format(
                own(one[self.language]),
                self.evidence_of(one["evidence"]),
                self.cite("decision.json", one["id"]),
            )
            for one in self.evidence["decision"]["conditions"]
            if pack is None or one["pack"] == pack["id"]
        ]

    def _list_screen(self, pack: dict[str, Any] | None) -> list[Markup]:
        screen = self.evidence["screen"]
        if not screen:
            return []
        found = [one["kind"] for one in screen["findings"]]
        text = self.t("screen_found", kinds=self.kinds(found)) if found else self.t("screen_clean")
        covered = self.t(
            "screen_covered", screened=self.number(screen["screened"]), rows=self.number(screen["rows"])
        )
        return [Markup("{} {} {}").format(text, covered, self.cite("pii.json", "findings"))]

    def _list_incidents(self, pack: dict[str, Any] | None) -> list[Markup]:
        return [
            Markup("{} {} {}").format(
                self.clock(one["time"]) if one["time"] else "", self.incident(one), self.incident_lines(one)
            )
            for one in self.evidence["incidents"]
            if one["severity"] != "expected"
        ]

    def _list_provider_claims(self, pack: dict[str, Any] | None) -> list[Markup]:
        provider = self.evidence["decision"]["provider"]
        return [
            Markup("{} {} {}").format(
                self.said_in(one["claim"]),
                self._small(ltr(f"{one.get('source')}, {one.get('checked_on')}")),
                self.cite("decision.json", "provider.claims"),
            )
            for one in provider.get("claims") or []
        ]

    def _list_measures(self, pack: dict[str, Any] | None) -> list[Markup]:
        """Only what the run folder shows; a measure that is not there is not claimed."""
        evidence = self.evidence
        signing, network = evidence["signing"], evidence["network"]
        shown = [
            ("measure_sealed", bool(evidence["traffic"]), "transport.json"),
            ("measure_rollouts", evidence["rollouts"]["files"] > 0, "rollouts/"),
            ("measure_signed", signing["heads"] > 0, "ledger/tree-heads/"),
            ("measure_witnessed", signing["witness"] is not None, "ledger/tree-heads/"),
            ("measure_loopback", bool(network) and not network["beyond_loopback"], "network.json"),
        ]
        return [self.t(key) + " " + self.cite(file, "") for key, there, file in shown if there]

    # -------------------------------------------------------------------------------------------- parts

    def _pack(self, pack_id: str | None) -> dict[str, Any] | None:
        return next((pack for pack in self.evidence["packs"] if pack["id"] == pack_id), None)

    def _rule(self, pack: dict[str, Any] | None, part: str) -> list[Markup]:
        if not pack:
            return []
        rule = pack[part]
        article = Markup("{}: {}").format(self.t("article"), self.article(rule["article"]))
        return [self._from_pack(self.said_in(rule["paraphrase"]) + " " + article, pack)]

    def _from_pack(self, text: Markup, pack: dict[str, Any]) -> Markup:
        return text + " " + self.cite(f"packs/{pack['id']}.yaml", "")
