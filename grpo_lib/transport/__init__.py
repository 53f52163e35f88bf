"""The contract between a learner and its workers: two endpoints that carry opaque bytes.

A transport knows nothing of prompts, adapters or rewards. What every implementation promises:

* `publish` never blocks training; the newest version wins; a late joiner gets the newest at once.
* A worker holds a bounded credit: a batch counts as unacknowledged until the learner takes it from `receive`.
* A worker's death costs its own session only; it may rejoin at any time, under a new slot.
* A bad message (corrupt, replayed, foreign) is counted and dropped, reported as `Dropped`, and never fatal. A
  message that is missing for certain ends the session as `Lost`, since a silently lost lease would never be
  worked on again.
* No wait is without a deadline. End of data (`EndOfRun`), failure (`LearnerLost`) and time-out (`None`) are
  three outcomes.

Guarantees of order: events of one worker come in the order in which they happened; `grant` and `workers` go
by the events that `receive` has already handed out, so a lease can never reach a session whose predecessor's
loss the learner has not yet seen. Of this package only `gloo` and `gloo_pair` import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from grpo_lib.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, EXIT_WRONG_INPUT, GrpoError, isolate

PROTOCOL = "grpo-lib-transport/1"


class Kind(IntEnum):
    """What a frame is. The number is sealed too: an onlooker cannot tell a batch from a policy."""

    JOIN = 1  # worker -> learner, first sealed frame: JSON about the worker
    WELCOME = 2  # learner -> worker: JSON, e.g. the run's settings
    REFUSED = 3  # learner -> worker: reason code
    HEARTBEAT = 4  # both ways, whenever nothing else was sent for `heartbeat_s`
    ACK = 5  # both ways: sequence number of the frame that was taken
    POLICY = 6  # learner -> worker
    LEASE = 7  # learner -> worker
    BATCH = 8  # worker -> learner
    END = 9  # learner -> worker: normal end of data
    GOODBYE = 10  # worker -> learner: I leave, nothing is wrong


# ---- events that the learner receives ----------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A worker was admitted; `slot` is new for each session, `info` is what it said about itself."""

    worker_id: str
    slot: int
    info: dict = field(hash=False)


@dataclass(frozen=True)
class Arrived:
    """One batch, acknowledged (its credit returned) at the moment `receive` hands this out."""

    worker_id: str
    payload: bytes


@dataclass(frozen=True)
class Lost:
    """The session ended without a goodbye; `reason` is a key of `REASONS`, perhaps with `: detail`."""

    worker_id: str
    reason: str


@dataclass(frozen=True)
class Left:
    """The worker said goodbye."""

    worker_id: str


@dataclass(frozen=True)
class Refused:
    """Somebody was not let in (secret, run, admission). `worker_id` is a claim, not a proof."""

    worker_id: str
    reason: str


@dataclass(frozen=True)
class Dropped:
    """One message was dropped and counted; the session goes on."""

    worker_id: str
    reason: str


Event = Joined | Arrived | Lost | Left | Refused | Dropped


@dataclass(frozen=True)
class OpenedGroup:
    """One process group that was really opened, for the ledger's `process_group_opened`.

    `backend` is read from the group itself; `address_class` is the wider of both ends: loopback, private or
    public.
    """

    slot: int
    backend: str
    members: tuple[str, str]
    address_class: str


# Reason codes, in both languages, for reports and logs. The ledger keeps the code.
REASONS: dict[str, tuple[str, str]] = {
    "silent": ("لم يُسمع منه شيء حتى انقضت المهلة", "nothing was heard from it within the deadline"),
    "connection closed": ("انقطع الاتصال", "the connection was closed"),
    "replaced": ("حلّت محلّها جلسة أحدث للعامل نفسه", "a newer session of the same worker took its place"),
    "folder": (
        "تعذّر استعمال المجلد المشترك: ممتلئ أو محذوف أو بلا إذن",
        "the shared folder is full, gone or not ours",
    ),
    "oversized": ("ادّعت رسالة حجمًا يفوق المسموح", "a message claimed more than the allowed size"),
    "gap": ("ضاعت رسالة قبل هذه الرسالة", "a message before this one is missing"),
    "foreign": ("رسالة ليست من هذا البروتوكول", "not a message of this protocol"),
    "truncated": ("رسالة مبتورة", "the message is cut short"),
    "not authentic": (
        "رسالة عُبث بها أو خُتمت بمفتاح آخر",
        "the message was altered or sealed with another key",
    ),
    "replayed hello": ("طلب انضمام سبق استعماله", "the request to join was used before"),
    "replayed": ("رسالة سبق استلامها", "the message was received before"),
    "unexpected": ("رسالة في غير موضعها", "a message that does not belong at this point"),
    "malformed hello": ("طلب انضمام غير مفهوم", "the request to join could not be read"),
    "join secret": ("سرّ الانضمام غير صحيح", "the join secret is wrong"),
    "run": ("العامل يقصد تشغيلًا آخر", "the worker meant another run"),
    "protocol": ("إصدار بروتوكول النقل مختلف", "another version of the transport protocol"),
    "finished": ("انتهى التشغيل", "the run has finished"),
    "pair failed": ("تعذّر فتح القناة الثنائية", "the two-member group could not be opened"),
    "admission error": ("تعطّل فحص القبول نفسه", "the admission check itself failed"),
    "base_model": ("النموذج الأساس لدى العامل مختلف", "the worker has another base model"),
}


def reason_text(reason: str) -> tuple[str, str]:
    """(Arabic, English) for a reason code; an unknown code is shown as it is."""
    return REASONS.get(reason.split(":", 1)[0], (isolate(reason), reason))


# ---- errors ------------------------------------------------------------------------------------


class TransportError(GrpoError):
    """Anything that a transport raises on purpose."""


class EndOfRun(TransportError):
    """The learner said that no more work will come: the normal end, not a failure."""

    exit_code = EXIT_COMPLETE

    def __init__(self) -> None:
        super().__init__(
            ar="أعلن المتعلّم نهاية التشغيل؛ لا عمل بعد الآن.",
            en="The learner announced the end of the run; no more work will come.",
        )


class LearnerLost(TransportError):
    """The session with the learner ended without its saying so; `join` may be called again."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self, address: str, reason: str) -> None:
        self.reason = reason
        ar, en = reason_text(reason)
        super().__init__(
            ar=f"انقطعت الصلة بالمتعلّم {isolate(address)}: {ar}. أعد الانضمام، أو انظر سجلّ المتعلّم.",
            en=f"The link to the learner at {address} is gone: {en}. Join again, or read the learner's log.",
        )


class LearnerUnreachable(TransportError):
    """Nobody answered, or not as a learner would, until the deadline."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self, address: str, waited_s: float, why: str) -> None:
        super().__init__(
            ar=f"لم يُجب المتعلّم على {isolate(address)} خلال {isolate(f'{waited_s:.0f}')} ثانية "
            f"({isolate(why)}). تأكّد من أنه يعمل ومن العنوان والمنفذ وجدار الحماية.",
            en=f"The learner at {address} did not answer within {waited_s:.0f} s ({why}). "
            "Check that it runs, the address, the port and the firewall.",
        )


class JoinRefused(TransportError):
    """The learner answered and said no; `reason` is its code."""

    exit_code = EXIT_WRONG_INPUT

    def __init__(self, address: str, reason: str) -> None:
        self.reason = reason
        ar, en = reason_text(reason)
        super().__init__(
            ar=f"رفض المتعلّم {isolate(address)} انضمام هذا العامل: {ar}. صحّح ذلك ثم أعد المحاولة.",
            en=f"The learner at {address} refused this worker: {en}. Correct that, then try again.",
        )


class CreditTimeout(TransportError):
    """The learner lives but took no batch for so long that something must be wrong with it."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self, address: str, waited_s: float, unacknowledged: int) -> None:
        super().__init__(
            ar=f"لم يأخذ المتعلّم {isolate(address)} أيّ دفعة خلال {isolate(f'{waited_s:.0f}')} ثانية، "
            f"ولديه {isolate(unacknowledged)} دفعات لم يؤكّدها. انظر سجلّه.",
            en=f"The learner at {address} took no batch for {waited_s:.0f} s while {unacknowledged} were "
            "unacknowledged. Read its log.",
        )


class MessageTooLarge(TransportError):
    """The caller asked to send more than `max_frame_bytes`."""

    exit_code = EXIT_WRONG_INPUT

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            ar=f"حجم الرسالة {isolate(size)} بايت يفوق الحدّ {isolate(limit)}. صغّر الدفعة أو ارفع الحدّ.",
            en=f"The message has {size} bytes, over the limit of {limit}. Send less at once or raise it.",
        )


# ---- the two endpoints -------------------------------------------------------------------------


class LearnerEndpoint(Protocol):
    address: str  # host:port that a worker is told
    opened_groups: tuple[
        OpenedGroup, ...
    ]  # in order of opening; by the time `Joined` is received its group is here

    def publish(self, version: int, payload: bytes) -> None:
        """Offer a policy to every worker; returns at once, and an unsent older one is replaced."""

    def grant(self, worker_id: str, payload: bytes) -> bool:
        """Queue one lease to that worker; False if its session is gone."""

    def receive(self, timeout: float) -> Event | None:
        """The next event, or None after `timeout` seconds."""

    def workers(self) -> tuple[str, ...]:
        """Workers that have joined and are not known to be lost or gone."""

    def stats(self) -> dict:
        """Counters of this endpoint (see `session.Counters`)."""

    def finish(self) -> None:
        """Tell every worker the normal end and wait briefly until they have heard it."""

    def close(self) -> None:
        """End every session and free ports and threads; without `finish` workers see a loss."""


class WorkerEndpoint(Protocol):
    def join(self, info: dict) -> dict:
        """Returns the learner's welcome. Raises JoinRefused, LearnerUnreachable or EndOfRun."""

    def latest_policy(self, newer_than: int, timeout: float) -> tuple[int, bytes] | None:
        """The newest policy above `newer_than`, or None after `timeout`. Raises EndOfRun or LearnerLost."""

    def next_lease(self, timeout: float) -> bytes | None:
        """One lease, or None after `timeout`. Raises EndOfRun or LearnerLost."""

    def submit(self, payload: bytes) -> None:
        """Queue one batch; blocks without credit. Raises EndOfRun, LearnerLost or CreditTimeout."""

    def stats(self) -> dict:
        """Counters of this endpoint (see `session.Counters`)."""

    def close(self) -> None:
        """Flush, say goodbye, free threads. Never raises because the learner is gone."""
