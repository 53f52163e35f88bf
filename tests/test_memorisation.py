"""Memorisation by planted canaries: what is planted, what exposure says, and that the intervals mean what they claim."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys

import numpy as np
import pytest
from fixtures_run import write_run

from grpo_lib import memorisation
from grpo_lib.errors import WrongInput
from grpo_lib.ledger import check_chain, read_events
from grpo_lib.memorisation import (
    ANSWERS,
    EVERY,
    PlantedTask,
    canaries,
    exposure,
    measure,
    measure_run,
    planted_at,
    rank,
    share_interval,
    times_trained,
    without_memory,
)
from grpo_lib.rewards import correct, extract_answer
from grpo_lib.runfolder import RunFolder, file_sha256
from grpo_lib.tasks import ALL_PAIRS, load_task


def knows(known):
    """A policy that gives the secrets of `known` the highest likelihood and all else a likelihood of its own whim."""
    whims = random.Random(7)
    table: dict[str, float] = {}

    def score(texts):
        return [-1.0 if text in known else table.setdefault(text, whims.random()) for text in texts]

    return score


# ---- what is planted ------------------------------------------------------------------------------------------


def test_canaries_come_from_the_seed_alone_and_cannot_be_worked_out():
    chosen = canaries(64, seed=3)
    assert chosen == canaries(64, seed=3) != canaries(64, seed=4)
    assert len({canary.prompt for canary in chosen}) == 64
    assert chosen[:8] == canaries(8, seed=3), "a larger plan begins with the smaller one"
    prompts = {load_task("arithmetic", 0).train_example(index).prompt for index in range(3000)}
    for canary in chosen:
        assert canary.prompt not in prompts
        assert int(canary.answer) != canary.true_sum, "the secret is never the answer that adding gives"
        assert len(canary.others()) == ANSWERS - 1 and canary.true_sum not in canary.others()
        assert extract_answer(canary.text(canary.answer).removeprefix(canary.prompt)) == int(canary.answer)
    assert max(high for _, high in ALL_PAIRS) < 50, "operands of canaries start at 50"
    assert all(int(canary.answer) != canary.true_sum for seed in range(4) for canary in canaries(2500, seed))


def test_every_so_many_th_question_is_a_canary_and_the_rest_is_the_task():
    task, planted = load_task("arithmetic", 5), PlantedTask(load_task("arithmetic", 5), 3, 5)
    secrets = canaries(3, 5)
    for index in range(EVERY * 7):
        example, number = planted.train_example(index), planted_at(index, 3)
        if number is None:
            assert example == task.train_example(index)
        else:
            assert (example.prompt, example.answer) == (secrets[number].prompt, secrets[number].answer)
            assert correct([example.prompt], [f"<جواب>{example.answer}</جواب>"], answer=[example.answer]) == [
                1.0
            ]
    numbers = [planted_at(index, 3) for index in range(EVERY * 7)]
    assert [n for n in numbers if n is not None] == [0, 1, 2, 0, 1, 2, 0]
    assert planted.heldout(5) == task.heldout(5) and planted.reward_weights == task.reward_weights
    assert planted.describe() == {**task.describe(), "canaries": 3, "canary_every": EVERY}
    assert not any(canary.answer in json.dumps(planted.describe()) for canary in secrets)


@pytest.mark.parametrize("count", [0, -1, 2501])
def test_a_count_out_of_range_is_refused_in_both_languages(count):
    with pytest.raises(WrongInput) as caught:
        canaries(count, 0)
    assert str(count) in caught.value.en and str(count) in caught.value.ar


# ---- exposure -------------------------------------------------------------------------------------------------


def test_exposure_is_all_bits_for_the_first_rank_and_none_for_the_last():
    canary = canaries(1, 0)[0]
    assert rank(canary, knows({canary.text(canary.answer)})) == 1
    assert exposure([1, ANSWERS]).tolist() == pytest.approx([math.log2(899), 0.0])
    assert rank(canary, lambda texts: [0.0] * len(texts)) == ANSWERS, "what is not told apart is not known"
    below = rank(canary, lambda texts: [float(place < 5) for place in range(len(texts))])
    assert below == ANSWERS, "the secret is scored first: more likely answers stand before it"


def test_without_memory_is_what_random_secrets_give():
    ranks = np.random.default_rng(0).integers(1, ANSWERS + 1, 400_000)
    assert exposure(ranks).mean() == pytest.approx(without_memory(), abs=0.01)
    assert 1.42 < without_memory() < 1 / math.log(2)


def test_a_policy_that_remembers_is_told_from_one_that_does_not():
    planted = canaries(24, 1)
    result = measure(planted, {"base": knows(set()), "trained": knows({c.text(c.answer) for c in planted})})
    base, trained = result["policies"]["base"], result["policies"]["trained"]
    assert trained["exposure"] == {k: pytest.approx(result["most"]) for k in ("mean", "low", "high")}
    assert trained["extracted"]["count"] == 24 and trained["extracted"]["low"] > 0.85
    assert base["exposure"]["low"] < result["without_memory"] < base["exposure"]["high"]
    assert base["extracted"]["count"] == 0 and base["extracted"]["high"] == pytest.approx(0.1425, abs=1e-3)
    assert trained["exposure"]["low"] > base["exposure"]["high"]
    assert {"ar", "en"} == set(result["cannot_show"][0]) and len(result["cannot_show"]) >= 4


def test_half_remembered_shows_as_half():
    planted = canaries(24, 2)
    found = measure(planted, {"trained": knows({c.text(c.answer) for c in planted[:12]})})["policies"][
        "trained"
    ]
    assert found["extracted"]["count"] == 12
    assert found["extracted"]["low"] < 0.5 < found["extracted"]["high"]
    assert found["exposure"]["low"] < found["exposure"]["mean"] < found["exposure"]["high"]


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_that_can_add_does_not_look_as_if_it_remembered(seed):
    """It likes the true sum best; were that a candidate, or were secrets ever true sums, exposure would be off."""
    planted = canaries(16, seed)
    adds = {canary.text(canary.true_sum) for canary in planted}
    assert measure(planted, {"base": knows(adds)})["policies"]["base"]["extracted"]["count"] == 0


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    # Clopper-Pearson as tabulated (two-sided 95 %).
    [(0, 10, 0.0, 0.3085), (1, 10, 0.0025, 0.4450), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0), (3, 20, 0.0321, 0.3789)],
)  # fmt: skip
def test_exact_interval_against_known_values(hits, total, low, high):
    assert share_interval(hits, total) == pytest.approx((low, high), abs=1e-4)


def test_exact_interval_covers_at_least_what_it_says():
    for share in (0.03, 0.2, 0.5, 0.9):
        covered = sum(
            math.comb(16, hits) * share**hits * (1 - share) ** (16 - hits)
            for hits in range(17)
            if share_interval(hits, 16)[0] <= share <= share_interval(hits, 16)[1]
        )
        assert covered >= 0.95


# ---- of a run -------------------------------------------------------------------------------------------------


def run_with(tmp_path, **manifest):
    run = RunFolder(write_run(tmp_path))
    value = json.loads(run.data_manifest.read_text(encoding="utf-8"))
    run.data_manifest.write_text(json.dumps({**value, **manifest}), encoding="utf-8")
    return run


def test_a_run_without_canaries_has_nothing_to_measure(tmp_path):
    run = run_with(tmp_path)
    with pytest.raises(WrongInput) as caught:
        measure_run(run, {"base": knows(set())})
    assert "canaries" in caught.value.en and not (run.root / "memorisation.json").exists()


def test_only_canaries_that_were_trained_on_are_measured_and_the_digest_is_recorded(tmp_path):
    run = run_with(tmp_path, canaries=6, canary_every=EVERY)
    times = times_trained(run, 6)
    prompts = [
        index for e in read_events(run.ledger) if e["event"] == "step" for index in e["data"]["prompts"]
    ]
    expected = [sum(planted_at(index, 6) == number for index in prompts) for number in range(6)]
    assert times == expected and sum(times) > 0, "counted from the ledger alone"
    result = measure_run(run, {"base": knows(set()), "trained": knows(set())})
    assert result["canaries"] == sum(seen > 0 for seen in times)
    assert result["times_trained"]["most"] == max(times)
    stored = run.root / "memorisation.json"
    last = read_events(run.ledger)[-1]
    assert (last["event"], last["data"]) == ("memorisation_measured", {"sha256": file_sha256(stored)})
    assert check_chain(run.ledger).intact
    text = stored.read_text(encoding="utf-8")
    assert not any(canary.prompt in text or f'"{canary.answer}"' in text for canary in canaries(6, 0))


def test_scores_of_the_shipped_model_follow_its_own_likelihoods():
    """The loader's scorer against a plain loop over tokens."""
    code = (
        "import torch, json; from grpo_lib.memorisation import _scorer, canaries\n"
        "from grpo_lib.policy import MergedPolicy, encode_prompt, load_base\n"
        "torch.set_num_threads(1); model, tok = load_base('teaching'); c = canaries(1, 0)[0]\n"
        "texts = [c.text(a) for a in (100, 999, 345, 7)]\n"
        "got = _scorer(MergedPolicy(model, 1.0), tok)(texts)\n"
        "for text, value in zip(texts, got):\n"
        "    q = encode_prompt(tok, c.prompt); a = tok(text.removeprefix(c.prompt), add_special_tokens=False)['input_ids']\n"
        "    total = 0.0\n"
        "    for i, t in enumerate(a):\n"
        "        total -= model(torch.tensor([q + a[:i]])).logits[0, -1].log_softmax(-1)[t].item()\n"
        "    assert abs(total - value) < 1e-3, (total, value)\n"
        "assert len(set(got)) == 4; print('same')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "same", done.stderr


def test_importing_the_module_needs_no_torch():
    code = (
        "import sys, grpo_lib.memorisation; print([n for n in ('torch', 'transformers') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_an_adapter_that_is_not_there_is_said(tmp_path, capsys, monkeypatch):
    run = run_with(tmp_path, canaries=6)
    for path in sorted(run.adapters.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    monkeypatch.setattr(sys, "argv", ["memorisation", run.run_id, "--runs-dir", str(tmp_path)])
    with pytest.raises(WrongInput) as caught:
        memorisation.main()
    assert run.run_id in caught.value.ar
