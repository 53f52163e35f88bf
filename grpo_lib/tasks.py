"""Tasks: endless training questions, a fixed held-out set, and the rewards that check the answers. No torch.

A task is pure: question `index` of seed `seed` is the same on every machine and in every process, so workers
need no data file and a resumed run continues where it stopped. All text is generated; no person is in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from grpo_lib.arabic import number_words
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.rewards import RewardFunction, correct, format

MAX_OPERAND = 49
Pair = tuple[int, int]

# Changing the key or the share moves questions across the split, so the shipped base model would have to be
# rebuilt: `tests/test_teaching_model.py` compares the two.
_SPLIT_KEY = b"grpo-lib/arithmetic/split/1"
_HELDOUT_ONE_IN = 5


@dataclass(frozen=True)
class Example:
    """One question with its answer."""

    index: int
    """Position in the stream of training questions, or in the held-out list."""
    prompt: str
    answer: str
    """ASCII decimal digits."""
    kind: str
    """What is asked, for accuracy by kind: "addition" or "subtraction"."""


class Task(Protocol):
    """What a run needs from a task."""

    name: str
    data_class: str
    personal_data: str
    heldout_size: int
    reward_functions: tuple[RewardFunction, ...]
    reward_weights: tuple[float, ...]

    def train_example(self, index: int) -> Example: ...

    def heldout(self, n: int, seed: int = 0) -> list[Example]: ...

    def describe(self) -> dict: ...


# ------------------------------------------------------------------------------------------------------------
# Arithmetic in Arabic words


@dataclass(frozen=True)
class Question:
    """Two operands in the order in which they are asked; a subtraction takes `second` from `first`."""

    first: int
    second: int
    kind: str

    @property
    def pair(self) -> Pair:
        """The unordered operands: the unit of the held-out split."""
        return min(self.first, self.second), max(self.first, self.second)

    @property
    def result(self) -> int:
        return self.first + self.second if self.kind == "addition" else self.first - self.second

    @property
    def prompt(self) -> str:
        # "مع" and not "و" joins the addends: «ثلاثة وعشرين وسبعة» could be read as three addends. Both
        # operands stand in the genitive.
        first, second = number_words(self.first, "genitive"), number_words(self.second, "genitive")
        if self.kind == "addition":
            return f"ما ناتج جمع {first} مع {second}؟"
        return f"ما ناتج طرح {second} من {first}؟"


def is_heldout(first: int, second: int) -> bool:
    """Whether this unordered pair is held out: a keyed hash keeps about one pair in five, whatever the seed.

    Unordered, because whoever has learnt ٧+٢٣ knows ٢٣+٧ (and has the parts of ٢٣-٧).
    """
    low, high = sorted((first, second))
    digest = hashlib.blake2b(f"{low},{high}".encode(), key=_SPLIT_KEY, digest_size=8).digest()
    return int.from_bytes(digest) % _HELDOUT_ONE_IN == 0


def questions(pair: Pair) -> list[Question]:
    """Every question about one unordered pair: the sum in both orders, the difference of high and low."""
    low, high = pair
    sums = [Question(low, high, "addition"), Question(high, low, "addition")]
    return sums[: 1 if low == high else 2] + [Question(high, low, "subtraction")]


ALL_PAIRS: tuple[Pair, ...] = tuple((a, b) for a in range(MAX_OPERAND + 1) for b in range(a, MAX_OPERAND + 1))
HELDOUT_PAIRS: tuple[Pair, ...] = tuple(pair for pair in ALL_PAIRS if is_heldout(*pair))
TRAIN_PAIRS: tuple[Pair, ...] = tuple(pair for pair in ALL_PAIRS if not is_heldout(*pair))


def _draw(*parts: object) -> int:
    """A 128-bit number from `parts` alone; `random.Random` may draw differently in a later Python."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:16])


def train_question(seed: int, index: int) -> Question:
    """The question at `index` (≥ 0) of the training stream `seed`: a training pair, then one of its forms."""
    draw, which = divmod(_draw("arithmetic/train", seed, index), 4)
    pair = TRAIN_PAIRS[draw % len(TRAIN_PAIRS)]
    # Half additions, in either order, and half subtractions.
    high_first = (pair[1], pair[0])
    if which >= 2:
        return Question(*high_first, "subtraction")
    return Question(*(high_first if which else pair), "addition")


class ArithmeticTask:
    """Sums and differences of 0-49, asked in Arabic words, answered in digits."""

    name = "arithmetic"
    data_class = "synthetic"
    personal_data = "none"
    reward_functions: tuple[RewardFunction, ...] = (correct, format)
    reward_weights: tuple[float, ...] = (1.0, 0.2)

    def __init__(self, seed: int = 0):
        self.seed = seed
        self._heldout = [question for pair in HELDOUT_PAIRS for question in questions(pair)]
        self.heldout_size = len(self._heldout)

    def train_example(self, index: int) -> Example:
        return _example(train_question(self.seed, index), index)

    def heldout(self, n: int, seed: int = 0) -> list[Example]:
        """`n` distinct held-out questions; `seed` chooses which and their order, the run's seed does not."""
        if not 0 <= n <= self.heldout_size:
            raise WrongInput(
                ar=f"طُلب {isolate(n)} سؤالًا من المجموعة المحجوزة، وفيها {isolate(self.heldout_size)} فقط.",
                en=f"{n} held-out questions were asked for; the task has {self.heldout_size}.",
            )
        order = sorted(
            range(self.heldout_size), key=lambda position: _draw("arithmetic/heldout", seed, position)
        )
        return [_example(self._heldout[position], position) for position in order[:n]]

    def describe(self) -> dict:
        """What the data manifest says about the data: how it is made and its digest, no question of it."""
        heldout = [(question.prompt, str(question.result)) for question in self._heldout]
        training = [(q.prompt, str(q.result)) for pair in TRAIN_PAIRS for q in questions(pair)]
        canonical = json.dumps([training, heldout], ensure_ascii=False, separators=(",", ":"))
        return {
            "task": self.name,
            "class": self.data_class,
            "personal_data": self.personal_data,
            "language": "ar",
            "generator": "grpo_lib.tasks.ArithmeticTask",
            "seed": self.seed,
            "training_questions": len(training),
            "heldout_questions": len(heldout),
            "split": f"by unordered operand pair, keyed BLAKE2b, one pair in {_HELDOUT_ONE_IN} held out",
            "reward_functions": [function.__name__ for function in self.reward_functions],
            "reward_weights": list(self.reward_weights),
            "sha256": hashlib.sha256(canonical.encode()).hexdigest(),
        }


def _example(question: Question, index: int) -> Example:
    return Example(index=index, prompt=question.prompt, answer=str(question.result), kind=question.kind)


TASKS: dict[str, Callable[[int], Task]] = {ArithmeticTask.name: ArithmeticTask}


def load_task(name: str, seed: int, canaries: int = 0) -> Task:
    """The task called `name`, its training stream chosen by `seed`, with so many planted secrets among it."""
    if name not in TASKS:
        known = ", ".join(sorted(TASKS))
        raise WrongInput(
            ar=f"لا توجد مهمة باسم {isolate(name)}. المهام المعروفة: {isolate(known)}.",
            en=f"There is no task named {name}. Known tasks: {known}.",
        )
    task = TASKS[name](seed)
    if not canaries:
        return task
    from grpo_lib.memorisation import PlantedTask  # it imports settings, which imports this module

    return PlantedTask(task, canaries, seed)
