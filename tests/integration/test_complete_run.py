"""A complete small run, from the wrapper's command line to the reports: what it leaves, and what it must not leave."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
import safetensors.torch
import torch
from peft import PeftModel
from processes import ROOT, SMALL, CompleteRun, command, events, wrapper_arguments

from grpo_lib import pdf
from grpo_lib.ledger import check_chain
from grpo_lib.measures import overlap
from grpo_lib.policy import encode_prompt, load_base
from grpo_lib.runfolder import file_sha256, read_lines
from grpo_lib.tasks import load_task

# Fixtures bring whole runs to their end; on a busy machine that takes minutes.
pytestmark = [pytest.mark.trains, pytest.mark.timeout(1500)]

# Nobody has stated who answers for the run, so its reports are drafts and their names say so.
REPORTS = {
    f"{name}.DRAFT.{language}.html"
    for name in ("training-audit", "data-residency")
    for language in ("ar", "en")
}
# What a completion is made of and nothing else in a run folder is.
COMPLETION_MARKS = ("<فكر>", "</فكر>", "<جواب>", "</جواب>")
MAX_OUTPUT_BYTES = 200_000


def test_it_completes_and_says_where_everything_is(complete: CompleteRun) -> None:
    assert complete.outcome.code == 0, complete.outcome.err
    for path in [*complete.run.reports.glob("*.html"), *complete.run.notebooks.iterdir()]:
        assert str(path.relative_to(complete.cwd)) in complete.outcome.out
    assert f"run {complete.run.run_id}" in complete.outcome.out
    assert "Traceback" not in complete.outcome.err


def test_the_manifest_lists_every_file_with_its_digest(complete: CompleteRun) -> None:
    manifest = json.loads(complete.run.manifest.read_text(encoding="utf-8"))
    assert (manifest["run_id"], manifest["status"], manifest["exit_code"]) == (
        complete.run.run_id,
        "complete",
        0,
    )
    assert manifest["started"] < manifest["ended"]
    assert [(one["name"], one["exit_code"]) for one in manifest["notebooks"]] == [("train", 0), ("report", 0)]
    root = complete.run.root
    there = {p.relative_to(root) for p in root.rglob("*") if p.is_file() and p.suffix != ".lock"}
    assert set(manifest["files"]) == {str(path) for path in there} - {"manifest.json"}
    for name, listed in manifest["files"].items():
        assert listed == {"sha256": file_sha256(root / name), "bytes": (root / name).stat().st_size}, name


def test_four_reports(complete: CompleteRun) -> None:
    assert {path.name for path in complete.run.reports.glob("*.html")} == REPORTS
    if pdf.available():
        assert {path.stem for path in complete.run.reports.glob("*.pdf")} == {
            Path(name).stem for name in REPORTS
        }


def test_nothing_is_left_beside_the_run(complete: CompleteRun) -> None:
    assert [path.name for path in complete.cwd.iterdir()] == ["runs"]
    assert [path.name for path in (complete.cwd / "runs").iterdir()] == [complete.run.run_id]


# ----------------------------------------------------------------------------------------------------- notebooks


@pytest.fixture(scope="module")
def notebooks(complete: CompleteRun) -> dict[str, nbformat.NotebookNode]:
    return {path.stem: nbformat.read(path, as_version=4) for path in complete.run.notebooks.glob("*.ipynb")}


def test_executed_notebooks_have_no_error_and_no_huge_output(
    notebooks: dict[str, nbformat.NotebookNode],
) -> None:
    assert set(notebooks) == {"train", "report"}
    for notebook in notebooks.values():
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code), "every cell was executed"
        outputs = [output for cell in code for output in cell.outputs]
        assert outputs
        for output in outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.get("text")
            assert len(json.dumps(output, ensure_ascii=False).encode()) <= MAX_OUTPUT_BYTES


def test_the_last_cell_asks_both_policies(
    complete: CompleteRun, notebooks: dict[str, nbformat.NotebookNode]
) -> None:
    shown = json.dumps(notebooks["train"].cells[-1].outputs, ensure_ascii=False)
    for example in load_task("arithmetic", 0).heldout(3, seed=1):
        assert example.prompt in shown
    newest = complete.run.adapter_versions()[-1]
    assert "base" in shown and f"adapter v{newest:06d}" in shown


# --------------------------------------------------------------------------------- what must not be written down


@pytest.fixture(scope="module")
def prompts(complete: CompleteRun) -> set[str]:
    """Every question that this run may have seen: trained on, handed out, or held out."""
    task = load_task("arithmetic", 0)
    used = [index for e in events(complete.run, "step") for index in e["data"]["prompts"]]
    trained = {task.train_example(index).prompt for index in range(max(used) + 20)}
    return trained | {example.prompt for example in task.heldout(task.heldout_size)}


def evidence_texts(complete: CompleteRun) -> Iterator[tuple[str, str]]:
    """Everything that an auditor, an administrator or a colleague may be handed."""
    run = complete.run
    paths = [
        run.ledger,
        run.metrics,
        run.timeline,
        run.evaluation,
        run.data_manifest,
        run.decision,
        run.settings,
    ]
    paths += [run.manifest, run.screen, run.network, run.statement, run.packages, *run.tree_heads.iterdir()]
    paths += [
        *run.reports.glob("*.html"),
        run.reports / "model-card.md",
        *run.logs.iterdir(),
        run.root / "transport.json",
    ]
    for path in paths:
        yield path.name, html.unescape(path.read_text(encoding="utf-8"))
    yield "standard output", complete.outcome.out
    yield "standard error", complete.outcome.err


def test_no_prompt_and_no_completion_in_the_evidence(complete: CompleteRun, prompts: set[str]) -> None:
    for name, text in evidence_texts(complete):
        assert not [prompt for prompt in prompts if prompt in text], name
        assert not [mark for mark in COMPLETION_MARKS if mark in text], name


def test_no_prompt_in_notebooks_outside_the_cell_that_asks(
    prompts: set[str], notebooks: dict[str, nbformat.NotebookNode]
) -> None:
    asking = notebooks["train"].cells[-1]
    for notebook in notebooks.values():
        text = json.dumps([c for c in notebook.cells if c is not asking], ensure_ascii=False)
        assert not [prompt for prompt in prompts if prompt in text]
        assert not [mark for mark in COMPLETION_MARKS if mark in text]


def test_no_secret_anywhere(complete: CompleteRun) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", complete.secret)
    wanted = complete.secret.encode()
    holders = [
        path for path in complete.run.root.rglob("*") if path.is_file() and wanted in path.read_bytes()
    ]
    assert holders == []
    assert complete.secret not in complete.outcome.out + complete.outcome.err


def private_names(complete: CompleteRun) -> list[str]:
    """The user's name, and the folders in which the run, the project and the interpreter live."""
    return [complete.user, str(complete.cwd), str(complete.cwd.resolve()), str(ROOT)]


def test_no_user_name_and_no_absolute_path_in_the_evidence(complete: CompleteRun) -> None:
    for name, text in evidence_texts(complete):
        if name != "learner.log":  # libraries name their own files in warnings; see the next test
            assert not [word for word in private_names(complete) if word in text], name


def test_no_user_name_in_any_file(complete: CompleteRun) -> None:
    wanted = complete.user.encode()
    assert [p for p in complete.run.root.rglob("*") if p.is_file() and wanted in p.read_bytes()] == []


def test_no_absolute_path_in_executed_notebooks(complete: CompleteRun) -> None:
    for path in complete.run.notebooks.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not [word for word in private_names(complete) if word in text], path.name


def test_no_absolute_path_beside_the_adapters(complete: CompleteRun) -> None:
    for path in complete.run.adapters.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in private_names(complete) if word in text], path.name


# -------------------------------------------------------------------------------------------------------- ledger


def test_the_chain_holds(complete: CompleteRun) -> None:
    check = check_chain(complete.run.ledger)
    assert check.intact and not check.torn_lines
    assert check.lines == len(events(complete.run))
    assert {event["run_id"] for event in events(complete.run)} == {complete.run.run_id}


def test_the_ledger_tells_the_whole_run(complete: CompleteRun) -> None:
    names = [event["event"] for event in events(complete.run)]
    order = ["run_started", "gate_decided", "process_started", "base_loaded", "worker_joined", "step"]
    order += ["training_finished", "evaluated", "run_ended"]
    places = [names.index(name) for name in order]
    assert places == sorted(places)
    (started,) = events(complete.run, "run_started")
    assert started["data"]["settings_sha256"] == file_sha256(complete.run.settings)
    (evaluated,) = events(complete.run, "evaluated")
    assert evaluated["data"]["evaluation_sha256"] == file_sha256(complete.run.evaluation)
    (declared,) = events(complete.run, "data_declared")
    assert declared["data"]["data_manifest_sha256"] == file_sha256(complete.run.data_manifest)
    (built,) = events(complete.run, "report_built")
    there = [path for path in complete.run.reports.rglob("*") if path.is_file()]
    assert built["data"]["files"] == {
        p.relative_to(complete.run.reports).as_posix(): file_sha256(p) for p in there
    }
    pids = {e["data"]["pid"] for e in events(complete.run, "process_started")}
    assert pids == {e["data"]["pid"] for e in events(complete.run, "process_ended")} and len(pids) == 3


def test_every_process_group_is_a_gloo_pair(complete: CompleteRun) -> None:
    groups = [e["data"] for e in events(complete.run, "process_group_opened")]
    assert [group["backend"] for group in groups] == ["gloo"] * len(groups)
    assert sorted(group["members"] for group in groups) == [["learner", "worker-0"], ["learner", "worker-1"]]
    assert {group["address_class"] for group in groups} == {"loopback"}


def test_each_prompt_is_consumed_once(complete: CompleteRun) -> None:
    steps = [e["data"] for e in events(complete.run, "step")]
    assert [step["step"] for step in steps] == list(range(1, SMALL["steps"] + 1))
    prompts = [prompt for step in steps for prompt in step["prompts"]]
    assert len(prompts) == len(set(prompts)) == SMALL["steps"] * SMALL["prompts_per_step"]


def test_versions_are_published_in_order_and_stored_as_published(complete: CompleteRun) -> None:
    published = {e["data"]["version"]: e["data"] for e in events(complete.run, "adapter_published")}
    assert list(published) == list(range(1, SMALL["steps"] + 2))
    stored = complete.run.adapter_versions()
    steps = [published[version]["step"] for version in stored]
    assert steps == list(range(0, SMALL["steps"] + 1, SMALL["snapshot_every"]))
    for version in stored:
        weights = complete.run.adapter(version) / "adapter_model.safetensors"
        assert file_sha256(weights) == published[version]["sha256"]
    (finished,) = events(complete.run, "training_finished")
    assert finished["data"]["adapter_sha256"] == published[stored[-1]]["sha256"]


# ------------------------------------------------------------------------------------------- asynchronous, correct


def test_staleness_stays_within_its_bound(complete: CompleteRun) -> None:
    rows = read_lines(complete.run.metrics)
    assert rows[0]["lag_max"] == 0, "the first batch is from the policy that learns from it"
    assert max(row["lag_max"] for row in rows) <= 2
    assert rows[-1]["lag_max"] > 0, "and later ones are not: it is asynchronous"


def test_worker_and_learner_agree_at_lag_0(complete: CompleteRun) -> None:
    first = read_lines(complete.run.metrics)[0]
    # k3 is about half the mean square of the difference. Its rounding in float32 is about 1e-8, and one step off
    # policy is 1e-4 and more; the bound per token is in `test_wire.py`.
    assert abs(first["kl"]) < 1e-7
    assert abs(first["ratio"] - 1) < 1e-4
    assert first["clip_fraction"] == 0


def test_generation_and_learning_run_at_the_same_time(complete: CompleteRun) -> None:
    spans = read_lines(complete.run.timeline)
    measured = overlap(spans)
    assert measured["share"] > 0 and measured["step_s"] > 0
    assert json.loads(complete.run.evaluation.read_text(encoding="utf-8"))["overlap"] == measured
    assert {span["actor"] for span in spans if span["kind"] == "generate"} == {"worker-0", "worker-1"}
    assert all(span["start"] <= span["end"] for span in spans)


def test_adapters_load_with_peft_and_the_last_one_has_learnt(complete: CompleteRun) -> None:
    torch.set_num_threads(1)
    first, last = (complete.run.adapter(complete.run.adapter_versions()[place]) for place in (0, -1))
    tokens = None
    logits = []
    for folder in (None, first, last):
        base, tokenizer = load_base("teaching")
        model = base if folder is None else PeftModel.from_pretrained(base, folder)
        tokens = torch.tensor([encode_prompt(tokenizer, load_task("arithmetic", 0).heldout(1)[0].prompt)])
        with torch.no_grad():
            logits.append(model(input_ids=tokens).logits)
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=1e-5)
    assert (logits[2] - logits[0]).abs().max() > 1e-2
    rank = safetensors.torch.load_file(last / "adapter_model.safetensors")
    assert {min(tensor.shape) for tensor in rank.values()} == {16}


# ------------------------------------------------------------------------------------------------- what crosses the link


def test_a_capture_of_the_whole_run_shows_nothing(complete: CompleteRun, prompts: set[str]) -> None:
    """Every packet of the run's link. `test_wire.py` makes the same search where nobody may capture."""
    if complete.captured is None:
        pytest.skip("this user may not capture packets")
    flows = complete.captured
    everything = b"\n".join(flows)
    # The capture is not blind: the hellos of both workers, and as many bytes as the transport counted.
    assert b'"worker-0"' in everything and b'"worker-1"' in everything
    counted = json.loads((complete.run.root / "transport.json").read_text(encoding="utf-8"))
    assert sum(map(len, flows)) >= counted["bytes_sent"] + counted["bytes_received"]
    assert everything.count(b"GRPF") >= counted["frames_sent"] + counted["frames_received"]

    assert not [prompt for prompt in prompts if prompt.encode() in everything]
    for word in (*COMPLETION_MARKS, *SMALL, "lora_A", "old_log_probs", complete.secret):
        assert word.encode() not in everything, word
    for path in complete.run.adapters.rglob("*.safetensors"):
        for name, tensor in safetensors.torch.load_file(path).items():
            raw = tensor.numpy().tobytes()
            if any(raw):  # a fresh lora_B is all zeros, and so is padding
                middle = len(raw) // 2
                assert raw[middle : middle + 32] not in everything, name


# --------------------------------------------------------------------------------------------------- after the run


def test_ask_answers_and_fails_clearly(complete: CompleteRun) -> None:
    with command(complete.cwd, "grpo_lib.ask", complete.run.run_id, env=complete.env) as asking:
        outcome = asking.wait()
    assert outcome.code == 0, outcome.err
    for example in load_task("arithmetic", 0).heldout(3, seed=1):
        assert example.prompt in outcome.out
    newest = complete.run.adapter_versions()[-1]
    assert outcome.out.count(f"adapter v{newest:06d}") == 3 and outcome.out.count("base ") == 3
    with command(complete.cwd, "grpo_lib.ask", "no-such-run", env=complete.env) as asking:
        outcome = asking.wait()
    assert outcome.code == 2
    assert "no-such-run" in outcome.err and "Check the id" in outcome.err and "تحقق من المعرّف" in outcome.err
    assert "Traceback" not in outcome.err


def test_resuming_a_complete_run_is_a_no_op(complete: CompleteRun) -> None:
    """Last in this file: it may rewrite notebooks, reports and the manifest, not what training left."""
    root = complete.run.root
    kept = [complete.run.metrics, complete.run.timeline, complete.run.evaluation]
    kept += [*complete.run.adapters.rglob("*"), *complete.run.checkpoints.rglob("*")]
    kept += [*complete.run.reports.iterdir(), complete.run.settings]
    before = {path: file_sha256(path) for path in kept if path.is_file()}
    ledger, recorded = complete.run.ledger.read_bytes(), len(events(complete.run))
    with command(complete.cwd, *wrapper_arguments(run_id=root.name), env=complete.env) as again:
        outcome = again.wait()
    assert outcome.code == 0, outcome.err
    assert {path: file_sha256(path) for path in before} == before
    assert complete.run.ledger.read_bytes().startswith(ledger), "what was recorded stands"
    assert {event["event"] for event in events(complete.run)[recorded:]} <= {
        "report_built",
        "statement_signed",
    }
    assert check_chain(complete.run.ledger).intact
    manifest = json.loads(complete.run.manifest.read_text(encoding="utf-8"))
    assert (manifest["status"], manifest["exit_code"]) == ("complete", 0)
