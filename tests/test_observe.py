"""Who a run's processes try to reach: the audit hook, the samples of the process tree, and what is made of both."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_lib import attempts, observe, offline
from grpo_lib.attempts import MORE, OBSERVE_VARIABLE, OWN_NAME, EndpointLog, endpoint, port_class, role_of
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.observe import Observer, classify, folder_of, observed, summarise
from grpo_lib.runfolder import RunFolder, file_sha256, read_lines

ROOT = Path(__file__).parents[1]
linux = pytest.mark.skipif(sys.platform != "linux", reason="addresses and states as on Linux")

INSTALL = "from grpo_lib import attempts; attempts.install_from_environment()\nimport os, socket, time\n"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "some-run")
    run.root.mkdir()
    return run


def python(folder: Path, code: str) -> subprocess.Popen:
    # Names that are looked up here go to no name server.
    env = {**os.environ, "PYTHONPATH": str(ROOT), OBSERVE_VARIABLE: str(folder), offline.NAMES_VARIABLE: "1"}
    return subprocess.Popen(
        [sys.executable, "-c", INSTALL + code], env=env, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> None:
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err


def noted(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.jsonl")) for row in read_lines(path)]


def until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("not in time")


# ------------------------------------------------------------------------------------------------------ the hook


def test_attempts_are_noted_whether_or_not_they_succeed_and_their_content_is_not(run: RunFolder) -> None:
    folder = folder_of(run)
    code = """
from grpo_lib import offline; offline.names_from_files()
def tried(call, *args):
    try: call(*args)
    except OSError: pass
udp = socket.socket(type=socket.SOCK_DGRAM)
tcp = socket.socket(); tcp.setblocking(False)
tried(tcp.connect, ("192.0.2.1", 443))
tried(udp.sendto, b"the-payload", ("127.0.0.1", 9))
tried(udp.sendmsg, [b"the-payload"], [], 0, ("192.0.2.2", 53))
tried(socket.getaddrinfo, "planted.invalid", 80)
tried(socket.getaddrinfo, b"bytes.invalid", "https")
tried(socket.gethostbyname, "older.invalid")
tried(socket.gethostbyaddr, "192.0.2.3")
tried(socket.gethostbyname, socket.gethostname())
# None of these can reach another machine.
tried(socket.getaddrinfo, "192.0.2.9", 80)
tried(socket.getaddrinfo, None, 0, 0, 0, 0, socket.AI_PASSIVE)
tried(socket.socket(socket.AF_UNIX).connect, "/nowhere")
udp.connect(("127.0.0.1", 9)); tried(udp.sendmsg, [b"the-payload"])
"""
    finish(python(folder, code))
    rows = noted(folder)
    assert {(row["call"], row["address"], row["port"]) for row in rows} == {
        ("connect", "192.0.2.1", 443),
        ("send", "127.0.0.1", 9),
        ("connect", "127.0.0.1", 9),
        ("send", "192.0.2.2", 53),
        ("lookup", "planted.invalid", 80),
        ("lookup", "bytes.invalid", 0),
        ("lookup", "older.invalid", 0),
        ("lookup", OWN_NAME, 0),
        ("reverse lookup", "192.0.2.3", 0),
    }
    assert all(row["source"] == "audit" and row["count"] == 1 for row in rows)
    written = "".join(path.read_text(encoding="utf-8") for path in folder.iterdir())
    assert "payload" not in written
    assert socket.gethostname() not in written


@linux
def test_sockets_that_stay_in_the_kernel_are_not_noted_and_one_to_the_hypervisor_is() -> None:
    assert endpoint("connect", socket.AF_NETLINK, (0, 0)) is None
    assert endpoint("connect", socket.AF_VSOCK, (2, 1024)) == ("AF_VSOCK", 0)


def test_many_calls_are_one_line_and_few_writes(run: RunFolder) -> None:
    code = """
written = []
replace = os.replace
os.replace = lambda *paths: (written.append(time.monotonic()), replace(*paths))
udp = socket.socket(type=socket.SOCK_DGRAM)
begun = time.monotonic()
for number in range(3000):
    udp.sendto(b"x", ("127.0.0.1", 20000 + number % 50))
time.sleep(1.3)
attempts.flush()
assert len(written) <= 2 + (time.monotonic() - begun), written
"""
    finish(python(folder_of(run), code))
    (row,) = noted(folder_of(run))
    assert row["count"] == 3000
    assert row["first"] < row["last"]


def test_a_new_endpoint_is_written_at_once_even_if_the_process_is_then_killed(run: RunFolder) -> None:
    code = """
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.sendto(b"x", ("127.0.0.1", 9))
time.sleep(0.3)
udp.sendto(b"x", ("127.0.0.2", 9))
time.sleep(0.3)
os.kill(os.getpid(), 9)
"""
    python(folder_of(run), code).wait(30)
    assert [row["address"] for row in noted(folder_of(run))] == ["127.0.0.1", "127.0.0.2"]


def test_flush_comes_before_an_end_without_exit_handlers(run: RunFolder) -> None:
    code = """
udp = socket.socket(type=socket.SOCK_DGRAM)
for _ in range(100): udp.sendto(b"x", ("127.0.0.1", 9))
attempts.flush(); os._exit(0)
"""
    finish(python(folder_of(run), code))
    assert [row["count"] for row in noted(folder_of(run))] == [100]


def test_a_forked_child_has_a_file_of_its_own(run: RunFolder) -> None:
    code = """
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.sendto(b"x", ("127.0.0.1", 9))
child = os.fork()
if not child:
    udp.sendto(b"x", ("127.0.0.2", 9)); attempts.flush(); os._exit(0)
os.waitpid(child, 0)
"""
    finish(python(folder_of(run), code))
    files = {path: [row["address"] for row in read_lines(path)] for path in folder_of(run).iterdir()}
    assert sorted(files.values()) == [["127.0.0.1"], ["127.0.0.2"]]


def test_the_hook_never_forbids_the_call_it_watches(run: RunFolder) -> None:
    code = """
import sys
for event in attempts._CALLS:
    for args in ((), (None,), (object(), object()), (socket.socket(), ()), (socket.socket(), (1, 2, 3)), (b"\\xff",)):
        sys.audit(event, *args)
udp = socket.socket(type=socket.SOCK_DGRAM); udp.sendto(b"x", ("127.0.0.1", 9))
"""
    finish(python(folder_of(run), code))
    assert any(row["address"] == "127.0.0.1" for row in noted(folder_of(run))), "it still notes"


def test_a_folder_that_cannot_be_written_does_not_end_anything(run: RunFolder) -> None:
    code = """
in_the_way = os.environ["GRPO_OBSERVE_DIR"]
open(in_the_way, "w").close()
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.sendto(b"x", ("127.0.0.1", 9)); time.sleep(0.3)
os.remove(in_the_way)
udp.sendto(b"x", ("127.0.0.1", 9))
"""
    finish(python(folder_of(run), code))
    assert [row["count"] for row in noted(folder_of(run))] == [2]


def test_a_run_that_never_got_a_folder_gets_none_from_being_watched(tmp_path: Path) -> None:
    folder = tmp_path / "no-run" / "network"
    finish(python(folder, "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"))
    assert not folder.parent.exists()


def test_installing_again_moves_to_the_new_folder(tmp_path: Path) -> None:
    code = f"""
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.sendto(b"x", ("127.0.0.1", 9))
attempts.install({str(tmp_path / "second")!r}); attempts.install({str(tmp_path / "second")!r})
udp.sendto(b"x", ("127.0.0.2", 9))
attempts.stop()
udp.sendto(b"x", ("127.0.0.3", 9))
"""
    finish(python(tmp_path / "first", code))
    assert [row["address"] for row in noted(tmp_path / "first")] == ["127.0.0.1"]
    assert [(row["address"], row["count"]) for row in noted(tmp_path / "second")] == [("127.0.0.2", 1)]


def test_a_scan_of_many_addresses_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_MOST", 3)
    log = EndpointLog(tmp_path / "network", "learner-1", "audit")
    for number in range(20):
        log.add("learner", "connect", f"198.51.100.{number}", 443, 0.0)
    log.write()
    rows = noted(tmp_path / "network")
    assert len(rows) == 4
    assert (rows[-1]["address"], rows[-1]["count"]) == (MORE, 17)
    assert classify(MORE)[1] == "public"


def test_the_file_of_an_earlier_process_with_the_same_number_is_kept(tmp_path: Path) -> None:
    for address in ("192.0.2.1", "192.0.2.2"):
        log = EndpointLog(tmp_path / "network", "worker-7", "audit")
        log.add("worker", "connect", address, 443, 0.0)
        log.write()
    assert {row["address"] for row in noted(tmp_path / "network")} == {"192.0.2.1", "192.0.2.2"}


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["/usr/bin/python3", "-m", "grpo_lib.learner", "--run-dir", "x"], "learner"),
        (["python", "-m", "grpo_lib.run"], "run"),
        (["python", "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "k.json"], "kernel"),
        (["/opt/python3.11", "/home/someone/.venv/bin/jupyter-lab", "--no-browser"], "jupyter-lab"),
        (["python3", "some/script.py"], "script"),
        (["python3", "-c", "pass"], "python3"),
        (["git", "fetch"], "git"),
        (["../odd name\n/x y"], "x_y"),
        ([], "unknown"),
    ],
)
def test_processes_are_named_by_what_they_are(words: list[str], role: str) -> None:
    assert role_of(words) == role


# ------------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("host", "shown", "kind"),
    [
        ("127.0.0.1", "127.0.0.1", "loopback"),
        ("::ffff:127.0.0.1", "127.0.0.1", "loopback"),
        ("::1", "::1", "loopback"),
        ("localhost", "localhost", "loopback"),
        ("0.0.0.0", "0.0.0.0", "loopback"),
        ("::", "::", "loopback"),
        ("10.1.2.3", "10.1.2.3", "private"),
        ("::ffff:10.1.2.3", "10.1.2.3", "private"),
        ("fe80::1%eth0", "fe80::1", "private"),
        ("<broadcast>", "255.255.255.255", "private"),
        (OWN_NAME, OWN_NAME, "private"),
        ("8.8.8.8", "8.8.8.8", "public"),
        ("::ffff:8.8.8.8", "8.8.8.8", "public"),
        ("huggingface.co", "huggingface.co", "public"),
        ("localhost.planted.invalid", "localhost.planted.invalid", "public"),
        ("AF_VSOCK", "AF_VSOCK", "public"),
    ],
)
def test_addresses_are_classified(host: str, shown: str, kind: str) -> None:
    assert classify(host) == (shown, kind)


def test_ports_are_classified() -> None:
    ports = (0, 22, 53, 80, 443, 631, 8443, 29500, 49152, 65535)
    names = "none ssh dns http https system user user dynamic dynamic"
    assert [port_class(port) for port in ports] == names.split()


# ------------------------------------------------------------------------------------------------------ samples

# No grpo_lib and no hook in it: what any program would do.
STRANGER = "import socket, sys, time\nc = socket.create_connection((sys.argv[1], int(sys.argv[2])))\ntime.sleep(60)\n"


@pytest.fixture
def listener() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.fixture
def watching(run: RunFolder) -> Iterator[Observer]:
    observer = Observer(run, every_s=0.05)
    observer.start()
    yield observer
    if observer._thread.is_alive():
        observer.close()


def sampled(run: RunFolder, **about: Any) -> list[dict[str, Any]]:
    rows = summarise(folder_of(run))["endpoints"]
    return [one for one in rows if one["source"] == "psutil" and about.items() <= one.items()]


def test_a_connection_of_a_program_that_knows_nothing_of_us_is_seen(
    run: RunFolder, listener: tuple[str, int], watching: Observer, tmp_path: Path
) -> None:
    script = tmp_path / "stranger.py"
    script.write_text(STRANGER, encoding="utf-8")
    # A grandchild of this process.
    parent = subprocess.Popen(["sh", "-c", f"{sys.executable} -I {script} {listener[0]} {listener[1]}; true"])
    try:
        (found,) = until(lambda: sampled(run, address="127.0.0.1", process=Path(sys.executable).name))
    finally:
        watching._root.children(recursive=True)[-1].kill()
        parent.wait()
    assert found["count"] == 1
    assert not found["attempted_only"]


@linux
def test_a_connection_that_nobody_answers_is_an_attempt(run: RunFolder, watching: Observer) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.3", 0))
        full.listen(0)
        first.connect(full.getsockname())  # takes the only place
        second.setblocking(False)
        for _ in range(3):  # the kernel may grant one place more
            second.connect_ex(full.getsockname())
        script = f"import socket; s = socket.socket(); s.settimeout(5); s.connect({full.getsockname()!r})"
        attempt = ("psutil", "connect")
        child = subprocess.Popen([sys.executable, "-I", "-c", script], stderr=subprocess.DEVNULL)
        try:
            rows = until(
                lambda: [r for r in noted(folder_of(run)) if (r["source"], r.get("call")) == attempt]
            )
        finally:
            child.kill()
            child.wait()
    assert {row["address"] for row in rows} == {"127.0.0.3"}


@linux
def test_a_process_whose_parent_is_gone_stays_watched(
    run: RunFolder, listener: tuple[str, int], watching: Observer, tmp_path: Path
) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(STRANGER.replace("c =", "time.sleep(1.5)\nc ="), encoding="utf-8")
    leave = (
        "import subprocess, sys, time\n"
        "null = subprocess.DEVNULL\n"
        "child = subprocess.Popen(sys.argv[1:], stdout=null, stderr=null, start_new_session=True)\n"
        "print(child.pid, flush=True); time.sleep(0.7)"
    )
    words = [sys.executable, "-c", leave, sys.executable, str(script), *map(str, listener)]
    orphan = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    try:
        until(lambda: sampled(run, process="orphan"))
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_sampling_keeps_to_its_share_of_a_core(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def burn(_: Observer) -> bool:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.02:
            pass
        return False

    monkeypatch.setattr(Observer, "_look", burn)
    observer = Observer(run, every_s=0.001)
    observer.start()
    time.sleep(1.0)
    observer.close()
    (row,) = [row for row in noted(folder_of(run)) if "samples" in row]
    assert 2 <= row["samples"] <= 5, "0.02 s each, a twentieth of a core: one in 0.4 s"


def test_a_sampler_that_stopped_shows_as_a_gap(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Observer, "_look", lambda _: 1 / 0)
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    observer = Observer(run)
    observer.start()
    time.sleep(0.6)
    observer.close()
    result = summarise(folder_of(run))
    assert result["samples"] == 0
    assert result["sampled_every_s"] is None
    assert result["longest_gap_s"] >= 0.6


# ------------------------------------------------------------------------------------------------------ the record


def test_the_record_is_in_the_folder_and_its_digest_in_the_ledger(run: RunFolder) -> None:
    ledger = Ledger(run.ledger, run.run_id, "launcher")
    with observed(run, ledger):
        assert os.environ[OBSERVE_VARIABLE] == str(folder_of(run))
        socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
    assert OBSERVE_VARIABLE not in os.environ
    (event,) = read_events(run.ledger)
    assert (event["event"], event["data"]) == (
        "network_observed",
        {"network_sha256": file_sha256(run.network), "beyond_loopback": 0},
    )
    result = json.loads(run.network.read_text(encoding="utf-8"))
    assert result["schema"] == "grpo-lib/network/1"
    assert result["cannot_see"]
    assert [one["address"] for one in result["endpoints"] if one["source"] == "audit"] == ["127.0.0.1"]
    assert 0 < result["sampled_every_s"] <= result["longest_gap_s"] < 5


def test_a_launch_that_fails_leaves_its_record_too(run: RunFolder) -> None:
    ledger = Ledger(run.ledger, run.run_id, "launcher")
    with pytest.raises(KeyboardInterrupt), observed(run, ledger):
        # Nobody is asked: a datagram socket that is connected sends nothing.
        socket.socket(type=socket.SOCK_DGRAM).connect(("127.0.0.1", 9))
        raise KeyboardInterrupt
    assert read_events(run.ledger)[-1]["event"] == "network_observed"


def test_what_several_launches_saw_is_one_record(run: RunFolder) -> None:
    for launch in (1, 2):
        hook = EndpointLog(folder_of(run), f"learner-{launch}", "audit")
        hook.add("learner", "lookup", "huggingface.co", 443, 100.0 * launch)
        hook.add("learner", "connect", "8.8.8.8", 443, 100.0 * launch)
        hook.add("learner", "connect", "10.0.0.7", 8443, 100.0 * launch)
        hook.add("learner", "connect", "127.0.0.1", 29500, 100.0 * launch)
        hook.write()
        samples = EndpointLog(folder_of(run), f"psutil-{launch}", "psutil")
        samples.add("learner", "connection", "::ffff:8.8.8.8", 443, 100.0 * launch + 1)
        samples.write(samples=10, seconds=2.5, longest_gap_s=0.1 + launch, unreadable=1)
    result = summarise(folder_of(run))
    rows = {(one["address"], one["source"]): one for one in result["endpoints"]}
    assert set(rows) == {
        ("huggingface.co", "audit"),
        ("8.8.8.8", "audit"),
        ("8.8.8.8", "psutil"),
        ("10.0.0.7", "audit"),
        ("127.0.0.1", "audit"),
    }
    assert result["beyond_loopback"] == 4
    assert rows["8.8.8.8", "audit"] == {
        "address_class": "public",
        "address": "8.8.8.8",
        "port_class": "https",
        "source": "audit",
        "process": "learner",
        "first": attempts.iso(100.0),
        "last": attempts.iso(200.0),
        "count": 2,
        "attempted_only": False,
    }
    assert rows["10.0.0.7", "audit"]["attempted_only"]
    assert rows["huggingface.co", "audit"]["attempted_only"]
    assert (result["samples"], result["sampled_every_s"]) == (20, 0.25)
    assert (result["longest_gap_s"], result["unreadable_processes"]) == (2.1, 2)


def test_rubbish_in_the_folder_is_counted_and_ends_nothing(run: RunFolder) -> None:
    log = EndpointLog(folder_of(run), "worker-1", "audit")
    log.add("worker", "connect", "8.8.8.8", 443, 0.0)
    log.write()
    rubbish = '{"source": "audit"}\n{"samples": "x"}\n{"address": 5}\nnot json\n'
    (folder_of(run) / "worker-2.jsonl").write_text(rubbish, encoding="utf-8")
    result = summarise(folder_of(run))
    assert [one["address"] for one in result["endpoints"]] == ["8.8.8.8"]
    assert result["damaged_lines"] == 3


# ------------------------------------------------------------------------------------------------------ offline


def test_only_a_model_that_is_here_makes_a_run_offline(tmp_path: Path) -> None:
    local = {"HF_HUB_OFFLINE": "1", offline.NAMES_VARIABLE: "1"}
    assert offline.environment("teaching", "127.0.0.1") == offline.QUIET | local
    assert offline.environment(str(tmp_path), "::1") == offline.QUIET | local
    assert offline.environment("some-org/some-model", "127.0.0.1") == offline.QUIET
    # Workers on other machines may be called by name.
    assert offline.environment("teaching", "10.0.0.5") == offline.QUIET | {"HF_HUB_OFFLINE": "1"}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a call of the GNU C library")
def test_names_come_from_files_where_that_is_asked_for() -> None:
    code = (
        "import socket; from grpo_lib.offline import names_from_files\n"
        "print(names_from_files(), socket.gethostbyname('localhost'))\n"
        "try: socket.gethostbyname('planted.invalid')\n"
        "except socket.gaierror as error: print(error.errno)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | {offline.NAMES_VARIABLE: "1"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "127.0.0.1", str(socket.EAI_NONAME)]


def test_names_are_left_alone_where_it_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(offline.NAMES_VARIABLE, raising=False)
    assert not offline.names_from_files()


def test_observing_needs_no_torch() -> None:
    code = (
        "import sys, grpo_lib.observe, grpo_lib.offline; print({'torch', 'transformers'} & set(sys.modules))\n"
        "import subprocess\n"
        'light = \'import sys, grpo_lib.attempts; print({"psutil", "pydantic", "filelock"} & set(sys.modules))\'\n'
        "print(subprocess.run([sys.executable, '-c', light], capture_output=True, text=True).stdout)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "set()"]
    assert observe.SCHEMA == "grpo-lib/network/1"
