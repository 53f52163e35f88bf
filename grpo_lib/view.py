"""How a report shows a piece of evidence: functions that templates call, each giving HTML in one language.

Sentences come from the wording table; every number, date, digest, path and foreign word is isolated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from markupsafe import Markup

from grpo_lib import wording
from grpo_lib.wording import ltr, own


class View:
    """Functions that templates call: each turns a piece of evidence into HTML in one language."""

    def __init__(self, evidence: dict[str, Any], language: str, drawn: dict[str, str]):
        self.evidence, self.language, self.drawn = evidence, language, drawn

    def functions(self) -> dict[str, Callable[..., Any]]:
        public = {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}
        shown = {name: one for name, one in public.items() if callable(one) and name != "functions"}
        return shown | {"ltr": ltr, "own": own}

    def t(self, key: str, **values: Any) -> Markup:
        """A sentence of `wording.yaml`."""
        return wording.html(key, self.language, **values)

    def plain(self, key: str) -> str:
        return wording.plain(key, self.language)

    def word(self, prefix: str, name: str) -> Markup:
        """The word for a known value (`class_public`), or the value itself where there is none."""
        key = f"{prefix}_{name}".replace(" ", "_")
        return self.t(key) if wording.has(key) else own(name)

    def absent(self, key: str) -> Markup:
        return Markup('<span class="absent">{}</span>').format(self.t(key))

    # ------------------------------------------------------------------------------------- single values

    def value(self, fact: dict[str, Any], show: str = "text") -> Markup:
        """A fact's value, shown as what it is; or that it was not stated or not measured."""
        one = fact["value"]
        if one is None:
            return self.absent(fact["absent"])
        match show:
            case "hash":
                return self.hash(one)
            case "time":
                return self.clock(one)
            case "class" | "personal" | "verdict" | "observed" | "controller":
                return self.word(show, one)
            case "place":
                return self.t("place_local") if one == "local" else self.t("place_other", backend=one)
            case "country":
                return self.word("country", one) + Markup(" ({})").format(ltr(one))
            case "addresses":
                return Markup(self._comma()).join(self.word("address", part) for part in one.split(", "))
        # A setting is printed as it was given; only measures are rounded.
        return own(one) if isinstance(one, str) else ltr(one)

    def number(self, one: Any) -> Markup:
        """A count with its thousands apart (narrow no-break space), or a measure with at most three decimals."""
        if one is None:
            return self.absent("not_measured")
        if isinstance(one, bool) or not isinstance(one, int | float):
            return ltr(one)
        if isinstance(one, int):
            return ltr(f"{one:,}".replace(",", "\u202f") if abs(one) >= 10_000 else one)
        return ltr(f"{one:g}" if 0 < abs(one) < 0.001 else f"{one:.3f}".rstrip("0").rstrip("."))

    def percent(self, share: float | None) -> Markup:
        return self.absent("not_measured") if share is None else ltr(f"{100 * share:.1f}\u202f%")

    def yes_no(self, one: bool | None) -> Markup:
        if one is None:
            return self.absent("not_measured")
        return self.t("yes") if one else Markup('<span class="bad">{}</span>').format(self.t("no"))

    def interval(self, side: dict[str, Any] | None, key: str) -> Markup:
        """`0.946 (0.935–0.957)`: mean and interval of one measure, before or after."""
        found = side.get(key) if side else None
        if found is None:
            return self.absent("not_measured")
        return ltr(f"{found['mean']:.3f} ({found['low']:.3f}–{found['high']:.3f})")

    def pass_at_k(self) -> Markup:
        """`pass@8`, by the number of samples per question."""
        k = self.evidence["result"]["samples_per_question"]
        return ltr(f"pass@{'k' if k is None else k}")

    def change(self, key: str) -> Markup:
        """Difference of a measure after and before, with its sign."""
        result = self.evidence["result"]
        ends = [side.get(key) if side else None for side in (result["base"], result["trained"])]
        if None in ends:
            return self.absent("not_measured")
        before, after = (end["mean"] if isinstance(end, dict) else end for end in ends)
        return ltr(f"{after - before:+.3f}".replace("-", "−"))

    def clock(self, time: Any) -> Markup:
        """An ISO 8601 time as `2026-12-01 08:00:01 UTC`; anything else as it stands."""
        try:
            moment = datetime.fromisoformat(str(time))
        except ValueError:
            return ltr(time)
        return ltr(f"{moment:%Y-%m-%d %H:%M:%S}" + (" UTC" if moment.utcoffset() is not None else ""))

    def when(self, fact: dict[str, Any]) -> Markup:
        return self.value(fact, "time")

    def hash(self, digest: str | None) -> Markup:
        return self.absent("not_recorded") if not digest else ltr(digest, "hash")

    # ----------------------------------------------------------------------------------------- sources

    def line(self, seq: int | None) -> Markup:
        """Ledger line, counted from 1, of a sequence number, counted from 0."""
        return self.absent("not_recorded") if seq is None else ltr(seq + 1)

    def span(self, seqs: list[int]) -> Markup | str:
        """Ledger lines as `12`, `12, 15` or, when there are more, first and last: `12–40`."""
        if not seqs:
            return ""
        few = ", ".join(str(seq + 1) for seq in seqs)
        return ltr(few) if len(seqs) <= 3 else self._range(seqs)

    def _range(self, seqs: list[int]) -> Markup:
        first, last = seqs[0] + 1, seqs[-1] + 1
        return ltr(first if first == last else f"{first}–{last}")

    def lines(self, seqs: list[int]) -> Markup | str:
        return self._small(self.t("source_line", line=self.span(seqs))) if seqs else ""

    def cite(self, file: str, field: str, seqs: list[int] | None = None) -> Markup:
        """Where a figure was read: file, field, and the ledger line or the first and last of a range."""
        where = ltr(f"{file}: {field}" if field else file)
        if seqs:
            where += Markup(self._comma()) + self.t("source_line", line=self._range(seqs))
        return self._small(where)

    def source(self, fact: dict[str, Any]) -> Markup:
        origin = fact["source"]
        return self.cite(
            origin["file"], origin["field"], [origin["seq"]] if origin["seq"] is not None else None
        )

    def named(self, names: list[str], kind: str) -> Markup:
        """Names of fields (in words) or of files (as they are)."""
        shown = (
            self.t(name) if kind != "files_differ" and wording.has(name) else ltr(name) for name in names
        )
        return Markup("؛ " if self.language == "ar" else "; ").join(shown)

    def _comma(self) -> str:
        return "، " if self.language == "ar" else ", "

    def _small(self, text: Markup) -> Markup:
        return Markup('<span class="source">[{}]</span>').format(text)

    # --------------------------------------------------------------------------------- incidents, figures

    def severity(self, name: str) -> Markup:
        return ltr(sum(1 for one in self.evidence["incidents"] if one["severity"] == name))

    def incident(self, one: dict[str, Any]) -> Markup:
        """One incident as a sentence."""
        values = {}
        for name, given in one["values"].items():
            values[name] = self.absent("not_recorded") if given is None else own(given)
        return self.t(f"incident_{one['kind']}", **values)

    def incident_lines(self, one: dict[str, Any]) -> Markup | str:
        """Ledger lines of an incident; of a torn or broken line, which has no sequence number, the line itself."""
        line = one["values"].get("line")
        return self.lines(one["seqs"] or ([line - 1] if line else []))

    def counted(self, one: dict[str, Any]) -> Markup | str:
        return Markup(" ({}: {})").format(self.t("count"), ltr(one["count"])) if one["count"] > 1 else ""

    def figure(self, name: str) -> Markup:
        """A figure with its description for those who do not see it, and its caption."""
        alt = self._alt(name)
        caption = self.t(f"figure_{name}")
        series = self.evidence["series"]
        if name == "timeline" and series["spans_total"] > len(series["spans"]):
            part = self.t("figure_timeline_part", shown=len(series["spans"]), total=series["spans_total"])
            caption += ". " + part
        image = _inline(self.drawn[name], f"fig-{name}", alt)
        return Markup("<figure>\n{}\n<figcaption>{}</figcaption>\n</figure>").format(image, caption)

    def _alt(self, name: str) -> str:
        series, overlap, staleness = (self.evidence[key] for key in ("series", "overlap", "staleness"))
        title = self.plain(f"figure_{name}")
        values: dict[str, Any] | None = None
        if name == "reward" and series["curve"]:
            first, last = series["curve"][0], series["curve"][-1]
            values = {"first": f"{first['mean']:.3f}", "first_step": first["step"]}
            values |= {"last": f"{last['mean']:.3f}", "last_step": last["step"]}
        elif name == "staleness" and staleness["lag_max"] is not None and staleness["bound"] is not None:
            values = {"largest": staleness["lag_max"], "bound": staleness["bound"]}
        elif name == "timeline" and overlap["share"] is not None:
            values = {"share": f"{100 * overlap['share']:.1f} %"}
        if values is None:
            return f"{title}. {self.plain('figure_no_data')}"
        return f"{title}. {wording.plain(f'figure_{name}_alt', self.language, **values)}"


def _inline(svg: str, prefix: str, alt: str) -> Markup:
    """A standalone SVG made fit to stand inside HTML: no prolog, no name spaces, its own ids, a title for its content."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.S)
    body = re.sub(r'\s+xmlns(?::\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = body.replace('href="#', f'href="#{prefix}-').replace("url(#", f"url(#{prefix}-")
    # matplotlib's style rule would reach the whole page.
    body = body.replace("*{stroke-linejoin", f"#{prefix} *{{stroke-linejoin")
    title = Markup('<title id="{}-title">{}</title>').format(prefix, alt)
    opened = f'<svg id="{prefix}" role="img" aria-labelledby="{prefix}-title" dir="ltr" '
    head, rest = body.removeprefix("<svg").split(">", 1)
    return Markup(opened + head.strip() + ">\n" + str(title) + rest.rstrip())
