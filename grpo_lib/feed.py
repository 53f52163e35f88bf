"""The learner's side of the workers: leases out, rollout groups in, bounded staleness in between.

`RolloutFeed` is what TRL calls a rollout worker. A thread pumps the transport: it grants leases, checks what comes back
and buffers whole groups; the trainer takes samples from the buffer. Staleness is bounded twice: at admission, no more
groups are out or waiting than the bound lets be consumed in time (AReaL, arXiv 2505.24298, eq. 3, counted in groups);
at consumption, a group that is too old all the same is dropped whole, counted, and its prompt is handed out again.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from grpo_lib.errors import Interrupted, StoppedByHealth
from grpo_lib.intake import Group, Intake, Lease
from grpo_lib.ledger import Ledger
from grpo_lib.process import StopRequest
from grpo_lib.prompts import PromptBook
from grpo_lib.rollouts import Header, RolloutBatch
from grpo_lib.runfolder import sha256
from grpo_lib.settings import RunSettings
from grpo_lib.transport import Arrived, Dropped, Joined, LearnerEndpoint, Left, Lost, Refused
from grpo_lib.trl_compat import RolloutSample

# Leases a worker may hold: one in work and one waiting, so that it never idles for a round trip.
_LEASES_PER_WORKER = 2
# How long workers may take to leave after the end was announced.
_PARTING_S = 5.0
# So many unusable batches in a row, from any worker, mean that something is wrong for good.
_UNUSABLE_LIMIT = 12


class RolloutFeed:
    """Feeds TRL's trainer from workers behind a transport.

    Args:
        endpoint: the learner's end of the transport.
        base_sha256: digest of the learner's base model; a batch sampled from another is dropped.
        vocabulary: token ids must be below this.
        reward_weights: one per reward function.
        record_span: called with (actor, kind, start, end, version) for the timeline.
        stop_requested: true once the process is asked to end.
    """

    def __init__(
        self,
        endpoint: LearnerEndpoint,
        settings: RunSettings,
        ledger: Ledger,
        *,
        base_sha256: str,
        vocabulary: int,
        reward_weights: tuple[float, ...],
        record_span: Callable[[str, str, float, float, int], None],
        stop_requested: StopRequest,
    ):
        self._endpoint = endpoint
        self._settings = settings
        self._ledger = ledger
        self._intake = Intake(settings.num_generations, base_sha256, vocabulary, reward_weights)
        self._record_span = record_span
        self._stop_requested = stop_requested

        self._lock = threading.Condition()
        self._book = PromptBook()
        self._leases: dict[int, Lease] = {}
        self._next_lease = 0
        self._buffer: deque[Group] = deque()
        self._hand: deque[RolloutSample] = deque()
        self._step_groups: list[Group] = []
        self._consumed = 0  # groups handed to the trainer
        self._steps_done = 0
        self._version = 0
        self._stale_dropped = 0
        self._unusable = 0
        self._alone_since = self._heard = time.monotonic()
        self._fault: BaseException | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

        # TRL's protocol: the trainer calls `get` and `qsize` on the buffer, and drains the metrics.
        self.rollout_buffer = self
        self.metrics_queue: queue.Queue = queue.Queue()

    # ---- TRL's RolloutWorkerProtocol -------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._pump, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell the workers that the run has ended, and stop pumping."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=self._settings.deadline_s)

    def update_model_version(self, version: int) -> None:
        with self._lock:
            self._version = version
            self._lock.notify_all()

    def check_health(self, stale_after_s: float) -> None:
        """Raise what the pump met, or say that nobody is left to wait for. TRL calls this while it waits."""
        if self._fault is not None:
            raise self._fault
        if self._stop_requested:
            raise Interrupted(
                ar="طُلب الإنهاء والمتعلِّم ينتظر بيانات؛ استأنف بالمعرّف نفسه من آخر نقطة حفظ.",
                en="Asked to end while waiting for rollouts; resume with the same run id from the last checkpoint.",
            )
        with self._lock:
            alone = 0.0 if self._endpoint.workers() else time.monotonic() - self._alone_since
            silent = time.monotonic() - self._heard
        if silent > stale_after_s:
            raise Interrupted(
                ar=f"لم تصل أي دفعة صالحة منذ {silent:.0f} ثانية مع أن عمالًا متصلون. راجع سجلاتهم ثم استأنف بالمعرّف نفسه.",
                en=f"No usable batch for {silent:.0f} s although workers are connected. Look at their logs, then resume "
                "with the same run id.",
            )
        limit = self._settings.deadline_s
        if alone > limit:
            raise Interrupted(
                ar=f"لا يوجد أي عامل توليد منذ {alone:.0f} ثانية (المهلة {limit:.0f}). راجع سجلات العمال ثم استأنف بالمعرّف نفسه.",
                en=f"No rollout worker for {alone:.0f} s (deadline {limit:.0f} s). Look at the workers' logs, then "
                "resume with the same run id.",
            )

    def get(self, timeout: float) -> RolloutSample:
        """Next sample of the group in hand; takes up the next group that is fresh enough."""
        deadline = time.monotonic() + timeout
        begun = time.time()
        with self._lock:
            while not self._hand:
                if self._fault is not None:
                    raise self._fault
                if self._buffer:
                    self._take_up(self._buffer.popleft())
                    continue
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._lock.wait(left)
        waited = time.time()
        if waited - begun > 0.001:
            self._record_span("learner", "wait", begun, waited, self._version)
        if not self._hand:
            raise queue.Empty
        return self._hand.popleft()

    def qsize(self) -> int:
        return len(self._hand) + len(self._buffer) * self._settings.num_generations

    # ---- what the learner asks -------------------------------------------------------------------------------------

    def published(self, version: int, digest: str) -> None:
        """Remember a publication: batches must name a version and the digest that belongs to it."""
        with self._lock:
            self._intake.published[version] = digest

    def step_done(self) -> dict[str, object]:
        """Close the books on one optimizer step; returns what the ledger says of it."""
        with self._lock:
            groups, self._step_groups = self._step_groups, []
            self._steps_done += 1
            rewards = [
                [s.metrics["reward"] for s in g.samples] for g in sorted(groups, key=lambda g: g.prompt)
            ]
            return {
                "prompts": sorted(group.prompt for group in groups),
                "groups": [(group.payload, group.place) for group in groups],
                "samples": sum(map(len, rewards)),
                "rewards_sha256": sha256(np.array(rewards, dtype="<f4").tobytes()),
                "queue_groups": len(self._buffer),
                "workers": len(self._endpoint.workers()),
                "stale_dropped": self._stale_dropped,
            }

    def state(self) -> dict[str, object]:
        """For a checkpoint."""
        with self._lock:
            return self._book.state()

    def restore(self, state: dict[str, object], steps_done: int) -> None:
        """From a checkpoint, before `start`."""
        self._book = PromptBook(state)
        self._steps_done = steps_done
        self._consumed = steps_done * self._settings.prompts_per_step

    # ---- the pump --------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        try:
            while not self._stop.is_set():
                event = self._endpoint.receive(timeout=0.05)
                if event is not None:
                    self._handle(event)
                self._grant()
            self._endpoint.finish()
            # Workers say goodbye; the ledger should have it.
            parted = time.monotonic() + _PARTING_S
            while self._endpoint.workers() and time.monotonic() < parted:
                event = self._endpoint.receive(timeout=0.1)
                if event is not None and not isinstance(event, Arrived):
                    self._handle(event)
        except BaseException as error:
            with self._lock:
                self._fault = error
                self._lock.notify_all()

    def _handle(self, event) -> None:
        match event:
            case Arrived(worker_id=worker_id, payload=payload):
                self._arrived(worker_id, payload)
            case Joined(worker_id=worker_id, slot=slot, info=info):
                for group in self._endpoint.opened_groups:
                    if group.slot == slot:
                        self._ledger.append("process_group_opened", **asdict(group))
                self._ledger.append(
                    "worker_joined", worker_id=worker_id, slot=slot, base_sha256=info.get("base_sha256", "")
                )
            case Lost(worker_id=worker_id, reason=reason):
                returned = self._release(worker_id)
                self._ledger.append(
                    "worker_lost", worker_id=worker_id, reason=reason, leases_returned=returned
                )
            case Left(worker_id=worker_id):
                self._release(worker_id)
                self._ledger.append("worker_left", worker_id=worker_id)
            case Refused(worker_id=worker_id, reason=reason):
                self._ledger.append("worker_refused", worker_id=worker_id, reason=reason)
            case Dropped(worker_id=worker_id, reason=reason):
                self._ledger.append("message_dropped", worker_id=worker_id, reason=reason)

    def _release(self, worker_id: str) -> int:
        """Take back the leases of a worker that is gone."""
        with self._lock:
            mine = [number for number, lease in self._leases.items() if lease.worker_id == worker_id]
            for number in mine:
                self._book.give_back(list(self._leases.pop(number).prompts))
            if not self._endpoint.workers():
                self._alone_since = time.monotonic()
            return len(mine)

    def _grant(self) -> None:
        """Hand out leases while the staleness bound admits more groups."""
        settings = self._settings
        with self._lock:
            holders = {worker: 0 for worker in self._endpoint.workers()}
            for lease in self._leases.values():
                holders[lease.worker_id] = holders.get(lease.worker_id, 0) + 1
            while holders:
                worker = min(holders, key=holders.get)
                out = sum(len(lease.prompts) for lease in self._leases.values())
                admitted = self._consumed + len(self._buffer) + out
                ahead = min(self._steps_done + 1 + settings.max_staleness, settings.steps)
                room = ahead * settings.prompts_per_step - admitted
                if holders[worker] >= _LEASES_PER_WORKER or room <= 0:
                    return
                prompts = self._book.take(min(settings.groups_per_lease, room))
                lease = {"lease_id": self._next_lease, "prompts": prompts, "min_version": self._version}
                if self._endpoint.grant(worker, json.dumps(lease).encode()):
                    self._leases[self._next_lease] = Lease(worker, tuple(prompts))
                    self._next_lease += 1
                    holders[worker] += 1
                else:
                    self._book.give_back(prompts)
                    del holders[worker]

    def _arrived(self, worker_id: str, payload: bytes) -> None:
        try:
            batch = RolloutBatch.from_bytes(payload)
            reason = self._intake.objection(worker_id, batch, self._leases.get(batch.header.lease_id))
        except ValueError as error:
            batch, reason = None, str(error)
        if reason is not None:
            self._unusable += 1
            self._ledger.append("message_dropped", worker_id=worker_id, reason=reason)
            self._forget(worker_id, batch)
            if self._unusable >= _UNUSABLE_LIMIT:
                raise StoppedByHealth(
                    ar=f"{self._unusable} دفعات متتالية من العمال لا تصلح؛ آخر سبب: {reason}",
                    en=f"{self._unusable} batches in a row from the workers were unusable; the last because: {reason}",
                )
            return
        self._unusable = 0
        self._heard = time.monotonic()
        for span in batch.header.spans:
            self._record_span(worker_id, span.kind, span.start, span.end, batch.header.policy_version)
        groups = self._intake.groups(batch, payload)
        with self._lock:
            del self._leases[batch.header.lease_id]
            self._buffer.extend(groups)
            self._lock.notify_all()

    def _forget(self, worker_id: str, batch: RolloutBatch | None) -> None:
        """Hand out again what an unusable batch was for; an unreadable one costs its sender all it holds."""
        header: Header | None = batch.header if batch else None
        with self._lock:
            lease = self._leases.get(header.lease_id) if header else None
            if lease is not None and lease.worker_id == worker_id:
                del self._leases[header.lease_id]
                self._book.give_back(list(lease.prompts))
                return
        if header is None:
            self._release(worker_id)

    def _take_up(self, group: Group) -> None:
        """Consume one group, or drop it if it is older than the bound. Called under the lock."""
        lag = self._version - group.version
        if lag > self._settings.max_staleness:
            self._stale_dropped += 1
            self._book.give_back([group.prompt])
            self._ledger.append("stale_dropped", groups=1, lag=lag)
            return
        self._book.consume(group.prompt)
        self._consumed += 1
        self._step_groups.append(group)
        self._hand.extend(group.samples)
