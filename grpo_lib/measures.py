"""Figures of a run computed from its ledger events, metrics, time stamps and evaluation; each keeps its source.

Units: seconds for time, bytes for size, versions for staleness (a sample made with adapter v and used at version w has
lag w - v), shares in 0..1.
"""

from __future__ import annotations

import math
from typing import Any

from grpo_lib.incidents import data_of, public

# A figure with more spans than this is unreadable; the first ones are drawn and the caption says so.
MAX_SPANS = 1500


def number(value: Any) -> float | int | None:
    """`value` if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _named(events: list[dict[str, Any]], name: str) -> list[tuple[int | None, dict[str, Any]]]:
    return [(event.get("seq"), data_of(event)) for event in events if event.get("event") == name]


def _seqs(rows: list[tuple[int | None, Any]]) -> list[int]:
    """First and last ledger line of what a figure was computed from."""
    known = [seq for seq, _ in rows if isinstance(seq, int)]
    return [known[0], known[-1]] if known else []


# ---------------------------------------------------------------------------------------------------- result


def interval(value: Any) -> dict[str, float] | None:
    """`{"mean", "low", "high"}` if all three are numbers, else None."""
    if not isinstance(value, dict):
        return None
    found = {key: number(value.get(key)) for key in ("mean", "low", "high")}
    return None if None in found.values() else found


def result(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Held-out accuracy before and after; None where it was not measured."""

    # The evaluation names pass@k by its k, which is the number of samples per question.
    k = number(evaluation.get("samples_per_question"))

    def side(name: str) -> dict[str, Any] | None:
        values = evaluation.get(name)
        if not isinstance(values, dict):
            return None
        found = {key: interval(values.get(key)) for key in ("greedy", "sampled")}
        found["pass_at_k"] = interval(values.get(f"pass_at_{k}"))
        share = number(values.get("reasoning_share"))
        return {**found, "reasoning_share": share} if any(found.values()) else None

    plain = {
        key: number(evaluation.get(key))
        for key in ("heldout_size", "questions", "samples_per_question", "temperature", "seed")
    }
    method = evaluation.get("interval")
    return {
        "base": side("base"),
        "trained": side("trained"),
        **plain,
        "interval": public(method) if isinstance(method, str) else None,
    }


# ---------------------------------------------------------------------------------- processes, adapters, staleness


def process_groups(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every process group that was opened, with its backend: the record behind "no NCCL"."""
    groups = []
    for seq, data in _named(events, "process_group_opened"):
        members = data.get("members")
        groups.append(
            {
                "seq": seq,
                "backend": public(data.get("backend", "?"), 20),
                "members": [public(member, 40) for member in members] if isinstance(members, list) else [],
                "address_class": public(data.get("address_class", "unknown"), 20),
            }
        )
    return groups


def workers(events: list[dict[str, Any]]) -> dict[str, Any]:
    """How many joined, left, were lost or refused."""
    counts = {
        name: len(_named(events, name))
        for name in ("worker_joined", "worker_left", "worker_lost", "worker_refused")
    }
    ids = sorted({public(data.get("worker_id", "?"), 40) for _, data in _named(events, "worker_joined")})
    return {**counts, "ids": ids}


def base_model(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The base model that was loaded, and whether every worker that joined held the same one."""
    loaded, joined = _named(events, "base_loaded"), _named(events, "worker_joined")
    if not loaded:
        return {"sha256": None, "model": None, "parameters": None, "same": None, "seq": None}
    seq, data = loaded[-1]
    digest = data.get("base_sha256")
    same = all(one.get("base_sha256") == digest for _, one in joined) if joined else None
    return {
        "sha256": public(digest, 64) if digest else None,
        "model": public(data.get("model", "")) or None,
        "parameters": number(data.get("parameters")),
        "same": same,
        "seq": seq,
    }


def sync(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Size and count of the adapters that were published."""
    published = _named(events, "adapter_published")
    sizes = [size for _, data in published if (size := number(data.get("bytes"))) is not None]
    return {
        "count": len(published),
        "bytes_mean": round(sum(sizes) / len(sizes)) if sizes else None,
        "bytes_largest": max(sizes, default=None),
        "bytes_total": sum(sizes) if sizes else None,
        "last_version": number(published[-1][1].get("version")) if published else None,
        "seqs": _seqs(published),
    }


def staleness(events: list[dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Steps done and the lag of the samples they used, weighted by samples."""
    rows = _named(events, "step")
    # A resumed run repeats the steps since its checkpoint; the later one is what the adapter holds.
    latest = {step: data for _, data in rows if (step := number(data.get("step"))) is not None}
    weighted = [
        (lag, number(data.get("samples")) or 1)
        for data in latest.values()
        if (lag := number(data.get("lag_mean"))) is not None
    ]
    largest = max(
        (lag for data in latest.values() if (lag := number(data.get("lag_max"))) is not None), default=None
    )
    bound = number(settings.get("max_staleness"))
    dropped = sum(number(data.get("groups")) or 0 for _, data in _named(events, "stale_dropped"))
    samples = sum(number(data.get("samples")) or 0 for data in latest.values())
    return {
        "steps": len(latest),
        "steps_planned": number(settings.get("steps")),
        "steps_repeated": len(rows) - len(latest),
        "samples": samples or None,
        "lag_mean": sum(lag * weight for lag, weight in weighted) / sum(w for _, w in weighted)
        if weighted
        else None,
        "lag_max": largest,
        "bound": bound,
        "within_bound": largest <= bound if largest is not None and bound is not None else None,
        "groups_dropped": dropped,
        "seqs": _seqs(rows),
    }


def traffic(transport: dict[str, Any]) -> dict[str, Any]:
    """What the learner's end of the transport counted: frames and bytes on the wire, seconds spent sealing."""
    names = ("sessions", "frames_sent", "bytes_sent", "frames_received", "bytes_received", "seal_s", "open_s")
    return {name: value for name in names if (value := number(transport.get(name))) is not None}


# ----------------------------------------------------------------------------------------------- time and series


def spans(timeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Well-formed spans sorted by start: actor, kind, start and end in Unix seconds."""
    found = []
    for row in timeline:
        start, end = number(row.get("start")), number(row.get("end"))
        if start is not None and end is not None and end >= start:
            actor, kind = public(row.get("actor", "?"), 40), public(row.get("kind", "?"), 20)
            found.append({"actor": actor, "kind": kind, "start": start, "end": end})
    return sorted(found, key=lambda span: (span["start"], span["actor"], span["kind"]))


def _union(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _shared(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
    """Length of the intersection of two unions of intervals."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        i, j = (i + 1, j) if first[i][1] < second[j][1] else (i, j + 1)
    return total


def overlap(timeline: list[dict[str, Any]]) -> dict[str, Any]:
    """Share of training time in which a worker generates while the learner steps.

    Training time runs from the start of the first learner step to the end of the last one.
    """
    all_spans = spans(timeline)
    steps = _union(
        [(s["start"], s["end"]) for s in all_spans if s["actor"] == "learner" and s["kind"] == "step"]
    )
    first, last = (steps[0][0], steps[-1][1]) if steps else (0.0, 0.0)
    generate = _union(
        [
            (max(s["start"], first), min(s["end"], last))
            for s in all_spans
            if s["actor"] != "learner" and s["kind"] == "generate" and s["end"] > first and s["start"] < last
        ]
    )
    training = last - first
    shared = _shared(steps, generate)
    return {
        "share": shared / training if training else None,
        "overlap_s": shared if training else None,
        "training_s": training or None,
        "step_s": sum(end - start for start, end in steps) if steps else None,
        "generate_s": sum(end - start for start, end in generate) if generate else None,
    }


def series(
    metrics: list[dict[str, Any]],
    timeline: list[dict[str, Any]],
    evaluation: dict[str, Any],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """What the figures draw: numbers only."""
    latest = {step: row for row in metrics if (step := number(row.get("step"))) is not None}
    rows = [latest[step] for step in sorted(latest)]

    def column(name: str) -> list[list[float]]:
        return [[row["step"], value] for row in rows if (value := number(row.get(name))) is not None]

    curve = []
    points = evaluation.get("curve")
    for point in points if isinstance(points, list) else []:
        accuracy = interval(point.get("sampled")) if isinstance(point, dict) else None
        step = number(point.get("step")) if isinstance(point, dict) else None
        if accuracy and step is not None:
            curve.append({"step": step, "seconds": number(point.get("seconds")), **accuracy})
    all_spans = spans(timeline)
    return {
        "reward": column("reward"),
        "lag_mean": column("lag_mean"),
        "lag_max": column("lag_max"),
        "bound": number(settings.get("max_staleness")),
        "curve": sorted(curve, key=lambda point: point["step"]),
        "spans": all_spans[:MAX_SPANS],
        "spans_total": len(all_spans),
    }
