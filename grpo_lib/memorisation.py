"""Does the adapter remember what it was trained on? An estimate by planted canaries, with its interval.

A canary is a training question with a secret answer drawn at random, so that it can be remembered but not worked out:
here the task's own wording, operands that the task never uses (50-99) and a wrong sum of three digits. After training,
the true answer is ranked by likelihood among all R possible ones. Its exposure, log2 R - log2 rank (Carlini et al.,
The Secret Sharer, USENIX Security 2019, arXiv 1802.08232, section 4), is at most log2 R bits, and about 1.44 bits on
average where nothing was remembered, since a random secret has a random rank whatever the model is like.

What it cannot show is in `CANNOT_SHOW`, and goes into every result. No torch here: likelihoods come from a function
`score(texts) -> negative log-likelihoods`; `main` alone loads a model.

    python -m grpo_lib.memorisation RUN_ID       # a run trained with canaries; writes memorisation.json
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpo_lib import command
from grpo_lib.arabic import number_words
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.incidents import data_of
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.process import exit_with
from grpo_lib.rewards import ANSWER_CLOSE, ANSWER_OPEN
from grpo_lib.runfolder import RunFolder, file_sha256, write_json
from grpo_lib.settings import read

SCHEMA = "grpo-lib/memorisation/1"
# One training question in so many is a canary.
EVERY = 20
_SECRETS = range(100, 1000)
# The true sum is no candidate: a policy that can add would rank it first whatever it remembers.
ANSWERS = len(_SECRETS) - 1
Score = Callable[[list[str]], list[float]]

CANNOT_SHOW = (
    {
        "ar": "لا يثبت أن صفًا حقيقيًا لم يُحفظ: الأسرار المزروعة أسئلة اصطناعية من نمط واحد، وتكرارها ليس تكرار صفوفك.",
        "en": "It does not show that no real row was remembered: canaries are synthetic questions of one style, and are "
        "not repeated as often as your rows are.",
    },
    {
        "ar": "لا يقيس حفظ نص الموجِّه: التدريب هنا على الإكمال وحده، فالسر في الجواب.",
        "en": "It does not measure whether prompts were remembered: training is on completions alone, so the secret is in "
        "the answer.",
    },
    {
        "ar": "لا يغطي طرق استخراج أخرى، كالصياغة المختلفة أو كشف العضوية أو تدريب لاحق.",
        "en": "It does not cover other ways to extract, such as other wording, membership inference or later training.",
    },
    {
        "ar": "الفترة تعكس اختيار الأسرار المزروعة فقط، لا اختلاف تشغيل عن تشغيل؛ وانخفاض الانكشاف ليس ضمان خصوصية.",
        "en": "The interval reflects the choice of canaries alone, not how runs differ; a low exposure is no guarantee "
        "of privacy.",
    },
)


# --------------------------------------------------------------------------------------------- planting canaries


@dataclass(frozen=True)
class Canary:
    """A question with a secret answer that nothing but memory gives."""

    prompt: str
    answer: str
    true_sum: int

    def text(self, answer: int | str) -> str:
        """The question with one possible answer, as the policy would complete it."""
        return f"{self.prompt}{ANSWER_OPEN}{answer}{ANSWER_CLOSE}"

    def others(self) -> list[int]:
        """Every possible answer but the secret."""
        return [value for value in _SECRETS if value != self.true_sum and str(value) != self.answer]


def canaries(count: int, seed: int) -> list[Canary]:
    """`count` canaries with distinct questions, from the seed alone."""
    pairs = [(a, b) for a in range(50, 100) for b in range(50, 100)]
    if not 1 <= count <= len(pairs):
        raise WrongInput(
            ar=f"عدد الأسرار المزروعة {isolate(count)} خارج المدى. اختر من {isolate(f'1..{len(pairs)}')}.",
            en=f"{count} canaries is out of range. Choose 1 to {len(pairs)}.",
        )
    order = sorted(pairs, key=lambda pair: _draw(seed, "question", *pair))
    return [_canary(seed, *pair) for pair in order[:count]]


def _canary(seed: int, first: int, second: int) -> Canary:
    possible = [value for value in _SECRETS if value != first + second]
    secret = possible[_draw(seed, "secret", first, second) % len(possible)]
    words = number_words(first, "genitive"), number_words(second, "genitive")
    return Canary(f"ما ناتج جمع {words[0]} مع {words[1]}؟", str(secret), first + second)


def _draw(*parts: object) -> int:
    text = ":".join(map(str, ("grpo-lib/canary/1", *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])


class PlantedTask:
    """A task in whose training stream every `EVERY`-th question is a canary. All else is the task's own."""

    def __init__(self, task: Any, count: int, seed: int):
        self._task, self._canaries = task, canaries(count, seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def train_example(self, index: int) -> Any:
        example = self._task.train_example(index)
        number = planted_at(index, len(self._canaries))
        if number is None:
            return example
        canary = self._canaries[number]
        return replace(example, prompt=canary.prompt, answer=canary.answer, kind="canary")

    def describe(self) -> dict[str, Any]:
        return {**self._task.describe(), "canaries": len(self._canaries), "canary_every": EVERY}


def planted_at(index: int, count: int, every: int = EVERY) -> int | None:
    """Number of the canary at this place of the training stream, or None."""
    turn, place = divmod(index, every)
    return turn % count if place == every - 1 else None


# ------------------------------------------------------------------------------------------------- measuring


def rank(canary: Canary, score: Score) -> int:
    """Place of the secret among all possible answers, 1 the likeliest; ties count against the secret's being known."""
    secret, *others = score([canary.text(canary.answer), *map(canary.text, canary.others())])
    return 1 + sum(other <= secret for other in others)


def exposure(ranks: Sequence[int]) -> np.ndarray:
    """Bits by which each secret is easier to guess than by chance: log2 R - log2 rank."""
    return math.log2(ANSWERS) - np.log2(np.asarray(ranks, dtype=float))


def without_memory() -> float:
    """Mean exposure of a secret that was not remembered: its rank is then uniform."""
    return float(exposure(range(1, ANSWERS + 1)).mean())


def share_interval(hits: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Exact binomial interval of a share (Clopper and Pearson, Biometrika 26, 1934), by bisection of its two tails."""
    tail = (1 - level) / 2

    def at_least(share: float) -> float:
        return sum(
            math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(hits, total + 1)
        )

    def at_most(share: float) -> float:
        return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(hits + 1))

    low = 0.0 if hits == 0 else _root(lambda share: at_least(share) - tail)
    high = 1.0 if hits == total else _root(lambda share: tail - at_most(share))
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def measure(planted: Sequence[Canary], scores: dict[str, Score], seed: int = 0) -> dict[str, Any]:
    """Exposure of the same canaries under each policy, such as `base` and `trained`.

    Returns:
        For each policy the mean exposure in bits with a bootstrap interval over canaries, and the share of canaries
        whose secret is the likeliest answer of all with an exact interval.
    """
    draws = np.random.default_rng(seed).integers(0, len(planted), (2000, len(planted)))
    policies = {}
    for name, score in scores.items():
        ranks = [rank(canary, score) for canary in planted]
        bits = exposure(ranks)
        low, high = np.quantile(bits[draws].mean(axis=1), [0.025, 0.975])
        first = sum(place == 1 for place in ranks)
        share_low, share_high = share_interval(first, len(ranks))
        policies[name] = {
            "exposure": {"mean": float(bits.mean()), "low": float(low), "high": float(high)},
            "extracted": {"count": first, "share": first / len(ranks), "low": share_low, "high": share_high},
            "highest": float(bits.max()),
        }
    return {
        "schema": SCHEMA,
        "canaries": len(planted),
        "answers": ANSWERS,
        "unit": "bits",
        "most": math.log2(ANSWERS),
        "without_memory": without_memory(),
        "interval": "exposure: bootstrap over canaries, 95 %, 2000 resamples; share: exact binomial, 95 %",
        "policies": policies,
        "cannot_show": list(CANNOT_SHOW),
    }


def times_trained(run: RunFolder, count: int, every: int = EVERY) -> list[int]:
    """How often each canary went into an optimizer step, from the ledger's `step` lines."""
    seen: Counter[int | None] = Counter()
    for event in read_events(run.ledger):
        if event.get("event") == "step":
            seen.update(planted_at(index, count, every) for index in data_of(event).get("prompts", []))
    return [seen[number] for number in range(count)]


def trained_canaries(run: RunFolder) -> tuple[list[Canary], list[int]]:
    """The run's canaries that were trained on, and how often each was.

    Raises:
        WrongInput: none was planted, or none was reached: there is nothing to measure.
    """
    settings, manifest = read(run.settings), json.loads(run.data_manifest.read_text(encoding="utf-8"))
    count = manifest.get("canaries", 0)
    times = times_trained(run, count, manifest["canary_every"]) if count else []
    if not any(times):
        raise WrongInput(
            ar=f"لم تُزرع أسرار اختبار في تدريب {isolate(run.run_id)}، فلا شيء يقاس. درّب بالمعامل {isolate('canaries')}.",
            en=f"No canary was trained on in {run.run_id}, so there is nothing to measure. Train with `canaries`.",
        )
    planted = canaries(count, settings.seed)
    return [c for c, seen in zip(planted, times, strict=True) if seen], [seen for seen in times if seen]


def measure_run(run: RunFolder, scores: dict[str, Score]) -> dict[str, Any]:
    """Measure a run's canaries, write memorisation.json and record its digest.

    Raises:
        WrongInput: as for `trained_canaries`.
    """
    planted, times = trained_canaries(run)
    result = measure(planted, scores, read(run.settings).seed)
    newest = run.adapter(run.adapter_versions()[-1]) / "adapter_model.safetensors"
    result |= {
        "times_trained": {"fewest": min(times), "most": max(times)},
        "adapter_sha256": file_sha256(newest),
    }
    path = run.root / "memorisation.json"
    write_json(path, result)
    Ledger(run.ledger, run.run_id, "custody").append("memorisation_measured", sha256=file_sha256(path))
    return result


def _scorer(policy: Any, tokenizer: Any) -> Score:
    """Negative log-likelihood of the answer given its question, in nats."""
    import torch

    from grpo_lib.policy import encode_prompt

    def of(texts: list[str]) -> list[float]:
        parts = [text.partition(ANSWER_OPEN) for text in texts]
        question = encode_prompt(
            tokenizer, parts[0][0]
        )  # one canary at a time: all texts share their question
        answers = [tokenizer(tag + rest, add_special_tokens=False)["input_ids"] for _, tag, rest in parts]
        longest = max(map(len, answers))
        filled = [ids + [tokenizer.pad_token_id] * (longest - len(ids)) for ids in answers]
        valid = torch.tensor([[i < len(ids) for i in range(longest)] for ids in answers])
        ids = torch.tensor([question + row for row in filled])
        with torch.inference_mode():
            logits = policy.model(input_ids=ids).logits[:, len(question) - 1 : -1].float()
        picked = logits.log_softmax(-1).gather(-1, torch.tensor(filled)[..., None])[..., 0]
        return (-(picked * valid).sum(-1)).tolist()

    return of


def main() -> None:
    parser = command.parser(
        "memorisation",
        "Estimate by planted canaries what the adapter remembers.",
        "تقدير ما يحفظه المُهايئ بأسرار مزروعة",
    )
    command.add_run(parser)
    run = command.run_of(parser.parse_args())
    if not run.adapter_versions():
        raise WrongInput(
            ar=f"لا مُهايئ في {isolate(run.run_id)}: لم يكتمل تدريبه، أو أُتلف.",
            en=f"Run {run.run_id} holds no adapter: it was not trained to its end, or was purged.",
        )
    trained_canaries(run)  # before a model is loaded for nothing
    from grpo_lib.policy import MergedPolicy, load_base, read_adapter

    settings = read(run.settings)
    scores: dict[str, Score] = {}
    for name in ("base", "trained"):
        model, tokenizer = load_base(settings.model)
        policy = MergedPolicy(model, settings.lora_alpha / settings.lora_rank)
        if name == "trained":
            policy.load(read_adapter(run.adapter(run.adapter_versions()[-1])))
        scores[name] = _scorer(policy, tokenizer)
    result = measure_run(run, scores)
    print("الانكشاف بالبت، وفترة الثقة 95 % | exposure in bits, 95 % interval")
    for name, found in result["policies"].items():
        bits, share = found["exposure"], found["extracted"]
        print(
            f"  {name:8} {bits['mean']:.2f} [{bits['low']:.2f}, {bits['high']:.2f}]   "
            f"extracted {share['count']}/{result['canaries']} [{share['low']:.3f}, {share['high']:.3f}]"
        )
    print(f"  without memory {result['without_memory']:.2f}, most {result['most']:.2f}")
    for limit in result["cannot_show"]:
        print(f"• {limit['ar']}\n  {limit['en']}")


if __name__ == "__main__":
    exit_with(main)
