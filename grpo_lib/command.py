"""What the commands about one run share: how the run is named, and the error when it is not there."""

from __future__ import annotations

import argparse
from pathlib import Path

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.runfolder import RunFolder


def parser(module: str, en: str, ar: str) -> argparse.ArgumentParser:
    """A parser whose help opens in both languages."""
    return argparse.ArgumentParser(prog=f"python -m grpo_lib.{module}", description=f"{ar} | {en}")


def add_run(to: argparse.ArgumentParser) -> None:
    to.add_argument("run_id", metavar="RUN_ID", help="معرّف التشغيل | id of the run")
    to.add_argument("--runs-dir", default="runs", help="مجلد التشغيلات | folder of runs")


def run_of(args: argparse.Namespace) -> RunFolder:
    """The run that the arguments name.

    Raises:
        WrongInput: there is no such run folder.
    """
    folder = Path(args.runs_dir) / args.run_id
    if Path(args.run_id).name != args.run_id or not folder.is_dir():
        raise WrongInput(
            ar=f"لا يوجد تشغيل باسم {isolate(args.run_id)} تحت {isolate(args.runs_dir)}. تحقق من المعرّف، أو أعط "
            f"{isolate('--runs-dir')}.",
            en=f"There is no run {args.run_id} under {args.runs_dir}. Check the id, or give --runs-dir.",
        )
    return RunFolder(folder)
