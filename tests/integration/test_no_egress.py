"""After set-up nothing asks anybody outside: no attempt beyond loopback in `make run` or `make lab`.

Three independent means, each with its control below:

* an audit hook in every Python process from its very start, put there by a `sitecustomize` that only these tests have
  (the suite's own hook is looked at too, and is not trusted here);
* where the system allows it, a network with nothing but `lo`, in which the kernel counts what finds no route: that
  sees all programs and the C library (`egress_watch`);
* where it does not, samples of the connections of all processes.
"""

from __future__ import annotations

import ast
import ipaddress
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from processes import PATIENCE_S, ROOT, SMALL, environment, events, wrapper_arguments

from grpo_lib import wording
from grpo_lib.attempts import OBSERVE_VARIABLE
from grpo_lib.observe import CANNOT_SEE, Observer, folder_of, summarise
from grpo_lib.offline import NAMES_VARIABLE
from grpo_lib.runfolder import RunFolder, file_sha256

HERE = Path(__file__).parent
TINY = {**SMALL, "steps": 2, "workers": 1, "checkpoint_every": 1, "snapshot_every": 1, "eval_questions": 4}

# Raises where it cannot do its work: a watch that is silent must not look like a run that is.
HOOK = """
import os, socket, sys

_LOG = os.open(os.environ["EGRESS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")

def _hook(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        if args[0].family in (socket.AF_UNIX, getattr(socket, "AF_NETLINK", -1)) or args[1] is None:
            return
        target = args[1]
    elif event in _NAMES:
        target = args[0]
    else:
        return
    os.write(_LOG, repr((event, target, " ".join(sys.orig_argv)[:200])).encode() + b"\\n")

sys.addaudithook(_hook)
"""


@dataclass(frozen=True)
class Watched:
    """What a command tried to reach beyond loopback."""

    code: int
    isolated: bool
    without_route: int  # packets that the kernel counted, by whatever program; 0 where not isolated
    attempts: list[tuple[str, str, str]]  # (audit event, target, command line), beyond loopback
    hooked: int  # attempts of any kind that the hook saw
    sampled: list[
        dict
    ]  # endpoints beyond loopback from samples; none where isolated, they cannot look inside
    err: str

    def assert_silent(self) -> None:
        assert self.attempts == []
        assert self.sampled == []
        assert self.without_route == 0, "something that is not Python's socket module tried to reach outside"


Watch = Callable[..., Watched]


def _beyond(target: object) -> bool:
    host = target[0] if isinstance(target, tuple) else target
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "", "localhost"):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    address = getattr(address, "ipv4_mapped", None) or address
    return not (address.is_loopback or address.is_unspecified)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Run a command in `tmp_path/work` as a user who has set nothing, and say whom it tried to reach."""
    hooks, work, home = tmp_path / "hooks", tmp_path / "work", tmp_path / "home" / "user"
    for folder in (hooks, work, home):
        folder.mkdir(parents=True)
    (hooks / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    log, result = tmp_path / "egress.log", tmp_path / "result.json"
    unset = re.compile(r"(HF_|TRANSFORMERS_|JUPYTER|GRPO_|DO_NOT_TRACK|DISABLE_TELEMETRY)|.*_proxy$", re.I)
    env = {name: value for name, value in environment(home).items() if not unset.match(name)}
    env |= {
        "PYTHONPATH": f"{hooks}{os.pathsep}{ROOT}",
        "EGRESS_LOG": str(log),
        "GRPO_KEYS_DIR": str(home / "keys"),
    }
    env |= {"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}

    def run(*command: str, **extra: str) -> Watched:
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "egress_watch.py"), str(result), *command],
                cwd=work,
                env={**env, **extra},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            observer = Observer(RunFolder(tmp_path / "outside"), pid=process.pid)
            observer.start()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                observer.close()
        found = json.loads(result.read_text(encoding="utf-8"))
        lines = [ast.literal_eval(line) for line in log.read_text(encoding="utf-8").splitlines()]
        sampled = [
            one
            for one in summarise(observer.folder)["endpoints"]
            if one["address_class"] != "loopback" and one["source"] == "psutil"
        ]
        attempts = [(event, str(target), who) for event, target, who in lines if _beyond(target)]
        text = (tmp_path / "err").read_text(encoding="utf-8", errors="replace")
        return Watched(**found, attempts=attempts, hooked=len(lines), sampled=sampled, err=text)

    return run


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def exported() -> dict[str, str]:
    """Variables that `make` hands to its commands."""
    return dict(re.findall(r"^export (\w+) *= *(\S+)$", makefile(), re.M))


def lab_arguments() -> list[str]:
    """Arguments of JupyterLab in `make lab`."""
    recipe = makefile().replace("\\\n", " ")
    return shlex.split(re.search(r"\$\(BIN\)/jupyter lab (.*)\$\(ARGS\)", recipe)[1])


@pytest.mark.trains
def test_a_run_tries_to_reach_nobody(watch: Watch, tmp_path: Path) -> None:
    assert "$(BIN)/python -m grpo_lib.run" in makefile()
    run = RunFolder(tmp_path / "work" / "runs" / "silent")
    watched = watch(sys.executable, "-m", *wrapper_arguments(run_id=run.run_id, **TINY), **exported())
    assert watched.code == 0, watched.err
    watched.assert_silent()
    assert watched.hooked, "the workers knock at the learner by a socket of Python's"

    # The record that the run keeps of itself says the same, and its digest is in the ledger.
    network = json.loads(run.network.read_text(encoding="utf-8"))
    assert network["beyond_loopback"] == 0
    assert network == summarise(folder_of(run))
    seen = {(one["process"], one["source"]) for one in network["endpoints"]}
    assert {("worker", "audit"), ("worker", "psutil"), ("learner", "psutil")} <= seen
    recorded = events(run, "network_observed")[-1]["data"]
    assert recorded == {"network_sha256": file_sha256(run.network), "beyond_loopback": 0}


def test_jupyterlab_tries_to_reach_nobody(watch: Watch, tmp_path: Path) -> None:
    result = tmp_path / "visit.json"
    watched = watch(sys.executable, str(HERE / "lab_visit.py"), str(result), *lab_arguments(), **exported())
    assert watched.code == 0, watched.err
    answers = json.loads(result.read_text(encoding="utf-8"))
    assert int(answers.pop("cell")) > 30, "a kernel ran a cell"
    assert set(answers.values()) == {200}, answers
    watched.assert_silent()


# ------------------------------------------------------------------------------------------------------- controls


def notebook(folder: Path, code: str) -> list[str]:
    """Command that runs one cell in a kernel."""
    path = folder / "planted.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), path)
    return [sys.executable, "-m", "papermill", "--kernel", "python3", str(path), str(folder / "done.ipynb")]


@pytest.mark.parametrize(
    ("code", "event", "target"),
    [
        ("import socket; socket.socket().connect_ex(('192.0.2.1', 9))", "socket.connect", "192.0.2.1"),
        (
            "import urllib.request\ntry: urllib.request.urlopen('http://planted.invalid')\nexcept OSError: pass",
            "socket.getaddrinfo",
            "planted.invalid",
        ),
    ],
    ids=["connect", "name"],
)
def test_an_attempt_in_a_kernel_is_seen(
    watch: Watch, tmp_path: Path, code: str, event: str, target: str
) -> None:
    watched = watch(*notebook(tmp_path, code))
    assert watched.code == 0, watched.err
    assert any(e == event and target in t and "ipykernel" in who for e, t, who in watched.attempts)
    with pytest.raises(AssertionError):
        watched.assert_silent()


def test_an_attempt_of_the_c_library_is_seen(watch: Watch) -> None:
    """A name query that no hook sees, as torch's TCPStore made one for each client."""
    code = "import ctypes; ctypes.CDLL(None).gethostbyname(b'planted.invalid')"
    watched = watch(sys.executable, "-c", code)
    if not watched.isolated:
        pytest.skip("no new network namespace here: names that the C library looks up stay unseen")
    assert watched.attempts == []
    assert watched.without_route > 0
    with pytest.raises(AssertionError):
        watched.assert_silent()
    # What keeps it from asking, in the processes of a run.
    offline = "from grpo_lib.offline import names_from_files; names_from_files(); "
    watch(sys.executable, "-c", offline + code, **{NAMES_VARIABLE: "1"}).assert_silent()


def test_an_extension_manager_that_asks_pypi_is_seen(watch: Watch, tmp_path: Path) -> None:
    arguments = [word for word in lab_arguments() if "extension_manager" not in word]
    watched = watch(sys.executable, str(HERE / "lab_visit.py"), str(tmp_path / "visit.json"), *arguments)
    assert any("pypi.org" in target for _, target, _ in watched.attempts)


# ---------------------------------------------------------------------------------------------- how it is put in place


def test_importing_the_package_installs_the_hook_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "network"
    code = "import sys, grpo_lib; print('grpo_lib.attempts' in sys.modules, 'torch' in sys.modules)"
    for asked, said in (({}, "False False"), ({OBSERVE_VARIABLE: str(folder)}, "True False")):
        env = {name: value for name, value in os.environ.items() if name != OBSERVE_VARIABLE} | asked
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said


def test_what_cannot_be_seen_has_its_sentence_in_both_languages() -> None:
    for name in CANNOT_SEE:
        for language in ("ar", "en"):
            assert wording.plain(f"unseen_{name}", language)
