"""The rollout worker: its own process, on this machine or another.

It takes leases on prompts, samples whole groups with the newest adapter it has, scores them, and sends them back
with the log-probabilities under that adapter. If the learner is out of reach for a while it joins again.

    python -m grpo_lib.worker --run-id R --address HOST:PORT --worker-id worker-0 --model teaching
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

from grpo_lib import __version__
from grpo_lib.objective import group_advantages
from grpo_lib.offline import names_from_files
from grpo_lib.policy import (
    AdapterSnapshot,
    MergedPolicy,
    base_sha256,
    decode,
    encode_prompt,
    eos_ids,
    load_base,
)
from grpo_lib.process import exit_with, hold_lifeline, join_secret
from grpo_lib.rollouts import Header, RolloutBatch, Span
from grpo_lib.sampler import sample, uniforms
from grpo_lib.tasks import load_task
from grpo_lib.transport import EndOfRun, LearnerLost, WorkerEndpoint
from grpo_lib.transport.gloo import GlooWorker

# How long one look for new work or a new policy may block before the loop comes round again.
_POLL_S = 1.0


class RolloutWorker:
    """Samples leases with the newest policy.

    Args:
        worker_id: name of this worker in the run.
        model_name: base model, as this machine knows it; its digest must equal the learner's.
    """

    def __init__(self, worker_id: str, model_name: str):
        self.worker_id = worker_id
        self.model, self.tokenizer = load_base(model_name)
        self.base_sha256 = base_sha256(self.model)
        self.policy: MergedPolicy | None = None
        self._sequence = 0

    def serve(self, endpoint: WorkerEndpoint) -> None:
        """Work until the run ends.

        Raises:
            LearnerLost: the learner died or is silent.
        """
        settings = endpoint.join({"base_sha256": self.base_sha256, "code_version": __version__})["settings"]
        print(f"{self.worker_id}: joined run {settings['run_id']}", flush=True)
        if self.policy is None:
            self.policy = MergedPolicy(self.model, settings["lora_alpha"] / settings["lora_rank"])
        task = load_task(settings["task"], settings["seed"], settings["canaries"])
        try:
            while True:
                raw = endpoint.next_lease(timeout=_POLL_S)
                if raw is None:
                    continue
                lease = json.loads(raw)
                self._catch_up(endpoint, lease["min_version"])
                endpoint.submit(self._rollout(lease, task, settings).to_bytes())
        except EndOfRun:
            print(f"{self.worker_id}: the run has ended", flush=True)

    def _catch_up(self, endpoint: WorkerEndpoint, min_version: int) -> None:
        """Load the newest policy; wait for it while ours is older than the lease asks for."""
        while True:
            wait = _POLL_S if self.policy.version < min_version else 0.0
            newest = endpoint.latest_policy(self.policy.version, timeout=wait)
            if newest is not None:
                self.policy.load(AdapterSnapshot.of(*newest))
            if self.policy.version >= min_version:
                return

    def _rollout(self, lease: dict[str, Any], task: Any, settings: dict[str, Any]) -> RolloutBatch:
        examples = [task.train_example(index) for index in lease["prompts"]]
        prompts = [encode_prompt(self.tokenizer, example.prompt) for example in examples]
        group, length = settings["num_generations"], settings["max_new_tokens"]
        begun = time.time()
        completions = sample(
            self.model,
            prompts,
            copies=group,
            max_new_tokens=length,
            eos=eos_ids(self.model, self.tokenizer),
            pad=self.tokenizer.pad_token_id,
            temperature=settings["temperature"],
            draws=np.concatenate([uniforms(settings["seed"], e.index, group, length) for e in examples]),
        )
        generated = time.time()
        repeated = [example for example in examples for _ in range(group)]
        ids = [completion.ids for completion in completions]
        inputs = {"prompts": [e.prompt for e in repeated], "answer": [e.answer for e in repeated]}
        texts = decode(self.tokenizer, ids)
        rewards = np.array(
            [f(completions=texts, completion_ids=ids, **inputs) for f in task.reward_functions],
            dtype=np.float32,
        ).T  # (B, F)
        total = torch.from_numpy(rewards @ np.array(task.reward_weights, dtype=np.float32))
        advantages = group_advantages(total.view(-1, group)).flatten().numpy()
        scored = time.time()

        starts = [prompts[row // group] for row in range(len(ids))]
        self._sequence += 1
        return RolloutBatch(
            header=Header(
                worker_id=self.worker_id,
                lease_id=lease["lease_id"],
                sequence=self._sequence,
                policy_version=self.policy.version,
                policy_sha256=self.policy.sha256,
                base_sha256=self.base_sha256,
                prompts=tuple(lease["prompts"]),
                reward_names=tuple(f.__name__ for f in task.reward_functions),
                spans=(Span("generate", begun, generated), Span("score", generated, scored)),
            ),
            input_ids=np.concatenate([np.array(p + c, np.int32) for p, c in zip(starts, ids, strict=True)]),
            completion_mask=np.concatenate(
                [
                    np.repeat(np.array([0, 1], np.uint8), [len(p), len(c)])
                    for p, c in zip(starts, ids, strict=True)
                ]
            ),
            old_log_probs=np.concatenate(
                [
                    np.array([0.0] * len(p) + c.log_probs, np.float32)
                    for p, c in zip(starts, completions, strict=True)
                ]
            ),
            lengths=np.array([len(p) + len(c) for p, c in zip(starts, ids, strict=True)], np.int32),
            rewards=rewards,
            advantages=advantages,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m grpo_lib.worker", description=__doc__.split("\n\n")[1])
    parser.add_argument("--run-id", required=True, help="run to join | التشغيل")
    parser.add_argument("--address", required=True, help="HOST:PORT of the learner | عنوان المتعلِّم")
    parser.add_argument("--worker-id", required=True, help="name of this worker | اسم العامل")
    parser.add_argument("--model", default="teaching", help="base model on this machine | النموذج الأساس")
    parser.add_argument(
        "--bind", default=None, help="own address for Gloo (default: that of the route to the learner)"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads | عدد الخيوط")
    parser.add_argument("--heartbeat-s", type=float, default=2.0, help="seconds between heartbeats")
    parser.add_argument(
        "--deadline-s", type=float, default=60.0, help="seconds of silence before the learner is lost"
    )
    parser.add_argument("--lifeline", action="store_true", help="end when standard input closes")
    return parser.parse_args()


def main() -> None:
    args = _arguments()
    if args.lifeline:
        hold_lifeline()
    torch.set_num_threads(args.threads)
    names_from_files()
    secret = join_secret()
    worker = RolloutWorker(args.worker_id, args.model)
    while True:
        endpoint = GlooWorker(
            run_id=args.run_id,
            secret=secret,
            address=args.address,
            worker_id=args.worker_id,
            heartbeat_s=args.heartbeat_s,
            deadline_s=args.deadline_s,
            bind=args.bind,
        )
        try:
            worker.serve(
                endpoint
            )  # a refusal, or a learner out of reach, ends the process with its own message
            return
        except LearnerLost as error:
            # A stopped and continued worker, or a cut link, comes here too: the learner may be alive and waiting.
            print(f"{args.worker_id}: {error.ar}\n{args.worker_id}: {error.en}", flush=True)
        finally:
            endpoint.close()


if __name__ == "__main__":
    exit_with(main)
