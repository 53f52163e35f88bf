"""Our asynchronous trainer against TRL's synchronous `GRPOTrainer`, side by side, in one run.

    make bench                      # or: python benchmarks/arms.py --steps 40 --seeds 0 1

Both sides start from the same base and use the same LoRA, prompts, batch, group, rewards, rate and clip range. The
clock starts at the first optimizer step; adapters are stored on the way and scored afterwards, so evaluation costs no
side any time. Each has the whole machine, one after the other: ours one thread for the learner and one for each worker;
the synchronous side runs twice, with one thread and with as many as there are cores, and the faster one counts. One
seed tells little; give several.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from grpo_lib import settings as run_settings
from grpo_lib.launch import train
from grpo_lib.runfolder import RunFolder, read_lines, write_json
from grpo_lib.settings import RunSettings

TARGET = 0.85


class PeakMemory:
    """Peak of the memory of this process's children, in MiB: shared pages counted once (PSS) where the system says."""

    def __enter__(self) -> PeakMemory:
        self.peak_mib, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            total = 0
            for child in psutil.Process().children(recursive=True):
                try:
                    total += getattr(child.memory_full_info(), "pss", 0) or child.memory_info().rss
                except psutil.Error:
                    continue
            self.peak_mib = max(self.peak_mib, total / (1 << 20))


def asynchronous(settings: RunSettings) -> dict[str, Any]:
    """Our side: one learner and its workers as processes."""
    begun = time.time()
    with PeakMemory() as memory:
        run = train(settings)
    evaluation = json.loads(run.evaluation.read_text(encoding="utf-8"))
    spans = [s for s in read_lines(run.timeline) if s["actor"] == "learner" and s["kind"] == "step"]
    evaluating = sum(s["end"] - s["start"] for s in read_lines(run.timeline) if s["kind"] == "evaluate")
    first, last = spans[0]["start"], spans[-1]["end"]
    return _row(
        settings,
        evaluation["curve"],
        startup=first - begun,
        training=last - first,
        wall=time.time() - begun - evaluating,
        memory=memory.peak_mib,
    )


def synchronous(settings: RunSettings, threads: int) -> dict[str, Any]:
    """TRL's side: one process with `threads` threads."""
    run = RunFolder(settings.run_dir)
    write_json(run.settings, settings.model_dump())
    command = [
        sys.executable,
        str(Path(__file__).with_name("sync_arm.py")),
        str(run.root),
        str(threads),
    ]
    begun = time.time()
    with PeakMemory() as memory, (run.root / "log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    wall = time.time() - begun
    if not (run.root / "done").is_file():
        sys.exit(f"the synchronous side failed: {run.root / 'log'}")
    rows = read_lines(run.metrics)
    # A synchronous step generates before it learns, and its first step begins with that.
    first, last = rows[0]["begun"], rows[-1]["time"]
    curve = _score(settings, run, {row["step"]: row["time"] - first for row in rows})
    return _row(
        settings, curve, startup=first - begun, training=last - first, wall=wall, memory=memory.peak_mib
    )


def _score(settings: RunSettings, run: RunFolder, seconds: dict[int, float]) -> list[dict[str, Any]]:
    """Held-out sampled accuracy of stored adapters, by the evaluator that a run uses."""
    from grpo_lib.evaluate import Evaluator
    from grpo_lib.policy import MergedPolicy, load_base, read_adapter
    from grpo_lib.tasks import load_task

    model, tokenizer = load_base(settings.model)
    policy = MergedPolicy(model, settings.lora_alpha / settings.lora_rank)
    evaluator = Evaluator(settings, load_task(settings.task, settings.seed), tokenizer)
    curve = []
    for step in run.adapter_versions():
        policy.load(read_adapter(run.adapter(step)))
        curve.append({"step": step, "seconds": seconds[step], "sampled": evaluator.sampled_interval(policy)})
    return curve


def _row(
    settings: RunSettings, curve, *, startup: float, training: float, wall: float, memory: float
) -> dict[str, Any]:
    reached = next((point["seconds"] for point in curve if point["sampled"]["mean"] >= TARGET), None)
    return {
        "seconds_to_target": reached,
        "final": curve[-1]["sampled"],
        "startup_s": startup,
        "training_s": training,
        "wall_s": wall,
        "samples_per_s": settings.steps * settings.samples_per_step / training,
        "peak_memory_mib": memory,
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps of each side")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds, one pair of runs each")
    parser.add_argument("--snapshot-every", type=int, default=2, help="steps between scored adapters")
    parser.add_argument("--out", type=Path, default=None, help="write the result as JSON here")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="grpo-bench-") as folder:
        for seed in args.seeds:
            arms = {
                "asynchronous": asynchronous,
                "synchronous-1": partial(synchronous, threads=1),
                "synchronous-all": partial(synchronous, threads=os.cpu_count() or 1),
            }
            sides = {}
            # Which side goes first alternates, so that a machine that warms up favours neither.
            for name in arms if seed % 2 == 0 else reversed(arms):
                settings = run_settings.load(
                    {
                        "run_id": f"{name}-{seed}",
                        "runs_dir": folder,
                        "seed": seed,
                        "steps": args.steps,
                        "snapshot_every": args.snapshot_every,
                        "checkpoint_every": args.steps,
                    }
                )
                sides[name] = arms[name](settings)
            results.append({"seed": seed, **sides})
            _print(seed, sides)
    if args.out:
        machine = {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        write_json(args.out, {"steps": args.steps, "target": TARGET, "machine": machine, "results": results})


def _print(seed: int, sides: dict[str, dict[str, Any]]) -> None:
    ours, one, every = (sides[name] for name in ("asynchronous", "synchronous-1", "synchronous-all"))
    head = ("ours (async)", "TRL, 1 thread", f"TRL, {os.cpu_count()} threads")
    print(f"\n{f'seed {seed}':30}{head[0]:>16}{head[1]:>16}{head[2]:>16}{'ratio':>8}")
    rows = (
        (f"seconds to sampled {TARGET}", "seconds_to_target", "lower"),
        ("samples per second", "samples_per_s", "higher"),
        ("training seconds", "training_s", "lower"),
        ("start-up seconds", "startup_s", "lower"),
        ("wall seconds, no evaluation", "wall_s", "lower"),
        ("peak memory, MiB", "peak_memory_mib", "lower"),
    )
    for title, key, better in rows:
        values = [ours[key], one[key], every[key]]
        theirs = [value for value in values[1:] if value]
        ratio = "-"
        if values[0] and theirs:  # against the better of the two
            ratio = f"{min(theirs) / values[0] if better == 'lower' else values[0] / max(theirs):.2f}"
        shown = ["not reached" if value is None else f"{value:.1f}" for value in values]
        print(f"{title:30}{shown[0]:>16}{shown[1]:>16}{shown[2]:>16}{ratio:>8}")
    finals = [f"{side['final']['mean']:.3f}" for side in (ours, one, every)]
    print(f"{'final sampled accuracy':30}{finals[0]:>16}{finals[1]:>16}{finals[2]:>16}")
    print("ratio: ours against the better of the other two; above 1 is in our favour")


if __name__ == "__main__":
    main()
