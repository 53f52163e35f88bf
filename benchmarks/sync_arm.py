"""The other side of the bench: TRL's synchronous `GRPOTrainer` on the same model, LoRA, batch, group and rewards.

    python benchmarks/sync_arm.py RUN_DIR THREADS      # RUN_DIR holds settings.json

Writes adapters and metrics.jsonl as a run does, so that one evaluation serves both sides.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from grpo_lib.policy import load_base, lora_config, snapshot, write_adapter
from grpo_lib.runfolder import RunFolder, append_line
from grpo_lib.settings import RunSettings, read
from grpo_lib.tasks import load_task


class Snapshots(TrainerCallback):
    """Times each step and stores adapters as often as the asynchronous side does."""

    def __init__(self, run: RunFolder, settings: RunSettings):
        self.run, self.settings, self.config = run, settings, lora_config(settings)

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        self.begun = time.time()

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        step = state.global_step
        append_line(self.run.metrics, {"step": step, "time": time.time(), "begun": self.begun})
        if step % self.settings.snapshot_every == 0 or step == self.settings.steps:
            write_adapter(self.run.adapter(step), snapshot(model, step), self.config)


def main(run: RunFolder, threads: int) -> None:
    torch.set_num_threads(threads)
    settings = read(run.settings)
    task = load_task(settings.task, settings.seed)
    model, tokenizer = load_base(settings.model)
    begin = tokenizer.bos_token or ""
    examples = [task.train_example(index) for index in range(settings.steps * settings.prompts_per_step)]
    trainer = GRPOTrainer(
        model=model.requires_grad_(True),
        reward_funcs=list(task.reward_functions),
        args=GRPOConfig(
            output_dir=str(run.checkpoints),
            max_steps=settings.steps,
            per_device_train_batch_size=settings.samples_per_step,
            gradient_accumulation_steps=1,
            num_generations=settings.num_generations,
            max_completion_length=settings.max_new_tokens,
            temperature=settings.temperature,
            top_k=0,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="constant",
            epsilon=settings.epsilon,
            epsilon_high=settings.epsilon_high,
            loss_type="bnpo",  # a token mean over the batch, as `AsyncGRPOTrainer` has it
            reward_weights=list(task.reward_weights),
            seed=settings.seed,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": begin + e.prompt, "answer": e.answer} for e in examples]),
        processing_class=tokenizer,
        peft_config=lora_config(settings),
        callbacks=[Snapshots(run, settings)],
    )
    trainer.train()


if __name__ == "__main__":
    main(RunFolder(sys.argv[1]), int(sys.argv[2]))
    # Generation leaves worker threads behind that can abort the interpreter's exit.
    sys.stdout.flush()
    Path(sys.argv[1], "done").touch()
