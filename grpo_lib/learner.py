"""The learner: TRL's `AsyncGRPOTrainer` in its own process, fed by workers, publishing adapters.

python -m grpo_lib.learner --run-dir runs/R --port 29500
"""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from grpo_lib import checkpoints
from grpo_lib.errors import Interrupted, StoppedByHealth
from grpo_lib.evaluate import CURVE_SAMPLES, INTERVAL, Evaluator
from grpo_lib.feed import RolloutFeed
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.measures import overlap
from grpo_lib.offline import names_from_files
from grpo_lib.policy import (
    MergedPolicy,
    base_sha256,
    load_base,
    load_tokenizer,
    lora_config,
    model_source,
    public_name,
    read_adapter,
    resolve_device,
    snapshot,
    write_adapter,
)
from grpo_lib.process import StopRequest, exit_with, hold_lifeline, join_secret
from grpo_lib.recorder import StepRecorder, Timeline
from grpo_lib.runfolder import RunFolder, file_sha256, read_lines, write_json
from grpo_lib.settings import TEACHING_MODEL, RunSettings, read
from grpo_lib.step_records import Sealer
from grpo_lib.tasks import load_task
from grpo_lib.transport.gloo import GlooLearner
from grpo_lib.transport.listening import listen
from grpo_lib.trl_compat import AdapterAsyncGRPOTrainer, AsyncGRPOConfig
from grpo_lib.vault import RunKey, key_from_environment


class Learner:
    """One training session of a run: from its newest sound checkpoint to its last step.

    Args:
        run: the run folder.
        settings: the run's settings.
        listener: where workers knock.
        stop: becomes true when the process is asked to end.
        key: under which the rollouts that were trained on are kept.
    """

    def __init__(
        self, run: RunFolder, settings: RunSettings, listener: socket.socket, stop: StopRequest, key: RunKey
    ):
        self.run = run
        self.settings = settings
        self.stop = stop
        self.ledger = Ledger(run.ledger, run.run_id, "learner")
        self.timeline = Timeline(run)
        self.task = load_task(settings.task, settings.seed, settings.canaries)
        self.lora = lora_config(settings)
        # Versions count on over a resume: an adapter name never means two different adapters.
        published = [
            e["data"]["version"] for e in read_events(run.ledger) if e["event"] == "adapter_published"
        ]
        self.version = max(published, default=0)

        base, self.tokenizer = load_base(settings.model)
        self.base_sha256 = base_sha256(base)
        self.ledger.append(
            "base_loaded",
            base_sha256=self.base_sha256,
            parameters=sum(parameter.numel() for parameter in base.parameters()),
            model="teaching" if settings.model == TEACHING_MODEL else "custom",
            device=str(resolve_device(settings.device)),
        )
        self.endpoint = GlooLearner(
            run_id=settings.run_id,
            secret=join_secret(),
            bind=settings.bind,
            listener=listener,
            heartbeat_s=settings.heartbeat_s,
            deadline_s=settings.deadline_s,
            welcome={"settings": settings.model_dump(include=_FOR_WORKERS)},
            admit=self._admit,
        )
        self.feed = RolloutFeed(
            self.endpoint,
            settings,
            self.ledger,
            base_sha256=self.base_sha256,
            vocabulary=base.config.get_text_config().vocab_size,
            reward_weights=self.task.reward_weights,
            record_span=self.timeline,
            stop_requested=stop,
        )
        self.sealer = Sealer(run, key)
        self.recorder = StepRecorder(run, self.ledger, self.feed, self.timeline, stop, self.sealer)

    def _admit(self, worker_id: str, info: dict[str, Any]) -> str | None:
        return None if info.get("base_sha256") == self.base_sha256 else "base_model"

    def train(self) -> None:
        """Run the trainer to the last step.

        Raises:
            Interrupted: asked to end; a checkpoint of the last whole step is there.
        """
        resume = checkpoints.newest_sound(
            self.run, lambda step, reason: self.ledger.append("checkpoint_refused", step=step, reason=reason)
        )
        if resume is not None:
            self.feed.restore(resume.feed_state(), resume.step)
            self.ledger.append("checkpoint_loaded", step=resume.step)
        trainer = AdapterAsyncGRPOTrainer(
            model=model_source(self.settings.model),
            args=self._trainer_arguments(),
            train_dataset=Dataset.from_dict({"prompt": ["-"]}),  # prompts come with the rollouts
            processing_class=self.tokenizer,
            peft_config=self.lora,
            callbacks=[self.recorder],
            feed=self.feed,
            publish=self._publish,
            on_checkpoint=lambda folder, step: checkpoints.seal(folder, step, self.feed.state(), self.ledger),
        )
        # PEFT has noted the folder it loaded the base from; adapters and checkpoints are handed on.
        self.lora.base_model_name_or_path = public_name(self.settings.model)
        begun = time.time()
        trainer.train(resume_from_checkpoint=str(resume.folder) if resume else None)
        if self.stop and trainer.state.global_step < self.settings.steps:
            raise Interrupted(
                ar=f"أُوقف التدريب بعد الخطوة {trainer.state.global_step} ونقطة الحفظ جاهزة؛ استأنف بالمعرّف نفسه.",
                en=f"Stopped after step {trainer.state.global_step}; a checkpoint is there. Resume with the same run id.",
            )
        if base_sha256(trainer.accelerator.unwrap_model(trainer.model)) != self.base_sha256:
            raise StoppedByHealth(
                ar="تغيّرت أوزان النموذج الأساس أثناء التدريب، وهذا خلل.",
                en="The base weights changed during training, which is a defect.",
            )
        self.ledger.append(
            "training_finished",
            steps=trainer.state.global_step,
            version=self.version,
            adapter_sha256=read_adapter(self.run.adapter(self.version)).sha256,
            seconds=time.time() - begun,
        )

    def _trainer_arguments(self) -> AsyncGRPOConfig:
        settings = self.settings
        device = resolve_device(settings.device)
        return AsyncGRPOConfig(
            output_dir=str(self.run.checkpoints),
            max_steps=settings.steps,
            per_device_train_batch_size=settings.samples_per_step,
            gradient_accumulation_steps=1,
            num_generations=settings.num_generations,
            learning_rate=settings.learning_rate,
            epsilon=settings.epsilon,
            epsilon_high=settings.epsilon_high,
            temperature=settings.temperature,
            max_staleness=settings.max_staleness,
            token_budget=0,
            seed=settings.seed,
            use_cpu=device.type == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="steps",
            save_steps=settings.checkpoint_every,
            save_total_limit=2,
            report_to=[],
            disable_tqdm=True,
        )

    def _publish(self, model: torch.nn.Module, step: int) -> int:
        """Publish the adapter as the next version; store it where the evaluation will want it."""
        begun = time.time()
        adapter = snapshot(model, self.version + 1)
        if not all(tensor.isfinite().all() for tensor in adapter.tensors().values()):
            raise StoppedByHealth(
                ar=f"المُهايئ بعد الخطوة {step} فيه قيم ليست أعدادًا؛ لم يُنشر. اخفض learning_rate.",
                en=f"The adapter after step {step} holds values that are not numbers; it was not published. "
                "Lower learning_rate.",
            )
        self.version = adapter.version
        self.feed.published(adapter.version, adapter.sha256)
        self.endpoint.publish(adapter.version, adapter.payload)
        self.timeline("learner", "publish", begun, time.time(), adapter.version)
        size = len(adapter.payload)
        self.ledger.append(
            "adapter_published", version=adapter.version, sha256=adapter.sha256, bytes=size, step=step
        )
        self.recorder.versions.append(adapter.version)
        self.recorder.adapter_bytes = size
        if step % self.settings.snapshot_every == 0 or step == self.settings.steps:
            write_adapter(self.run.adapter(adapter.version), adapter, self.lora)
        return adapter.version

    def close(self) -> None:
        self.endpoint.close()
        stats = self.endpoint.stats()
        self.ledger.append(
            "rollouts_sealed",
            **self.sealer.summary(),
            link_seconds=round(stats["seal_s"] + stats["open_s"], 4),
            ledger_seconds=round(self.ledger.seconds, 4),
        )
        write_json(self.run.transport, stats)


def evaluate(run: RunFolder, settings: RunSettings, stop: StopRequest) -> None:
    """Score base, stored adapters and final adapter on held-out questions; writes evaluation.json.

    Raises:
        Interrupted: asked to end; the same run id evaluates again.
    """

    def interrupt() -> None:
        if stop:
            raise Interrupted(
                ar="أُوقف التقييم بعد انتهاء التدريب؛ استأنف بالمعرّف نفسه.",
                en="Evaluation was stopped after training had finished; resume with the same run id.",
            )

    ledger, timeline = Ledger(run.ledger, run.run_id, "learner"), Timeline(run)
    model, _ = load_base(settings.model)
    policy = MergedPolicy(model, settings.lora_alpha / settings.lora_rank)
    task = load_task(settings.task, settings.seed, settings.canaries)
    evaluator = Evaluator(settings, task, load_tokenizer(settings.model), interrupt)
    begun = time.time()
    base = evaluator.full(policy)
    events = read_events(run.ledger)
    # After a resume a step was published twice; the later one is on the line that led to the final adapter.
    step_of = {e["data"]["step"]: e["data"]["version"] for e in events if e["event"] == "adapter_published"}
    finished = {row["step"]: row["time"] for row in read_lines(run.metrics)}
    spans = read_lines(run.timeline)
    first = min((s["start"] for s in spans if s["actor"] == "learner" and s["kind"] == "step"), default=0.0)
    curve = [{"version": 0, "step": 0, "seconds": 0.0, "sampled": base["sampled"]}]
    trained = base
    for step, version in sorted(step_of.items()):
        if step == 0 or not run.adapter(version).is_dir():
            continue
        policy.load(read_adapter(run.adapter(version)))
        trained = (
            evaluator.full(policy)
            if step == settings.steps
            else {"sampled": evaluator.sampled_interval(policy)}
        )
        curve.append(
            {
                "version": version,
                "step": step,
                "seconds": finished[step] - first,
                "sampled": trained["sampled"],
            }
        )
    timeline("learner", "evaluate", begun, time.time(), policy.version)
    write_json(
        run.evaluation,
        {
            "task": settings.task,
            "heldout_size": task.heldout_size,
            "questions": len(evaluator.examples),
            "samples_per_question": settings.eval_samples,
            "curve_samples_per_question": min(CURVE_SAMPLES, settings.eval_samples),
            "temperature": settings.temperature,
            "seed": settings.seed,
            "interval": INTERVAL,
            "base": base,
            "trained": trained,
            "curve": curve,
            "overlap": overlap(spans),
        },
    )
    ledger.append("evaluated", evaluation_sha256=file_sha256(run.evaluation))


# What a worker needs; who answers for the run and where it is kept is none of its business.
_FOR_WORKERS = {
    "run_id",
    "task",
    "seed",
    "canaries",
    "num_generations",
    "max_new_tokens",
    "temperature",
    "lora_rank",
    "lora_alpha",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m grpo_lib.learner", description=__doc__.split("\n\n")[0])
    parser.add_argument("--run-dir", required=True, type=Path, help="folder of the run | مجلد التشغيل")
    parser.add_argument("--port", required=True, type=int, help="port to listen on | منفذ الاستماع")
    parser.add_argument("--listen-fd", type=int, help="socket that listens there already, from the launcher")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input closes")
    return parser.parse_args()


def main() -> None:
    args = _arguments()
    if args.lifeline:
        hold_lifeline(grace_s=30.0)
    stop = StopRequest()
    run = RunFolder(args.run_dir)
    settings = read(run.settings)
    torch.set_num_threads(settings.learner_threads)
    names_from_files()
    # A learner that lost its launcher may still be writing its last checkpoint.
    key = key_from_environment(run.run_id)
    with run.locked("learner", timeout_s=60.0):
        if not any(e["event"] == "training_finished" for e in read_events(run.ledger)):
            if args.listen_fd is None:
                listener = listen(settings.bind, range(args.port, args.port + 1))
            else:
                listener = socket.socket(fileno=args.listen_fd)
            learner = Learner(run, settings, listener, stop, key)
            try:
                learner.train()
            finally:
                learner.close()
        evaluate(run, settings, stop)


if __name__ == "__main__":
    exit_with(main)
