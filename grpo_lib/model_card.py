"""A model card for a run's adapter, from its evidence, in the Hub's own format; written offline and never uploaded.

The card is what a later reader of the adapter sees first, so it says what the base model is, what was measured and on
what, the class that the adapter inherits from its data, and what was not checked.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from grpo_lib import wording

_MEASURES = {"sampled": "sampled accuracy", "greedy": "greedy accuracy", "pass_at_k": "pass@k"}


def card(evidence: dict[str, Any]) -> ModelCard:
    """The model card of the run that `evidence` is about."""
    run_id, task = evidence["run_id"]["value"], evidence["data"]["task"]["value"] or "unknown"
    data = ModelCardData(
        language=["ar"],
        library_name="peft",
        tags=["grpo", "lora", "asynchronous", f"data-class:{evidence['custody']['class']}"],
        model_name=run_id,
        eval_results=_results(evidence, task),
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(_body(evidence)))


def _results(evidence: dict[str, Any], task: str) -> list[EvalResult] | None:
    trained = evidence["result"]["trained"]
    if not trained:
        return None
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type="heldout",
            dataset_name=f"{task} held-out questions",
            metric_type=key,
            metric_name=name,
            metric_value=round(trained[key]["mean"], 4),
        )
        for key, name in _MEASURES.items()
        if trained.get(key)
    ]


def _body(evidence: dict[str, Any]) -> list[str]:
    """Arabic first, then English; every sentence from the wording table."""
    lines = [f"# {evidence['run_id']['value']}", ""]
    for language in wording.LANGUAGES:
        side = "rtl" if language == "ar" else "ltr"
        lines += [f'<div dir="{side}" lang="{language}">', ""]
        if evidence["teaching"]:
            lines += [wording.plain("result_teaching", language), ""]
        for key in _MEASURES:
            before, after = ((evidence["result"][when] or {}).get(key) for when in ("base", "trained"))
            if before and after:
                shown = {
                    name: f"{one['mean']:.3f} ({one['low']:.3f}–{one['high']:.3f})"
                    for name, one in (("before", before), ("after", after))
                }
                lines.append("- " + wording.plain("card_measure", language, measure=_MEASURES[key], **shown))
        data_class = evidence["custody"]["class"]
        if data_class:
            lines.append("- " + wording.plain("card_class", language, data_class=data_class))
        lines += [
            "- " + wording.plain(key, language) for key in ("limit_result", "not_legal_advice", "unreviewed")
        ]
        lines += ["", "</div>", ""]
    return lines
