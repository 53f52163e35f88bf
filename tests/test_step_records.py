"""Step records: what was trained on comes back in order, through crashes and resumes, and matches the ledger."""

from __future__ import annotations

import time

import numpy as np
import pytest

from grpo_lib import step_records
from grpo_lib.errors import WrongInput
from grpo_lib.ledger import Ledger
from grpo_lib.rollouts import Header, RolloutBatch, Span
from grpo_lib.runfolder import RunFolder
from grpo_lib.step_records import Reader, Sealer, check, numbers
from grpo_lib.vault import RunKey

KEY = RunKey("run-1", bytes(range(32)))


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run-1")


def batch(seed: int, groups: int = 2, size: int = 4, tokens: int = 30) -> bytes:
    """A rollout batch as a worker sends it."""
    random = np.random.default_rng(seed)
    samples = groups * size
    mask = np.tile(np.repeat(np.array([0, 1], np.uint8), [tokens // 3, tokens - tokens // 3]), samples)
    return RolloutBatch(
        header=Header(
            "w", seed, seed, 1, "p", "b", tuple(range(groups)), ("correct",), (Span("generate", 0.0, 1.0),)
        ),
        input_ids=random.integers(0, 500, samples * tokens, dtype=np.int32),
        completion_mask=mask,
        old_log_probs=-random.random(samples * tokens, dtype=np.float32) * mask,
        lengths=np.full(samples, tokens, np.int32),
        rewards=random.random((samples, 1), dtype=np.float32),
        advantages=random.random(samples, dtype=np.float32),
    ).to_bytes()


def trained(run: RunFolder, sealer: Sealer, ledger: Ledger, step: int, groups) -> None:
    """What the learner does at the end of a step."""
    ledger.append("step", step=step, rollouts=sealer.step(step, groups))


def ledger_of(run: RunFolder) -> Ledger:
    return Ledger(run.ledger, "run-1", "learner")


def test_every_step_comes_back_byte_for_byte_in_the_order_of_training(run):
    batches = [batch(seed) for seed in range(6)]
    # Steps of three groups over batches of two: a batch serves two steps, and the order is not that of the batches.
    order = [(batches[n // 2], n % 2) for n in (0, 1, 2, 4, 3, 5, 6, 8, 7, 11, 10, 9)]
    steps = [order[first : first + 3] for first in range(0, 12, 3)]
    sealer, ledger = Sealer(run, KEY), ledger_of(run)
    for step, groups in enumerate(steps, start=1):
        trained(run, sealer, ledger, step, groups)
    reader = Reader(run, KEY)
    assert [list(reader.read(number).groups) for number in range(4)] == steps
    assert [reader.read(number).step for number in range(4)] == [1, 2, 3, 4]
    assert reader.replay_order() == [0, 1, 2, 3] and check(run, KEY) == []
    again = RolloutBatch.from_bytes(Reader(run, KEY).read(2).groups[0][0])
    assert again.to_bytes() == batches[3]


def test_a_batch_that_serves_many_steps_is_stored_once(run):
    payload = batch(0, groups=5)
    sealer = Sealer(run, KEY)
    for step in range(1, 6):
        sealer.step(step, [(payload, step - 1)])
    sizes = [(run.rollouts / f"{number:06d}.sealed").stat().st_size for number in range(5)]
    assert sizes[0] > len(payload) and max(sizes[1:]) < 600
    # Each of them opens alone and in any order.
    assert [Reader(run, KEY).read(number).groups for number in (4, 0, 3)] == [
        ((payload, n),) for n in (4, 0, 3)
    ]


def test_after_a_resume_repeated_steps_are_kept_apart_and_the_line_to_the_end_is_told(run):
    ledger = ledger_of(run)
    first = Sealer(run, KEY)
    for step in range(1, 6):  # checkpoint after step 3, killed after step 5
        trained(run, first, ledger, step, [(batch(step), 0)])
    second = Sealer(run, KEY)
    for step in range(4, 8):
        trained(run, second, ledger, step, [(batch(100 + step), 0)])
    assert (first.session, second.session) == (0, 5)
    reader = Reader(run, KEY)
    records = [reader.read(number) for number in numbers(run)]
    assert [(record.session, record.step) for record in records] == [
        (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (5, 4), (5, 5), (5, 6), (5, 7),
    ]  # fmt: skip
    assert reader.replay_order() == [0, 1, 2, 5, 6, 7, 8]
    assert check(run, KEY) == []
    third = Sealer(run, KEY)  # an older checkpoint had to be taken
    trained(run, third, ledger, 2, [(batch(200), 0)])
    assert Reader(run, KEY).replay_order() == [0, 9]


def test_a_batch_of_the_session_before_is_not_pointed_at(run):
    payload = batch(1)
    Sealer(run, KEY).step(1, [(payload, 0)])
    Sealer(run, KEY).step(1, [(payload, 1)])
    (run.rollouts / "000000.sealed").unlink()
    assert Reader(run, KEY).read(1).groups == ((payload, 1),)


def test_a_crash_between_record_and_ledger_line_is_no_fault_and_the_number_is_not_used_again(run):
    ledger, sealer = ledger_of(run), Sealer(run, KEY)
    trained(run, sealer, ledger, 1, [(batch(1), 0)])
    sealer.step(2, [(batch(2), 0)])  # killed here
    assert check(run, KEY) == []
    resumed = Sealer(run, KEY)
    assert resumed.next == 2
    trained(run, resumed, ledger, 1, [(batch(3), 0)])
    assert check(run, KEY) == [] and Reader(run, KEY).replay_order() == [2]


def test_a_crash_while_writing_leaves_no_half_record(run, monkeypatch):
    sealer = Sealer(run, KEY)
    sealer.step(1, [(batch(1), 0)])

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        sealer.step(2, [(batch(2), 0)])
    assert numbers(run) == [0] and [path.name for path in run.rollouts.iterdir()] == ["000000.sealed"]


@pytest.fixture
def recorded(run):
    """Five steps of one batch each."""
    sealer, ledger = Sealer(run, KEY), ledger_of(run)
    for step in range(1, 6):
        trained(run, sealer, ledger, step, [(batch(step), 0), (batch(step), 1)])
    assert check(run, KEY) == []
    return run


def english(faults) -> str:
    assert all(any("\u0600" <= char <= "\u06ff" for char in ar) for ar, _ in faults)
    return " ".join(en for _, en in faults)


def test_a_missing_record_is_found_and_its_number_is_not_given_out_again(recorded):
    (recorded.rollouts / "000004.sealed").unlink()
    assert "000004.sealed is in the ledger, not in the folder" in english(check(recorded, KEY))
    assert Sealer(recorded, KEY).next == 5


def test_swapped_records_are_found(recorded):
    one, two = recorded.rollouts / "000001.sealed", recorded.rollouts / "000002.sealed"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second), two.write_bytes(first)
    found = english(check(recorded, KEY))
    assert "000001.sealed stands in another's place: sealed as 2" in found and "sealed as 1" in found


def test_a_record_written_again_with_the_right_key_is_found(recorded):
    """Whoever holds the run key can seal anything; the keyed digest in the ledger is what it must match."""
    forger = Sealer(recorded, KEY)
    forger.next = 2
    forger.step(3, [(batch(99), 0)])
    assert "000002.sealed is not the one in the ledger" in english(check(recorded, KEY))


def test_an_added_record_in_the_middle_of_a_session_is_found(recorded):
    lines = recorded.ledger.read_bytes().splitlines(keepends=True)
    recorded.ledger.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert "000002.sealed is not in the ledger" in english(check(recorded, KEY))


def test_another_key_opens_nothing(recorded):
    found = check(recorded, RunKey("run-1", bytes(32)))
    assert len(found) == 5 and "another key" in english(found)
    with pytest.raises(WrongInput):
        Reader(recorded, RunKey("run-1", bytes(32))).replay_order()


def test_files_of_other_names_are_let_be(recorded):
    for name in ("notes.sealed", "٣.sealed", "-1.sealed", ".000009.sealed.tmp"):
        (recorded.rollouts / name).write_bytes(b"")
    assert numbers(recorded) == [0, 1, 2, 3, 4]


def test_nothing_of_a_batch_can_be_read_in_files_or_ledger(recorded):
    ids = RolloutBatch.from_bytes(batch(1)).input_ids.tobytes()
    for path in [*recorded.rollouts.iterdir(), recorded.ledger]:
        raw = path.read_bytes()
        assert ids[:40] not in raw and b"input_ids" not in raw and b"safetensors" not in raw


def test_the_summary_covers_the_session_and_depends_on_every_record(run):
    sealer = Sealer(run, KEY)
    assert sealer.summary()["count"] == 0
    seen = set()
    for step in range(1, 4):
        sealer.step(step, [(batch(step), 0)])
        seen.add(sealer.summary()["hmac"])
    assert len(seen) == 3 and sealer.summary()["count"] == 3 and sealer.summary()["first"] == 0
    assert sealer.summary()["seconds"] > 0
    assert Sealer(run, KEY).summary() | {"seconds": 0} == {
        "first": 3,
        "count": 0,
        "hmac": KEY.digest(b""),
        "seconds": 0,
    }


def test_the_command_tells_good_from_bad_by_its_exit_code(recorded, monkeypatch, capsys):
    monkeypatch.setattr(step_records, "load_key", lambda run_id: KEY)
    monkeypatch.setattr("sys.argv", ["x", "run-1", "--runs-dir", str(recorded.root.parent)])
    with pytest.raises(SystemExit) as ended:
        step_records.main()
    assert ended.value.code == 0 and "faults: 0" in capsys.readouterr().out
    (recorded.rollouts / "000000.sealed").unlink()
    with pytest.raises(SystemExit) as ended:
        step_records.main()
    assert ended.value.code == 1 and "000000.sealed" in capsys.readouterr().out


def test_sealing_a_step_of_the_default_run_costs_next_to_nothing(run):
    """A step of the default run (16 groups of 8) takes about half a second; sealing must stay far below 1 % of that.

    The quickest of 20: other work on the machine makes any one of them slow, and none of them quick.
    """
    sealer, costs, begun = Sealer(run, KEY), [], time.perf_counter()
    for step in range(1, 21):
        payload, before = batch(step, groups=16, size=8, tokens=45), sealer.seconds
        sealer.step(step, [(payload, place) for place in range(16)])
        costs.append(sealer.seconds - before)
    assert 0 < sealer.seconds <= time.perf_counter() - begun
    assert min(costs) < 0.01  # a step takes about 0.4 s; a flush to a busy disk, some milliseconds
