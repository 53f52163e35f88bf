"""The production entry: validates parameters, runs the notebooks through papermill, and says how it ended.

    python -m grpo_lib.run -p steps 40 -p seed 3        # a new run
    python -m grpo_lib.run -p run_id run-...            # resume it
    python -m grpo_lib.run -f parameters.yaml

papermill reports success after a kernel was killed, so the outcome is judged from the run's ledger, and the manifest
is written in `finally`. Exit codes: 0 complete, 2 wrong input, 3 refused by the gate, 4 stopped by health,
5 interrupted and resumable.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from tqdm import tqdm
from traitlets.config import Config

from grpo_lib import attempts, keys, observe, offline, pdf, treeheads
from grpo_lib import settings as run_settings
from grpo_lib.errors import (
    EXIT_COMPLETE,
    EXIT_INTERRUPTED,
    STATUS,
    GrpoError,
    Interrupted,
    WrongInput,
    isolate,
)
from grpo_lib.ledger import Ledger, read_events, utc_now
from grpo_lib.runfolder import RunFolder, file_sha256, read_lines, write_atomic, write_json
from grpo_lib.settings import RunSettings

NOTEBOOKS = ("train", "report")
# How long a learner may take to end after its launcher did.
_CHECKPOINT_S = 60.0


def notebook_path(name: str) -> Path:
    """Source of a production notebook: in the working tree, where users may look at it and change it."""
    for root in (Path.cwd(), Path(__file__).parents[1]):
        path = root / "notebooks" / f"production-{name}.ipynb"
        if path.is_file():
            return path
    raise WrongInput(
        ar=f"الدفتر {isolate(f'notebooks/production-{name}.ipynb')} غير موجود؛ شغّل الأمر من مجلد المشروع.",
        en=f"notebooks/production-{name}.ipynb is not here; run this from the project's folder.",
    )


def resolve(values: dict[str, Any]) -> RunSettings:
    """Validate parameters; for a run that exists, the stored settings stand where nothing was given."""
    values = {str(name): value for name, value in values.items()}
    runs_dir, run_id = values.get("runs_dir", "runs"), values.get("run_id")
    if isinstance(runs_dir, str) and isinstance(run_id, str) and run_id:
        stored = Path(runs_dir) / run_id / "settings.json"
        if stored.is_file():
            values = {**run_settings.read(stored).model_dump(), **values}
    return run_settings.load(values)


def execute(settings: RunSettings, notebooks: tuple[str, ...] = NOTEBOOKS) -> int:
    """Run the notebooks one after the other; returns the exit code that the manifest also holds."""
    run, started = RunFolder(settings.run_dir), utc_now()
    if run.root.is_dir():
        with run.locked():  # another launch at work: refuse before anything of its folder is touched
            pass
    code, executed = EXIT_INTERRUPTED, []
    try:
        for name in notebooks:
            code = _execute_one(name, settings, run)
            executed.append({"name": name, "exit_code": code})
            if code != EXIT_COMPLETE:
                break
    finally:
        # A run that never got as far as its own folder (the machine does not fit, another launch holds the lock)
        # leaves nothing behind.
        if run.ledger.is_file():
            _write_manifest(run, code, started, executed)
    return code


def _execute_one(name: str, settings: RunSettings, run: RunFolder) -> int:
    known = papermill.inspect_notebook(notebook_path(name))
    before = len(read_events(run.ledger))
    notebook = nbformat.read(notebook_path(name), as_version=4)
    target = run.notebooks / f"{name}.ipynb"
    # Not in the run folder yet: a launch that finds its folder locked must not write there.
    staged = Path(tempfile.mkdtemp(prefix="grpo-")) / f"{name}.ipynb"
    try:
        with _progress(run, settings) if name == "train" else _quiet():
            papermill.execute_notebook(
                notebook,
                str(staged),
                parameters={k: v for k, v in settings.model_dump().items() if k in known},
                kernel_name="python3",
                progress_bar=False,
                cwd=os.getcwd(),
                # The kernel's channels as sockets in a private folder: nothing of a cell crosses a TCP port.
                config=Config({"KernelManager": {"transport": "ipc", "ip": str(staged.with_name("kernel"))}}),
            )
        failure = None
    except papermill.PapermillExecutionError as error:
        failure = error
    except KeyboardInterrupt:
        failure = Interrupted(
            ar=f"أوقف المستخدم التشغيل؛ استأنفه بالمعرّف {isolate(run.run_id)}.",
            en=f"Stopped by the user; resume with run id {run.run_id}.",
        )
    except Exception as error:  # a dead kernel, a time-out: papermill has no common base class for them
        failure = error
    finally:
        if staged.is_file() and run.ledger.is_file():
            write_atomic(target, _scrubbed(staged))
        shutil.rmtree(staged.parent)
    if isinstance(failure, Interrupted):
        print("ينتظر نقطة الحفظ… | waiting for the checkpoint…", file=sys.stderr, flush=True)
    if run.ledger.is_file():
        with run.locked("learner", timeout_s=_CHECKPOINT_S):
            pass  # a learner whose launcher died may still be at work
    events = read_events(run.ledger)[before:]
    code = _outcome(failure, events, run)
    names = {event["event"] for event in events}
    if "run_started" in names and "run_ended" not in names:
        # The kernel died before it could say so.
        Ledger(run.ledger, run.run_id, "launcher").append(
            "run_ended", status=STATUS.get(code, "failed"), exit_code=code
        )
    return code


def _outcome(failure: Exception | None, events: list[dict[str, Any]], run: RunFolder) -> int:
    """The exit code, from the error that left the notebook and from what the ledger says."""
    if isinstance(failure, papermill.PapermillExecutionError):
        kinds = {kind.__name__: kind for kind in GrpoError.__subclasses__()}
        kind = kinds.get(failure.ename)
        if kind is None:
            print(failure, file=sys.stderr)
            return 1
        print(failure.evalue, file=sys.stderr)
        return kind.exit_code
    if isinstance(failure, Interrupted):
        print(f"{failure.ar}\n{failure.en}", file=sys.stderr)
        return failure.exit_code
    if failure is not None:
        ended = any(event["event"] == "run_ended" for event in events)
        print(
            f"توقفت نواة الدفتر ({isolate(type(failure).__name__)}). استأنف بالمعرّف {isolate(run.run_id)}.\n"
            f"The notebook's kernel stopped ({type(failure).__name__}: {failure}). "
            f"Resume with run id {run.run_id}.",
            file=sys.stderr,
        )
        return 1 if ended else EXIT_INTERRUPTED
    ended = [event["data"]["exit_code"] for event in events if event["event"] == "run_ended"]
    return ended[-1] if ended else EXIT_COMPLETE


def _scrubbed(path: Path) -> str:
    """The executed notebook without the paths that papermill stores in its metadata."""
    notebook = nbformat.read(path, as_version=4)
    for key in ("input_path", "output_path", "environment_variables"):
        notebook.metadata.get("papermill", {}).pop(key, None)
    return nbformat.writes(notebook)


def _write_manifest(run: RunFolder, code: int, started: str, executed: list[dict[str, Any]]) -> None:
    files = {
        str(path.relative_to(run.root)): {"sha256": file_sha256(path), "bytes": path.stat().st_size}
        for path in sorted(run.root.rglob("*"))
        if path.is_file() and path != run.manifest and path.suffix != ".lock"
    }
    write_json(
        run.manifest,
        {
            "run_id": run.run_id,
            "status": STATUS.get(code, "failed"),
            "exit_code": code,
            "started": started,
            "ended": utc_now(),
            "files": files,
            "notebooks": executed,
        },
    )


@contextmanager
def _quiet():
    yield


@contextmanager
def _progress(run: RunFolder, settings: RunSettings):
    """A progress bar in the terminal, fed from the run folder while the notebook's kernel works."""
    done = threading.Event()

    def follow() -> None:
        with tqdm(total=settings.steps, unit="step", desc="تدريب | training", disable=None) as bar:
            while not done.wait(0.5):
                rows = read_lines(run.metrics)
                if rows:
                    bar.n = rows[-1]["step"]
                    reward, lag = rows[-1].get("reward"), rows[-1].get("lag_mean")
                    bar.set_postfix(reward=f"{reward or 0:.2f}", lag=f"{lag or 0:.1f}", refresh=False)
                    bar.refresh()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)


def _closing_summary(settings: RunSettings, code: int) -> None:
    run = RunFolder(settings.run_dir)
    shown = Path(settings.runs_dir) / run.run_id
    print(f"\nالتشغيل {isolate(run.run_id)}: {STATUS.get(code, 'failed')} ({code})")
    print(f"run {run.run_id}: {STATUS.get(code, 'failed')} (exit code {code})")
    if run.evaluation.is_file():
        result = json.loads(run.evaluation.read_text(encoding="utf-8"))
        for key, value in result["base"].items():
            if isinstance(value, dict):
                before, after = value, result["trained"][key]
                print(
                    f"  held-out {key:10} {before['mean']:.3f} [{before['low']:.3f}, {before['high']:.3f}]"
                    f" → {after['mean']:.3f} [{after['low']:.3f}, {after['high']:.3f}]"
                )
    for title, paths in (
        ("reports | التقارير", sorted([*run.reports.glob("*.html"), *run.reports.glob("*.pdf")])),
        ("notebooks | الدفاتر", sorted(run.notebooks.glob("*.ipynb"))),
    ):
        for path in paths:
            print(f"  {title}: {shown / path.relative_to(run.root)}")
    if not pdf.available():
        print("\n".join(f"  {line}" for line in pdf.MISSING))
    fingerprint = treeheads.stored_fingerprint(run)
    if fingerprint:
        print(f"  fingerprint | بصمة التوقيع: {keys.grouped(fingerprint)}")
    if code == EXIT_COMPLETE:
        elsewhere = "" if settings.runs_dir == "runs" else f" --runs-dir {settings.runs_dir}"
        print(f"  ask it | اسأله: .venv/bin/python -m grpo_lib.ask {run.run_id}{elsewhere}")


def _arguments() -> argparse.Namespace:
    lines = [
        f"  {name:20} {field.default!r:12} {field.json_schema_extra['ar']} | {field.description}"
        for name, field in RunSettings.model_fields.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.run",
        description=__doc__,
        epilog="parameters | المعاملات:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-p",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="one parameter | معامل واحد",
    )
    parser.add_argument("-f", type=Path, help="YAML or JSON file of parameters | ملف معاملات")
    parser.add_argument("--only", choices=NOTEBOOKS, help="run one of the notebooks | دفتر واحد فقط")
    return parser.parse_args()


def _given(args: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if args.f is not None:
        try:
            values = yaml.safe_load(args.f.read_text(encoding="utf-8")) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise WrongInput(
                ar=f"تعذّرت قراءة ملف المعاملات {isolate(args.f)}: {isolate(error)}",
                en=f"The parameter file {args.f} cannot be read: {error}",
            ) from None
        if not isinstance(values, dict):
            raise WrongInput(
                ar=f"ملف المعاملات {isolate(args.f)} يجب أن يحوي أسماء وقيمًا.",
                en=f"The parameter file {args.f} must hold names and values.",
            )
    return {**values, **dict(args.p)}


def main() -> int:
    args = _arguments()
    # cron and service managers end jobs with SIGTERM; it must take the same way out as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = resolve(_given(args))
        print(f"التشغيل {isolate(settings.run_id)}\nrun {settings.run_id}", flush=True)
        keys.load_or_create(settings.signing_key)  # here, where its fingerprint reaches the terminal
        # The kernels inherit both: no questions to anybody, and each attempt noted from their first import of grpo_lib on.
        os.environ |= offline.environment(settings.model, settings.bind)
        os.environ[attempts.OBSERVE_VARIABLE] = str(observe.folder_of(RunFolder(settings.run_dir)))
        attempts.install_from_environment()
        code = execute(settings, (args.only,) if args.only else NOTEBOOKS)
    except GrpoError as error:
        print(f"{error.ar}\n{error.en}", file=sys.stderr)
        return error.exit_code
    _closing_summary(settings, code)
    return code


if __name__ == "__main__":
    sys.exit(main())
