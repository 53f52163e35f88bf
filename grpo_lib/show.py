"""Tables and progress for the production notebooks: Arabic first, readable when widgets render as nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from IPython.display import HTML

from grpo_lib import wording
from grpo_lib.runfolder import RunFolder, read_lines
from grpo_lib.settings import RunSettings


def ltr(value: object) -> str:
    """`value` escaped and isolated, so that it keeps its order inside right-to-left text."""
    return f'<bdi dir="ltr">{html.escape(str(value))}</bdi>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, direction: str = "rtl") -> HTML:
    """An HTML table; cells are HTML, so escape or isolate values first."""
    header = "".join(f'<th scope="col" style="text-align:start">{cell}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:start">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return HTML(f'<table dir="{direction}"><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>')


def settings_table(settings: RunSettings) -> HTML:
    """Every parameter with its value and what it means."""
    return table(
        ("المعامل | parameter", "القيمة | value", "المعنى", "meaning"),
        (
            (
                ltr(name),
                ltr(repr(getattr(settings, name))),
                html.escape(field.json_schema_extra["ar"]),
                f'<span dir="ltr">{html.escape(field.description)}</span>',
            )
            for name, field in RunSettings.model_fields.items()
        ),
    )


def decision_table(decision: dict) -> HTML:
    """The gate's verdict with its reasons in both languages."""
    verdict = {"allow": "مسموح | allowed", "deny": "مرفوض | denied"}[decision["verdict"]]
    return table(
        ("القرار | verdict", "القاعدة | rule", "السبب", "reason"),
        (
            (verdict, ltr(r["rule"]), html.escape(r["ar"]), f'<span dir="ltr">{html.escape(r["en"])}</span>')
            for r in decision["reasons"]
        ),
    )


def result_table(evaluation: dict) -> HTML:
    """Held-out results before and after training, with their 95 % intervals."""

    def cell(value: dict) -> str:
        return ltr(f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]")

    rows = []
    for key, before in evaluation["base"].items():
        if isinstance(before, dict):
            wording_key = "measure_pass_at_k" if key.startswith("pass_at_") else f"measure_{key}"
            values = {"k": evaluation["samples_per_question"], "name": key.replace("pass_at_", "pass@")}
            ar, en = (str(wording.html(wording_key, language, **values)) for language in wording.LANGUAGES)
            rows.append((ar, f'<span dir="ltr">{en}</span>', cell(before), cell(evaluation["trained"][key])))
    return table(("المقياس", "measure", "قبل | before", "بعد | after"), rows)


def answers_table(answers: Sequence) -> HTML:
    """Base and adapter side by side, one row per question."""
    policies = list(dict.fromkeys(answer.policy for answer in answers))
    rows = []
    for question in dict.fromkeys(answer.question for answer in answers):
        by_policy = {answer.policy: answer for answer in answers if answer.question == question}
        cells = []
        for policy in policies:
            answer = by_policy[policy]
            score = "" if answer.right is None else f" ({ltr(f'{answer.right}/8')})"
            cells.append(f"<bdi>{html.escape(answer.likeliest)}</bdi>{score}")
        expected = next(iter(by_policy.values())).expected
        rows.append((f"<bdi>{html.escape(question)}</bdi>", ltr(expected), *cells))
    return table(("السؤال | question", "الجواب | answer", *(ltr(policy) for policy in policies)), rows)


class Progress:
    """Prints a line for about every tenth of the run; called several times a second."""

    def __init__(self, settings: RunSettings):
        self._run = RunFolder(settings.run_dir)
        self._steps = settings.steps
        self._shown = -1

    def __call__(self) -> None:
        rows = read_lines(self._run.metrics)
        step = rows[-1]["step"] if rows else 0
        tenth = step * 10 // self._steps
        if not rows or tenth == self._shown:
            return
        self._shown = tenth
        reward, lag = rows[-1].get("reward") or 0.0, rows[-1].get("lag_mean") or 0.0
        print(
            f"step {step}/{self._steps}  reward {reward:.3f}  lag {lag:.2f}  workers {rows[-1]['workers']}",
            flush=True,
        )
