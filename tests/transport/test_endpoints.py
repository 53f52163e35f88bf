"""The contract of `grpo_lib.transport`, run over every transport in `transport_ends.TRANSPORTS`."""

import threading
import time

import pytest
from transport_ends import DEADLINE_S, event_of, events_until

from grpo_lib.transport import (
    Arrived,
    CreditTimeout,
    Dropped,
    EndOfRun,
    Joined,
    JoinRefused,
    LearnerLost,
    LearnerUnreachable,
    Left,
    Lost,
    MessageTooLarge,
    Refused,
)


def is_a(kind, worker_id=None):
    return lambda event: isinstance(event, kind) and worker_id in (None, event.worker_id)


def test_join_tells_both_sides_about_each_other(link):
    learner = link.learner(welcome={"steps": 60, "خطوات": "ستون"})
    worker = link.worker(learner, "worker-0")
    assert worker.join({"base": "abc"}) == {"steps": 60, "خطوات": "ستون"}
    event = event_of(learner, is_a(Joined))
    assert (event.worker_id, event.info) == ("worker-0", {"base": "abc"})
    assert learner.workers() == ("worker-0",)
    group = next(group for group in learner.opened_groups if group.slot == event.slot)
    assert group.members == ("learner", "worker-0")
    assert (group.backend, group.address_class) == link.medium


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"secret": b"another secret altogether"}, "join secret"), ({"run_id": "another"}, "run")],
)
def test_strangers_are_refused_and_the_others_go_on(link, changes, reason):
    learner = link.learner()
    good = link.joined(learner, "good")
    bad = link.worker(learner, "bad", **changes)
    if (
        "run_id" in changes and link.medium[0] == "files"
    ):  # each run has a folder of its own: nobody hears the knock
        with pytest.raises(LearnerUnreachable):
            bad.join({})
        return
    with pytest.raises(JoinRefused) as caught:
        bad.join({})
    assert caught.value.reason == reason
    assert caught.value.ar != caught.value.en
    assert event_of(learner, is_a(Refused)) == Refused("bad", reason)
    assert learner.workers() == ("good",)
    good.submit(b"still here")
    assert event_of(learner, is_a(Arrived)).payload == b"still here"


def test_admission_refuses_with_its_reason(link):
    def admit(worker_id, info):
        if info["base"] == "crash":
            raise ValueError("a defect of the check")
        return None if info["base"] == "right" else "base_model"

    learner = link.learner(admit=admit)
    for base, reason in (("wrong", "base_model"), ("crash", "admission error: ValueError")):
        with pytest.raises(JoinRefused) as caught:
            link.worker(learner, "worker-0").join({"base": base})
        assert caught.value.reason == reason
        assert event_of(learner, is_a(Refused)) == Refused("worker-0", reason)
    link.worker(learner, "worker-0").join({"base": "right"})
    assert isinstance(event_of(learner, lambda event: True), Joined)


def test_leases_and_batches_keep_their_order(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    for number in range(20):
        assert learner.grant("worker-0", bytes([number]))
    for _ in range(20):
        worker.submit(worker.next_lease(5) * 3)  # the credit of 2 makes this wait for the learner below
        event = event_of(learner, is_a(Arrived))
    assert event == Arrived("worker-0", bytes([19]) * 3)


def test_a_large_batch_arrives_whole(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    payload = bytes(range(256)) * 40_000  # 10 MB: several pieces
    worker.submit(payload)
    assert event_of(learner, is_a(Arrived)).payload == payload


def test_time_out_is_none_not_an_error(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    started = time.monotonic()
    assert worker.next_lease(0.1) is None
    assert worker.latest_policy(-1, 0.1) is None
    assert learner.receive(0.1) is None
    assert 0.25 < time.monotonic() - started < 2.0


def test_newest_policy_wins(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    for version in range(1, 51):
        learner.publish(version, bytes([version]) * 200_000)
    seen = [0]
    while seen[-1] != 50:
        version, payload = worker.latest_policy(seen[-1], 5)
        assert payload == bytes([version]) * 200_000
        seen.append(version)
    assert len(seen) < 45
    assert worker.latest_policy(50, 0.05) is None


def test_a_late_joiner_gets_the_newest_at_once(link):
    learner = link.learner()
    for version in (1, 2, 3):
        learner.publish(version, f"policy {version}".encode())
    worker = link.joined(learner, "late")
    assert worker.latest_policy(-1, 5) == (3, b"policy 3")


def test_publishing_does_not_wait_for_anybody(link):
    learner = link.learner()
    link.joined(learner, "worker-0")
    started = time.perf_counter()
    for version in range(20):
        learner.publish(version, bytes(4_000_000))
    assert time.perf_counter() - started < 2.0


def test_credit_holds_a_worker_back_until_the_learner_takes_a_batch(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0", max_unacknowledged=2, submit_deadline_s=0.4)
    worker.submit(b"1")
    worker.submit(b"2")
    with pytest.raises(CreditTimeout) as caught:
        worker.submit(b"3")
    assert "2" in caught.value.en
    threading.Timer(0.1, learner.receive, args=[5]).start()
    worker.submit(b"3")  # waited for, and now there is room
    assert [event_of(learner, is_a(Arrived)).payload for _ in range(2)] == [b"2", b"3"]


def test_end_of_run_reaches_every_call(link):
    learner = link.learner()
    workers = [link.joined(learner, f"worker-{n}", submit_deadline_s=10) for n in range(3)]
    workers[2].submit(b"1")
    workers[2].submit(b"2")
    outcomes = {}

    def call(name, function, *args):
        try:
            outcomes[name] = function(*args)
        except EndOfRun as end:
            outcomes[name] = end

    threads = [
        threading.Thread(target=call, args=("lease", workers[0].next_lease, 10)),
        threading.Thread(target=call, args=("policy", workers[1].latest_policy, 0, 10)),
        threading.Thread(target=call, args=("submit", workers[2].submit, b"3")),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    started = time.monotonic()
    learner.finish()
    assert time.monotonic() - started < 2.0
    learner.close()
    for thread in threads:
        thread.join(timeout=5)
    assert sorted(outcomes) == ["lease", "policy", "submit"]
    assert all(isinstance(outcome, EndOfRun) for outcome in outcomes.values())
    with pytest.raises(EndOfRun):  # also afterwards, when the line itself is gone
        workers[0].next_lease(1)


def test_a_learner_that_goes_without_a_word_is_a_loss(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    learner.close()
    with pytest.raises(LearnerLost) as caught:
        worker.next_lease(10)
    assert caught.value.reason in ("connection closed", "silent")
    for call in (lambda: worker.latest_policy(0, 1), lambda: worker.submit(b"x")):
        with pytest.raises(LearnerLost):
            call()
    worker.close()  # and this does not raise


def test_nobody_there_is_a_third_error(link):
    learner = link.learner()
    worker = link.worker(learner, "worker-0", deadline_s=0.5)
    learner.close()
    started = time.monotonic()
    with pytest.raises(LearnerUnreachable) as caught:
        worker.join({})
    assert time.monotonic() - started < 3.0
    assert learner.address in caught.value.ar
    assert learner.address in caught.value.en


def test_after_the_end_nobody_joins(link):
    learner = link.learner()
    learner.finish()
    with pytest.raises(EndOfRun):
        link.worker(learner, "late").join({})


def test_goodbye_comes_after_the_batches(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    worker.submit(b"1")
    worker.submit(b"2")
    worker.close()
    assert events_until(learner, is_a(Left)) == [
        Arrived("worker-0", b"1"),
        Arrived("worker-0", b"2"),
        Left("worker-0"),
    ]
    assert learner.workers() == ()
    assert not learner.grant("worker-0", b"lease")
    assert learner.receive(0.2) is None  # no loss on top of the goodbye


def test_a_worker_may_come_back(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    slots = [group.slot for group in learner.opened_groups]
    worker.close()
    event_of(learner, is_a(Left))
    worker.join({"again": True})
    event = event_of(learner, is_a(Joined))
    assert event.info == {"again": True}
    assert event.slot not in slots
    learner.grant("worker-0", b"lease")
    assert worker.next_lease(5) == b"lease"


def test_a_newer_session_replaces_the_older_one(link):
    learner = link.learner()
    old = link.joined(learner, "worker-0")
    new = link.worker(learner, "worker-0")
    new.join({})
    events = events_until(learner, is_a(Lost))
    assert events == [Lost("worker-0", "replaced")]
    assert learner.workers() == ()
    assert not learner.grant("worker-0", b"for the old one"), "its successor is not announced yet"
    event_of(learner, is_a(Joined))
    assert learner.workers() == ("worker-0",)
    learner.grant("worker-0", b"for the new one")
    assert new.next_lease(5) == b"for the new one"
    with pytest.raises(LearnerLost):
        old.next_lease(5)


def test_idle_outlives_the_deadline(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    assert worker.next_lease(0.01) is None
    assert learner.receive(3.3 * DEADLINE_S) is None
    learner.grant("worker-0", b"good morning")
    assert worker.next_lease(5) == b"good morning"
    worker.submit(b"x")
    assert event_of(learner, is_a(Arrived)).payload == b"x"


def test_too_large_is_an_error_for_the_sender_alone(link):
    learner = link.learner(max_frame_bytes=10_000)
    worker = link.joined(learner, "worker-0", max_frame_bytes=10_000)
    for call in (
        lambda: worker.submit(bytes(10_000)),
        lambda: learner.publish(1, bytes(10_000)),
        lambda: learner.grant("worker-0", bytes(10_000)),
    ):
        with pytest.raises(MessageTooLarge):
            call()
    worker.submit(b"small")
    assert event_of(learner, is_a(Arrived)).payload == b"small"


def test_a_worker_that_claims_too_much_is_cut_off(link):
    learner = link.learner(max_frame_bytes=10_000)
    worker = link.joined(learner, "worker-0")
    other = link.joined(learner, "worker-1")
    worker.submit(bytes(20_000))
    events = events_until(learner, is_a(Lost))
    assert events == [Dropped("worker-0", "oversized"), Lost("worker-0", "oversized")]
    other.submit(b"x")
    assert event_of(learner, is_a(Arrived)).worker_id == "worker-1"


def test_counters_add_up(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    before = learner.stats()["bytes_sent"]
    learner.publish(1, bytes(1_000_000))
    assert worker.latest_policy(0, 5) is not None
    sent = learner.stats()["bytes_sent"] - before
    assert (
        1_000_000 <= sent <= 1_000_000 + 1024
    )  # an adapter costs itself and no more than 1 KB (heartbeat included)
    worker.close()
    event_of(learner, is_a(Left))
    stats = learner.stats()
    assert stats["sessions"] == 1
    assert stats["dropped"] == {}
    assert stats["frames_sent"] >= worker.stats()["frames_received"] > 0
    assert stats["seal_s"] > 0
