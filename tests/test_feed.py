"""The feed between workers and trainer, over an endpoint that lives in memory."""

from __future__ import annotations

import json
import queue
import random
import time

import numpy as np
import pytest

from grpo_lib.errors import Interrupted, StoppedByHealth
from grpo_lib.feed import RolloutFeed
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.rollouts import Header, RolloutBatch, Span
from grpo_lib.settings import load
from grpo_lib.transport import Arrived, Dropped, Joined, Left, Lost, OpenedGroup, Refused

BASE = "b" * 64
GROUP = 2  # completions per prompt
STEP = 4  # groups per optimizer step
VOCABULARY = 100


def policy(version: int) -> str:
    return f"{version:064x}"


class MemoryEndpoint:
    """A learner's end without a transport: events are put in, leases are read out."""

    def __init__(self):
        self.opened_groups: tuple[OpenedGroup, ...] = ()
        self.granted: list[tuple[str, dict]] = []
        self.deaf: set[str] = set()  # sessions that just broke: `grant` says so
        self.finished = False
        self.turns = 0
        self._events: queue.Queue = queue.Queue()
        self._joined: list[str] = []

    def put(self, event) -> None:
        self._events.put(event)

    def join(self, worker_id: str, slot: int = 0) -> None:
        self.opened_groups += (OpenedGroup(slot, "gloo", ("learner", worker_id), "loopback"),)
        self.put(Joined(worker_id, slot, {"base_sha256": BASE}))

    def settle(self) -> None:
        """Return once the feed has handled every event and granted what it would."""
        deadline = time.monotonic() + 10
        while not self._events.empty() and time.monotonic() < deadline:
            time.sleep(0.001)
        turns = self.turns
        while self.turns < turns + 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert time.monotonic() < deadline, "the pump stands still"

    def leases(self, worker_id: str) -> list[dict]:
        return [lease for worker, lease in self.granted if worker == worker_id]

    # ---- what the feed calls

    def receive(self, timeout: float):
        self.turns += 1
        try:
            event = self._events.get(timeout=min(timeout, 0.002))
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Joined):
            self._joined.append(event.worker_id)
        if isinstance(event, Lost | Left):
            self._joined.remove(event.worker_id)
        return event

    def grant(self, worker_id: str, payload: bytes) -> bool:
        if worker_id in self.deaf:
            return False
        self.granted.append((worker_id, json.loads(payload)))
        return True

    def workers(self) -> tuple[str, ...]:
        return tuple(self._joined)

    def finish(self) -> None:
        self.finished = True
        for worker_id in self._joined:  # workers that hear of the end say goodbye
            self.put(Left(worker_id))


class Stop:
    def __init__(self):
        self.asked = False

    def __bool__(self):
        return self.asked


class Setup:
    """A feed, its endpoint and its ledger; `step` does what the trainer does."""

    def __init__(self, folder, **changes):
        values = dict(
            run_id="run-1", prompts_per_step=STEP, num_generations=GROUP, groups_per_lease=2, steps=50
        )
        values |= dict(max_staleness=1, heartbeat_s=20, deadline_s=60)
        self.settings = load(values | changes)
        self.endpoint, self.stop, self.spans = MemoryEndpoint(), Stop(), []
        self.path = folder / "ledger" / "events.jsonl"
        self.feed = RolloutFeed(
            self.endpoint,
            self.settings,
            Ledger(self.path, "run-1", "learner"),
            base_sha256=BASE,
            vocabulary=VOCABULARY,
            reward_weights=(1.0, 0.25),
            record_span=lambda *span: self.spans.append(span),
            stop_requested=self.stop,
        )
        self.version = 0
        self.lags: list[int] = []
        self.consumed: list[int] = []
        self.publish()

    def publish(self) -> None:
        self.version += 1
        self.feed.published(self.version, policy(self.version))
        self.feed.update_model_version(self.version)

    def events(self, name: str) -> list[dict]:
        return [event["data"] for event in read_events(self.path) if event["event"] == name]

    def answer(self, worker_id: str, lease: dict, version: int | None = None, **changes) -> None:
        """Send the batch for a lease, sampled under the newest policy unless said otherwise."""
        self.endpoint.put(Arrived(worker_id, self.batch(worker_id, lease, version, **changes).to_bytes()))

    def batch(self, worker_id, lease, version=None, *, arrays=None, group=GROUP, **changes) -> RolloutBatch:
        version = self.version if version is None else version
        samples = len(lease["prompts"]) * group
        fields = dict(worker_id=worker_id, lease_id=lease["lease_id"], sequence=1, policy_version=version)
        fields |= dict(policy_sha256=policy(version), base_sha256=BASE, prompts=tuple(lease["prompts"]))
        fields |= dict(reward_names=("correct", "format"), spans=(Span("generate", 1.0, 2.0),))
        parts = dict(
            input_ids=np.tile(np.array([1, 2, 3], np.int32), samples),
            completion_mask=np.tile(np.array([0, 1, 1], np.uint8), samples),
            old_log_probs=np.tile(np.array([0, -1, -2], np.float32), samples),
            lengths=np.full(samples, 3, np.int32),
            rewards=np.tile(np.array([[1, 1], [0, 1]], np.float32), (samples // 2 + 1, 1))[:samples],
            advantages=np.tile(np.array([1, -1], np.float32), samples // 2 + 1)[:samples],
        )
        return RolloutBatch(header=Header(**fields | changes), **parts | (arrays or {}))

    def take(self, samples: int) -> list:
        taken = [self.feed.get(timeout=5) for _ in range(samples)]
        self.lags += [self.version - sample.model_version for sample in taken]
        self.consumed += [sample.group_id for sample in taken[::GROUP]]
        return taken

    def step(self) -> dict:
        self.take(STEP * GROUP)
        self.publish()
        return self.feed.step_done()

    def waiting(self) -> int:
        return self.feed.qsize() // GROUP


@pytest.fixture
def make(tmp_path):
    made = []

    def setup(**changes) -> Setup:
        made.append(Setup(tmp_path, **changes))
        return made[-1]

    yield setup
    for one in made:
        one.feed.stop()


@pytest.fixture
def running(make):
    """A started feed with one worker that holds its first leases."""
    setup = make()
    setup.feed.start()
    setup.endpoint.join("w0")
    setup.endpoint.settle()
    return setup


# ---- the way of a group ----------------------------------------------------------------------------------------


def test_a_lease_comes_back_as_whole_groups_in_order(running):
    first, second = running.endpoint.leases("w0")
    assert (first["prompts"], second["prompts"]) == ([0, 1], [2, 3])
    assert first["min_version"] == 1 and first["lease_id"] != second["lease_id"]
    running.answer("w0", second)
    running.answer("w0", first)
    running.endpoint.settle()
    assert running.feed.qsize() == STEP * GROUP
    samples = running.take(STEP * GROUP)
    assert [sample.group_id for sample in samples] == [2, 2, 3, 3, 0, 0, 1, 1]
    sample = samples[1]
    assert sample.input_ids.tolist() == [1, 2, 3] and sample.completion_mask.tolist() == [0, 1, 1]
    assert sample.old_log_probs.tolist() == [0, -1, -2] and sample.advantage == -1
    assert sample.model_version == 1 and sample.prompt == [] == sample.completion
    assert sample.metrics["reward"] == pytest.approx(0.25) and sample.metrics["rewards/correct"] == 0
    assert sample.metrics["reward_std"] == pytest.approx(0.5)  # of 1.25 and 0.25
    assert sample.metrics["completions/mean_length"] == 2
    assert ("w0", "generate", 1.0, 2.0, 1) in running.spans


def test_nothing_to_take_is_an_empty_queue_after_the_timeout(running):
    begun = time.monotonic()
    with pytest.raises(queue.Empty):
        running.feed.get(timeout=0.05)
    assert 0.04 < time.monotonic() - begun < 2


def test_a_step_is_closed_with_its_prompts_and_a_digest_of_its_rewards(running):
    for lease in running.endpoint.leases("w0"):
        running.answer("w0", lease)
    closed = running.step()
    assert closed["prompts"] == [0, 1, 2, 3] and closed["samples"] == STEP * GROUP
    assert len(closed["rewards_sha256"]) == 64 and closed["workers"] == 1 and closed["stale_dropped"] == 0
    assert running.feed.step_done()["prompts"] == []


def test_the_digest_of_rewards_does_not_depend_on_arrival(tmp_path):
    digests = []
    for order in (1, -1):
        setup = Setup(tmp_path / str(order))
        setup.feed.start()
        setup.endpoint.join("w0")
        setup.endpoint.settle()
        for lease in setup.endpoint.leases("w0")[::order]:
            rewards = np.repeat(np.float32(lease["prompts"]), GROUP)[:, None].repeat(2, axis=1)
            setup.answer("w0", lease, arrays={"rewards": rewards})
        digests.append(setup.step()["rewards_sha256"])
        setup.feed.stop()
    assert digests[0] == digests[1]


def test_the_ledger_hears_of_workers(make):
    setup = make()
    setup.feed.start()
    setup.endpoint.join("w0", slot=4)
    setup.endpoint.put(Refused("stranger", "join secret"))
    setup.endpoint.put(Dropped("w0", "replayed"))
    setup.endpoint.put(Left("w0"))
    setup.endpoint.settle()
    (group,) = setup.events("process_group_opened")
    assert group["backend"] == "gloo" and group["members"] == ["learner", "w0"] and group["slot"] == 4
    assert setup.events("worker_joined") == [{"worker_id": "w0", "slot": 4, "base_sha256": BASE}]
    assert setup.events("worker_refused") == [{"worker_id": "stranger", "reason": "join secret"}]
    assert setup.events("message_dropped") == [{"worker_id": "w0", "reason": "replayed"}]
    assert setup.events("worker_left") == [{"worker_id": "w0"}]


def test_stopping_tells_the_workers_the_normal_end_and_hears_their_goodbyes(running):
    running.feed.stop()
    assert running.endpoint.finished
    assert running.events("worker_left") == [{"worker_id": "w0"}]


# ---- the bound at admission ------------------------------------------------------------------------------------


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_no_more_is_given_out_than_the_bound_lets_be_consumed_in_time(make, staleness):
    setup = make(max_staleness=staleness, groups_per_lease=1)
    setup.feed.start()
    for number in range(8):
        setup.endpoint.join(f"w{number}", number)
    setup.endpoint.settle()
    for done in range(3):
        bound = (done + 1 + staleness) * STEP
        assert len(setup.endpoint.granted) == min(bound, STEP * done + 16)  # 8 workers hold two leases each
        for worker, lease in setup.endpoint.granted[done * STEP : (done + 1) * STEP]:
            setup.answer(worker, lease, lease["min_version"])
        setup.step()
        setup.endpoint.settle()


@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_happens_the_bound_holds_and_each_prompt_is_consumed_once(make, staleness, seed):
    chance = random.Random(seed)
    setup = make(max_staleness=staleness, steps=12)
    endpoint, bound = setup.endpoint, 0
    setup.feed.start()
    held: dict[str, list[dict]] = {}  # leases of each live worker
    seen, births, steps, moves = 0, 0, 0, 0
    while steps < 12:
        moves += 1
        assert moves < 2000, "no progress"
        endpoint.settle()
        for worker, lease in endpoint.granted[seen:]:
            held[worker].append(lease)
        seen = len(endpoint.granted)
        out = sum(len(lease["prompts"]) for leases in held.values() for lease in leases)
        bound = min(steps + 1 + staleness, 12) * STEP
        assert len(setup.consumed) + setup.waiting() + out <= bound
        assert all(len(leases) <= 2 for leases in held.values())
        busy = [worker for worker in held if held[worker]]
        kind = chance.random()
        if not held or (kind < 0.1 and len(held) < 4):
            held[f"w{births}"] = []
            endpoint.join(f"w{births}", births)
            births += 1
        elif kind < 0.18:
            worker = chance.choice(list(held))
            del held[worker]
            endpoint.put(chance.choice([Lost(worker, "silent"), Left(worker)]))
        elif kind < 0.25 and busy:
            worker = chance.choice(busy)
            lease = held[worker].pop(0)
            setup.answer(worker, lease, base_sha256="c" * 64)
        elif setup.feed.qsize() >= STEP * GROUP:
            setup.step()
            steps += 1
        elif busy:
            worker = chance.choice(busy)
            setup.answer(worker, held[worker].pop(0))
    assert len(setup.consumed) == len(set(setup.consumed)) == 12 * STEP
    assert max(setup.lags) <= staleness
    assert setup.feed.state()["next"] == len(setup.consumed) + len(setup.feed.state()["unconsumed"])


def test_no_work_is_given_out_beyond_the_last_step(make):
    setup = make(steps=2, max_staleness=2, groups_per_lease=4)
    setup.feed.start()
    for number in range(4):
        setup.endpoint.join(f"w{number}", number)
    setup.endpoint.settle()
    assert sum(len(lease["prompts"]) for _, lease in setup.endpoint.granted) == 2 * STEP


def test_work_is_spread_over_the_workers(make):
    setup = make(max_staleness=0)
    setup.endpoint.join("w0")
    setup.endpoint.join("w1", 1)
    setup.feed.start()
    setup.endpoint.settle()
    setup.endpoint.settle()
    assert sorted(worker for worker, _ in setup.endpoint.granted) in (["w0", "w0"], ["w0", "w1"])
    for worker, lease in list(setup.endpoint.granted):
        setup.answer(worker, lease)
    setup.step()
    setup.endpoint.settle()
    assert sorted(worker for worker, _ in setup.endpoint.granted[2:]) == ["w0", "w1"]


def test_a_session_that_breaks_under_a_lease_costs_nothing(make):
    setup = make()
    setup.endpoint.deaf.add("w0")
    setup.endpoint.join("w0")
    setup.feed.start()
    setup.endpoint.settle()
    setup.endpoint.put(Lost("w0", "connection closed"))
    setup.endpoint.join("w1", 1)
    setup.endpoint.settle()
    assert [lease["prompts"] for lease in setup.endpoint.leases("w1")] == [[0, 1], [2, 3]]
    assert setup.events("worker_lost") == [
        {"worker_id": "w0", "reason": "connection closed", "leases_returned": 0}
    ]


# ---- the bound at consumption ----------------------------------------------------------------------------------


def test_a_stale_group_is_dropped_whole_and_its_prompt_handed_out_again(running):
    first, second = running.endpoint.leases("w0")
    running.answer("w0", first, 1)
    running.endpoint.settle()
    running.publish()
    running.publish()  # version 3: the waiting groups are 2 behind, one more than allowed
    running.answer("w0", second, 2)
    running.endpoint.settle()
    taken = running.take(2 * GROUP)
    assert [sample.group_id for sample in taken] == [2, 2, 3, 3]
    assert running.events("stale_dropped") == [{"groups": 1, "lag": 2}] * 2
    running.endpoint.join("w1", 1)
    running.endpoint.settle()
    again = running.endpoint.leases("w1")[0]
    assert again["prompts"] == [0, 1] and again["min_version"] == 3
    running.answer("w1", again)
    running.take(2 * GROUP)
    assert running.feed.step_done()["stale_dropped"] == 2
    assert sorted(running.consumed) == [0, 1, 2, 3]


def test_a_group_in_hand_is_finished_even_if_the_version_moves_on(running):
    running.answer("w0", running.endpoint.leases("w0")[0], 1)
    running.endpoint.settle()
    one = running.feed.get(timeout=1)
    for _ in range(3):
        running.publish()
    assert running.feed.get(timeout=1).group_id == one.group_id
    with pytest.raises(queue.Empty):
        running.feed.get(timeout=0.02)
    assert len(running.events("stale_dropped")) == 1


def test_at_the_bound_a_group_is_still_good(running):
    running.answer("w0", running.endpoint.leases("w0")[0], 1)
    running.endpoint.settle()
    running.publish()  # lag 1 = max_staleness
    assert running.feed.get(timeout=1).group_id == 0


# ---- batches that may not be trained on ------------------------------------------------------------------------

OBJECTIONS = {
    "another base": (dict(base_sha256="c" * 64), "another base model"),
    "a digest of another policy": (
        dict(policy_sha256=policy(9)),
        "policy digest does not belong to its version",
    ),
    "a version never published": (
        dict(version=7),
        "policy digest does not belong to its version",
    ),
    "other prompts": (dict(prompts=(0, 5)), "other prompts than leased"),
    "prompts in another order": (dict(prompts=(1, 0)), "other prompts than leased"),
    "a larger group": (dict(group=3), "another group size"),
    "a missing reward": (
        dict(reward_names=("correct",), arrays={"rewards": np.zeros((4, 1), np.float32)}),
        "another set of rewards",
    ),
    "a token beyond the vocabulary": (
        dict(arrays={"input_ids": np.full(12, VOCABULARY, np.int32)}),
        "a token outside the vocabulary",
    ),
    "a negative token": (
        dict(arrays={"input_ids": np.full(12, -1, np.int32)}),
        "a token outside the vocabulary",
    ),
}


@pytest.mark.parametrize("what", OBJECTIONS)
def test_an_unfit_batch_is_dropped_and_its_prompts_handed_out_again(running, what):
    changes, reason = OBJECTIONS[what]
    running.answer("w0", running.endpoint.leases("w0")[0], **changes)
    running.endpoint.settle()
    assert running.feed.qsize() == 0
    assert running.events("message_dropped") == [{"worker_id": "w0", "reason": reason}]
    again = running.endpoint.leases("w0")[2]
    assert again["prompts"] == [0, 1] and again["lease_id"] not in (0, 1)
    running.answer("w0", again)
    running.endpoint.settle()
    assert running.feed.qsize() == 2 * GROUP


@pytest.mark.parametrize("lease_id", [99, -1])
def test_a_batch_for_no_lease_is_dropped_and_harms_none(running, lease_id):
    first = running.endpoint.leases("w0")[0]
    running.answer("w0", first | {"lease_id": lease_id})
    running.endpoint.settle()
    assert running.feed.qsize() == 0
    assert running.events("message_dropped") == [{"worker_id": "w0", "reason": "no such lease"}]
    running.answer("w0", first)
    running.endpoint.settle()
    assert running.feed.qsize() == 2 * GROUP


def test_a_second_batch_for_the_same_lease_is_dropped(running):
    first = running.endpoint.leases("w0")[0]
    running.answer("w0", first)
    running.answer("w0", first)
    running.endpoint.settle()
    assert running.feed.qsize() == 2 * GROUP
    assert [event["reason"] for event in running.events("message_dropped")] == ["no such lease"]


def test_a_worker_cannot_answer_for_another(running):
    running.endpoint.join("w1", 1)
    running.endpoint.settle()
    lease = running.endpoint.leases("w0")[0]
    running.endpoint.put(Arrived("w1", running.batch("w0", lease).to_bytes()))
    running.endpoint.put(Arrived("w1", running.batch("w1", lease).to_bytes()))
    running.endpoint.settle()
    assert running.feed.qsize() == 0
    assert [event["reason"] for event in running.events("message_dropped")] == ["no such lease"] * 2
    running.answer("w0", lease)  # the holder still may
    running.endpoint.settle()
    assert running.feed.qsize() == 2 * GROUP


def test_an_unreadable_batch_costs_its_sender_all_it_holds(running):
    running.endpoint.put(Arrived("w0", b"not a batch"))
    running.endpoint.settle()
    assert running.feed.qsize() == 0 and len(running.events("message_dropped")) == 1
    assert [lease["prompts"] for lease in running.endpoint.leases("w0")[2:]] == [[0, 1], [2, 3]]
    running.answer("w0", running.endpoint.leases("w0")[0])  # one of the old leases
    running.endpoint.settle()
    assert running.feed.qsize() == 0


@pytest.mark.parametrize(
    "arrays",
    [
        {"lengths": np.full((4, 1), 3, np.int32)},
        {"input_ids": np.zeros((12, 2), np.int32)},
    ],
    ids=["lengths in two dimensions", "ids in two dimensions"],
)
def test_a_hostile_shape_is_dropped_and_never_ends_the_run(running, arrays):
    running.answer("w0", running.endpoint.leases("w0")[0], arrays=arrays)
    deadline = time.monotonic() + 5
    while not running.events("message_dropped") and running.feed.qsize() == 0 and time.monotonic() < deadline:
        running.feed.check_health(60)  # raises what the pump met
        time.sleep(0.005)
    assert running.feed.qsize() == 0
    assert len(running.events("message_dropped")) == 1


# ---- loss of workers -------------------------------------------------------------------------------------------


def test_leases_of_a_lost_worker_go_to_another(running):
    assert [lease["prompts"] for lease in running.endpoint.leases("w0")] == [[0, 1], [2, 3]]
    running.answer("w0", running.endpoint.leases("w0")[0])
    running.endpoint.join("w1", 1)
    running.endpoint.settle()
    held = sum(len(lease["prompts"]) for lease in running.endpoint.leases("w0")[1:])
    running.endpoint.put(Lost("w0", "silent"))
    running.endpoint.settle()
    (lost,) = running.events("worker_lost")
    assert lost["reason"] == "silent" and lost["leases_returned"] == held // 2
    while len(running.consumed) < 8:  # what was returned first, and nothing twice
        for lease in running.endpoint.leases("w1"):
            if not set(lease["prompts"]) & set(running.consumed):
                running.answer("w1", lease)
        running.endpoint.settle()
        running.take(running.feed.qsize())
        running.feed.step_done()
        running.endpoint.settle()
    assert {0, 1, 2, 3} <= set(running.consumed) and len(running.consumed) == len(set(running.consumed))


def test_a_batch_that_comes_after_its_sender_was_lost_is_dropped(running):
    first = running.endpoint.leases("w0")[0]
    running.endpoint.put(Lost("w0", "silent"))
    running.answer("w0", first)
    running.endpoint.settle()
    assert running.feed.qsize() == 0
    assert running.events("message_dropped") == [{"worker_id": "w0", "reason": "no such lease"}]


# ---- ends ------------------------------------------------------------------------------------------------------


def until_fault(feed: RolloutFeed) -> None:
    for _ in range(2000):
        feed.check_health(60)
        time.sleep(0.002)
    raise AssertionError("no fault within 4 s")


def test_twelve_unusable_batches_in_a_row_stop_the_run(running):
    for number in range(12):
        running.feed.check_health(60)
        running.endpoint.settle()
        lease = running.endpoint.leases("w0")[-1] if number else running.endpoint.leases("w0")[0]
        running.answer("w0", lease, base_sha256="c" * 64)
    with pytest.raises(StoppedByHealth) as caught:
        until_fault(running.feed)
    assert "another base model" in caught.value.en and "12" in caught.value.ar
    with pytest.raises(StoppedByHealth):
        running.feed.get(timeout=1)


def test_a_good_batch_forgives_the_bad_ones_before_it(running):
    for _ in range(2):
        for number in range(11):
            running.endpoint.put(Arrived("w0", b"bad" * number))
        running.endpoint.settle()
        running.answer("w0", running.endpoint.leases("w0")[-1])
        running.endpoint.settle()
        running.take(2 * GROUP)
    running.feed.check_health(60)


def test_without_any_worker_for_the_deadline_the_run_is_interrupted(make):
    setup = make(heartbeat_s=0.02, deadline_s=0.15)
    setup.feed.start()
    setup.feed.check_health(60)
    time.sleep(0.2)
    with pytest.raises(Interrupted) as caught:
        setup.feed.check_health(60)
    assert "No rollout worker" in caught.value.en and "عامل" in caught.value.ar
    setup.endpoint.join("w0")
    setup.endpoint.settle()
    setup.feed.check_health(60)  # one came after all
    time.sleep(0.2)
    setup.feed.check_health(60)  # its silence is the transport's business
    setup.endpoint.put(Lost("w0", "silent"))
    setup.endpoint.settle()
    setup.feed.check_health(60)  # the deadline begins anew
    time.sleep(0.2)
    with pytest.raises(Interrupted):
        setup.feed.check_health(60)


def test_a_stop_request_ends_the_wait(running):
    running.feed.check_health(60)
    running.stop.asked = True
    with pytest.raises(Interrupted) as caught:
        running.feed.check_health(60)
    assert "resume" in caught.value.en


def test_what_breaks_the_pump_reaches_the_trainer(running):
    running.endpoint.put(RuntimeError("the transport broke"))
    with pytest.raises(RuntimeError, match="the transport broke"):
        until_fault(running.feed)
    with pytest.raises(RuntimeError, match="the transport broke"):
        running.feed.get(timeout=5)


# ---- resuming --------------------------------------------------------------------------------------------------


def test_a_resumed_feed_goes_on_where_the_checkpoint_stood(running, tmp_path):
    for lease in running.endpoint.leases("w0"):
        running.answer("w0", lease)
    running.step()
    running.endpoint.settle()
    state = json.loads(json.dumps(running.feed.state()))
    assert set(range(state["next"])) - set(state["unconsumed"]) == {0, 1, 2, 3}

    resumed = Setup(tmp_path / "again")
    resumed.feed.restore(state, steps_done=1)
    resumed.feed.start()
    for number in range(4):
        resumed.endpoint.join(f"w{number}", number)
    resumed.endpoint.settle()
    given = [prompt for _, lease in resumed.endpoint.granted for prompt in lease["prompts"]]
    assert given == [4, 5, 6, 7, 8, 9, 10, 11]  # two steps' worth (bound 1), none of it trained on before
    resumed.feed.stop()


def test_a_worker_that_lives_but_never_answers_does_not_stall_the_run_for_ever(running):
    time.sleep(0.05)
    running.feed.check_health(stale_after_s=60.0)
    with pytest.raises(Interrupted) as caught:
        running.feed.check_health(stale_after_s=0.01)
    assert "No usable batch" in caught.value.en and "دفعة" in caught.value.ar
