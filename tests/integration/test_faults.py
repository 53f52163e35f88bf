"""Processes die, are told to stop, or do not belong: the run goes on, or resumes without losing or repeating work."""

from __future__ import annotations

import html
import json
import re
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import safetensors.torch
from processes import (
    PATIENCE_S,
    SMALL,
    Outcome,
    alive,
    command,
    descendants,
    environment,
    events,
    launches,
    module_of,
    named,
    wait_for_step,
    wait_until,
    wrapper_arguments,
)

from grpo_lib.ledger import check_chain
from grpo_lib.process import SECRET_VARIABLE
from grpo_lib.runfolder import RunFolder
from grpo_lib.teaching_model import teaching_model_path

# Fixtures bring whole runs to their end; on a busy machine that takes minutes.
pytestmark = [pytest.mark.trains, pytest.mark.timeout(1500)]

# An orphan notices that its launcher is gone at once, but a learner first finishes its step and a checkpoint.
ORPHANS_S = 15.0
STEPS = 40


def visible(page: Path) -> str:
    """What a reader of an HTML report sees."""
    text = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.S)
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


# ------------------------------------------------------------------- strangers and a killed worker, in one run


@dataclass
class Disturbed:
    """A run in which one worker was killed and two strangers asked to join."""

    run: RunFolder
    outcome: Outcome
    killed: int  # process id
    strangers: dict[str, Outcome]


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disturbed]:
    root = tmp_path_factory.mktemp("disturbed")
    run = RunFolder(root / "work" / "runs" / "disturbed-run")
    other = shutil.copytree(teaching_model_path(), root / "other-model")
    weights = safetensors.torch.load_file(other / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1.0
    safetensors.torch.save_file(weights, other / "model.safetensors", metadata={"format": "pt"})

    with ExitStack() as stack:
        arguments = wrapper_arguments(run_id=run.run_id, **SMALL | {"steps": 14})
        running = stack.enter_context(command(root / "work", *arguments))
        family = descendants

        def learner() -> psutil.Process | None:
            return next(iter(named(family(running.process), "grpo_lib.learner")), None)

        process = wait_until(learner, running, "a learner process")
        port = process.cmdline()[process.cmdline().index("--port") + 1]
        secret = process.environ()[SECRET_VARIABLE]
        strangers = {}
        for name, model, known in (
            ("wrong-secret", "teaching", secrets.token_hex(32)),
            ("other-base", str(other), secret),
        ):
            words = ["grpo_lib.worker", "--run-id", run.run_id, "--address", f"127.0.0.1:{port}"]
            words += ["--worker-id", name, "--model", model, "--deadline-s", str(PATIENCE_S)]
            env = environment() | {SECRET_VARIABLE: known, "OMP_NUM_THREADS": "1"}
            strangers[name] = stack.enter_context(command(root / name, *words, env=env))
        wait_for_step(run, 1, 2, running)
        victim = next(
            p for p in named(family(running.process), "grpo_lib.worker") if "worker-1" in p.cmdline()
        )
        victim.kill()
        outcome = running.wait()
        yield Disturbed(run, outcome, victim.pid, {name: one.wait(30) for name, one in strangers.items()})


def test_a_killed_worker_costs_the_run_nothing(disturbed: Disturbed) -> None:
    assert disturbed.outcome.code == 0, disturbed.outcome.err
    steps = [e["data"] for e in events(disturbed.run, "step")]
    assert [step["step"] for step in steps] == list(range(1, 15))
    prompts = [prompt for step in steps for prompt in step["prompts"]]
    assert len(prompts) == len(set(prompts)) == 14 * SMALL["prompts_per_step"]


def test_a_killed_worker_is_in_the_ledger_and_in_the_reports(disturbed: Disturbed) -> None:
    (ended,) = [
        e["data"] for e in events(disturbed.run, "process_ended") if e["data"]["pid"] == disturbed.killed
    ]
    assert (ended["worker_id"], ended["signal"]) == ("worker-1", "SIGKILL")
    assert "worker-1" in [e["data"]["worker_id"] for e in events(disturbed.run, "worker_lost")]
    starts = [
        e["data"] for e in events(disturbed.run, "process_started") if e["data"]["worker_id"] == "worker-1"
    ]
    assert len(starts) >= 2, "it is started again"
    assert check_chain(disturbed.run.ledger).intact
    for language in ("ar", "en"):
        text = visible(disturbed.run.reports / f"training-audit.DRAFT.{language}.html")
        assert "SIGKILL" in text and "worker-1" in text


def test_after_training_no_worker_is_started_and_none_is_an_incident(disturbed: Disturbed) -> None:
    """A worker that was started again may come too late to join; that is no fault and needs no further start."""
    recorded = events(disturbed.run)
    finished = next(place for place, e in enumerate(recorded) if e["event"] == "training_finished")
    assert [e["data"] for e in recorded[finished:] if e["event"] == "process_started"] == []
    late = [e["data"] for e in recorded[finished:] if e["event"] == "process_ended"]
    assert [one for one in late if one["signal"] or one["exit_code"]] == []


@pytest.mark.parametrize(("name", "reason"), [("wrong-secret", "join secret"), ("other-base", "base_model")])
def test_a_stranger_is_refused_and_told_why(disturbed: Disturbed, name: str, reason: str) -> None:
    refused = [e["data"] for e in events(disturbed.run, "worker_refused")]
    assert {"worker_id": name, "reason": reason} in refused
    assert name not in [e["data"]["worker_id"] for e in events(disturbed.run, "worker_joined")]
    stranger = disturbed.strangers[name]
    assert stranger.code == 2, stranger.err
    assert "refused" in stranger.err and "رفض" in stranger.err
    assert "Traceback" not in stranger.err
    assert name in visible(disturbed.run.reports / "training-audit.DRAFT.en.html")


@pytest.mark.parametrize("name", ["wrong-secret", "other-base"])
def test_the_strangers_message_is_one_sentence_in_each_language(disturbed: Disturbed, name: str) -> None:
    """A bilingual error inside a bilingual error would print each language twice, one inside the other."""
    said = disturbed.strangers[name].err.splitlines()
    lines = [line for line in said if line.strip() and "%|" not in line]
    arabic = [line for line in lines if re.search("[\u0621-\u064a]", line)]
    assert len(lines) == 2 and len(arabic) == 1, disturbed.strangers[name].err


# --------------------------------------------------------------------- one run, interrupted in every way, resumed


@dataclass
class Launch:
    """What one launch of the run left when it was over."""

    outcome: Outcome
    left: list[str] = field(default_factory=list)  # processes of its family that outlived it
    manifest: dict[str, Any] | None = None


@dataclass
class Resumed:
    """One run through five launches: learner killed, wrapper told to stop, kernel killed, wrapper killed, complete."""

    run: RunFolder
    killed_learner: Launch
    stopped: Launch
    killed_kernel: Launch
    killed_wrapper: Launch
    tampered: int  # step of the checkpoint that was changed before the last launch
    complete: Launch


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    cwd = tmp_path_factory.mktemp("resumed") / "work"
    run = RunFolder(cwd / "runs" / "resumed-run")

    def launch(number: int, step: int | None, interrupt=None) -> Launch:
        # Later launches know the run by its id alone, as `make run RUN_ID=...` does.
        given = SMALL | {"steps": STEPS, "snapshot_every": STEPS, "workers": 1} if number == 1 else {}
        with command(cwd, *wrapper_arguments(run_id=run.run_id, **given)) as running:
            family: list[psutil.Process] = []
            if step is not None:
                wait_for_step(run, number, step, running)
                family = descendants(running.process)
                interrupt(running.process, family)
            outcome = running.wait()
            left = [module_of(process) or process.name() for process in alive(family, ORPHANS_S)]
            for process in alive(family, 0):
                process.kill()
        manifest = run.manifest.read_text(encoding="utf-8") if run.manifest.is_file() else None
        return Launch(outcome, left, manifest and json.loads(manifest))

    def kill_learner(wrapper: psutil.Process, family: list[psutil.Process]) -> None:
        named(family, "grpo_lib.learner")[0].kill()

    def stop_wrapper(wrapper: psutil.Process, family: list[psutil.Process]) -> None:
        wrapper.send_signal(signal.SIGTERM)

    def kill_kernel(wrapper: psutil.Process, family: list[psutil.Process]) -> None:
        named(family, "ipykernel_launcher")[0].kill()

    def kill_wrapper(wrapper: psutil.Process, family: list[psutil.Process]) -> None:
        run.manifest.unlink()
        wrapper.kill()

    seen = Resumed(
        run,
        killed_learner=launch(1, 5, kill_learner),
        stopped=launch(2, 9, stop_wrapper),
        killed_kernel=launch(3, 13, kill_kernel),
        killed_wrapper=launch(4, 17, kill_wrapper),
        tampered=0,
        complete=Launch(Outcome(-1, "", "")),
    )
    sealed = {e["data"]["step"] for e in events(run, "checkpoint_saved")}
    there = {int(path.name.rpartition("-")[2]) for path in run.checkpoints.glob("checkpoint-*")}
    seen.tampered = max(sealed & there)
    target = run.checkpoints / f"checkpoint-{seen.tampered}" / "optimizer.pt"
    raw = bytearray(target.read_bytes())
    raw[len(raw) // 2] ^= 1
    target.write_bytes(raw)
    seen.complete = launch(5, None)
    return seen


def test_nothing_is_left_beside_the_run(resumed: Resumed) -> None:
    """Sockets and temporary files of a process that was killed do not lie about in the user's folder."""
    assert [path.name for path in resumed.run.root.parents[1].iterdir()] == ["runs"]
    assert [path.name for path in resumed.run.root.parent.iterdir()] == [resumed.run.run_id]


def last_step(one: list[dict[str, Any]]) -> int:
    return max(e["data"]["step"] for e in one if e["event"] == "step")


def loaded_step(one: list[dict[str, Any]]) -> int:
    """Step of the checkpoint that a launch began from; 0 is the beginning."""
    return max((e["data"]["step"] for e in one if e["event"] == "checkpoint_loaded"), default=0)


def test_a_killed_learner_is_an_interruption_that_can_be_resumed(resumed: Resumed) -> None:
    seen = resumed.killed_learner
    assert seen.outcome.code == 5, seen.outcome.err
    assert seen.left == []
    assert (seen.manifest["status"], seen.manifest["exit_code"]) == ("interrupted", 5)
    first, second, *_ = launches(resumed.run)
    (ended,) = [e["data"] for e in first if e["event"] == "process_ended" and e["data"]["role"] == "learner"]
    assert ended["signal"] == "SIGKILL"
    assert first[-1]["event"] == "run_ended" and first[-1]["data"]["exit_code"] == 5
    assert resumed.run.run_id in seen.outcome.err
    assert 0 <= last_step(first) - loaded_step(second) <= SMALL["checkpoint_every"]


def test_a_wrapper_told_to_stop_leaves_a_checkpoint_and_no_process(resumed: Resumed) -> None:
    seen = resumed.stopped
    assert seen.outcome.code == 5, seen.outcome.err
    assert seen.left == []
    assert (seen.manifest["status"], seen.manifest["exit_code"]) == ("interrupted", 5)
    second, third = launches(resumed.run)[1:3]
    assert loaded_step(third) == last_step(second), "nothing is lost when it was asked to stop"


def test_a_killed_kernel_leaves_no_orphan(resumed: Resumed) -> None:
    seen = resumed.killed_kernel
    assert seen.outcome.code == 5, seen.outcome.err
    assert seen.left == []
    assert (seen.manifest["status"], seen.manifest["exit_code"]) == ("interrupted", 5)
    assert "Traceback" not in seen.outcome.err
    third, fourth = launches(resumed.run)[2:4]
    assert 0 <= last_step(third) - loaded_step(fourth) <= SMALL["checkpoint_every"]


def test_a_killed_wrapper_leaves_no_orphan(resumed: Resumed) -> None:
    assert resumed.killed_wrapper.outcome.code == -signal.SIGKILL
    assert resumed.killed_wrapper.left == []


def test_a_changed_checkpoint_is_refused_and_the_run_goes_on_from_an_older_one(resumed: Resumed) -> None:
    *_, fifth = launches(resumed.run)
    refused = {e["data"]["step"]: e["data"]["reason"] for e in fifth if e["event"] == "checkpoint_refused"}
    assert "optimizer.pt" in refused[resumed.tampered]
    assert loaded_step(fifth) < resumed.tampered
    steps = [e["data"]["step"] for e in fifth if e["event"] == "step"]
    assert steps == list(range(loaded_step(fifth) + 1, STEPS + 1))


def test_the_ledger_says_where_each_launch_really_began(resumed: Resumed) -> None:
    said = [one[0]["data"]["resumed_from"] or 0 for one in launches(resumed.run)]
    assert said == [loaded_step(one) for one in launches(resumed.run)]


def test_the_last_launch_completes_and_its_report_tells_the_story(resumed: Resumed) -> None:
    seen = resumed.complete
    assert seen.outcome.code == 0, seen.outcome.err
    assert (seen.manifest["status"], seen.manifest["exit_code"]) == ("complete", 0)
    assert check_chain(resumed.run.ledger).intact
    assert len(launches(resumed.run)) == 5
    text = visible(resumed.run.reports / "training-audit.DRAFT.en.html")
    assert "SIGKILL" in text
    assert f"{resumed.tampered}" in text


def test_each_prompt_is_consumed_once_on_the_line_that_survived(resumed: Resumed) -> None:
    line: dict[int, list[int]] = {}
    for one in launches(resumed.run):
        begun = loaded_step(one)
        line = {step: prompts for step, prompts in line.items() if step <= begun}
        line |= {e["data"]["step"]: e["data"]["prompts"] for e in one if e["event"] == "step"}
    assert sorted(line) == list(range(1, STEPS + 1))
    prompts = [prompt for each in line.values() for prompt in each]
    assert len(prompts) == STEPS * SMALL["prompts_per_step"]
    assert len(set(prompts)) == len(prompts)


def test_an_adapter_version_never_means_two_adapters(resumed: Resumed) -> None:
    versions = [e["data"]["version"] for e in events(resumed.run, "adapter_published")]
    assert all(later > earlier for earlier, later in zip(versions, versions[1:], strict=False))
