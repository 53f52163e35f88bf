"""What only Gloo has: processes that die or stop, ports, strangers, and what crosses the network."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from transport_ends import DEADLINE_S, HEARTBEAT_S, PORTS, SECRET, Gloo, Link, event_of, events_until

from grpo_lib.errors import WrongInput
from grpo_lib.transport import Arrived, Dropped, Joined, JoinRefused, LearnerLost, Lost, OpenedGroup, Refused
from grpo_lib.transport.gloo_pair import GlooWire, address_class, store_client
from grpo_lib.transport.handshake import make_hello


@pytest.fixture
def link():
    made = Link(Gloo())
    yield made
    made.close()


# ---- processes ------------------------------------------------------------------------------


def echo(learner, worker_id: str) -> None:
    """One lease there and back."""
    assert learner.grant(worker_id, worker_id.encode())
    assert event_of(learner, lambda event: isinstance(event, Arrived)) == Arrived(
        worker_id, worker_id.encode()
    )


def test_kill_and_stop_touch_one_pair_only_and_a_resumed_worker_joins_again(link):
    learner = link.learner()
    names = ["killed", "steady", "stopped"]
    given = dict(run_id="run", secret=SECRET.hex(), address=learner.address)
    given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=20.0)
    script = Path(__file__).with_name("echo_worker.py")
    command = [sys.executable, script, json.dumps([names, given])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pids = json.loads(process.stdout.readline())
        try:
            for _ in names:
                event_of(learner, lambda event: isinstance(event, Joined))
            learner.publish(1, bytes(1_000_000))
            for name in names:
                echo(learner, name)

            os.kill(pids["killed"], signal.SIGKILL)
            lost = event_of(learner, lambda event: isinstance(event, Lost))
            assert lost == Lost("killed", "connection closed")
            assert learner.workers() == ("steady", "stopped")
            assert not learner.grant("killed", b"lease")
            echo(learner, "steady")
            echo(learner, "stopped")

            os.kill(pids["stopped"], signal.SIGSTOP)
            started = time.monotonic()
            learner.grant("stopped", b"goes into a buffer, and nobody reads it")
            echo(learner, "steady")
            assert event_of(learner, lambda event: isinstance(event, Lost)) == Lost("stopped", "silent")
            assert DEADLINE_S - HEARTBEAT_S - 0.5 < time.monotonic() - started < 3 * DEADLINE_S
            echo(learner, "steady")

            os.kill(pids["stopped"], signal.SIGCONT)
            assert event_of(learner, lambda event: isinstance(event, Joined)).worker_id == "stopped"
            echo(learner, "steady")
            echo(learner, "stopped")

            learner.finish()
            ends = json.loads(process.communicate(timeout=20)[0])
            assert ends == {"killed": [-9, None], "steady": [0, []], "stopped": [0, ["connection closed"]]}
        finally:
            for pid in pids.values() if process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)


# One interpreter that forks a learner, which is killed, and then leaves without closing what it has opened.
LEARNER_THAT_DIES = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from transport_ends import Gloo
if os.fork() == 0:
    learner = Gloo().learner()
    print(learner.address, flush=True)
    while type(learner.receive(1)).__name__ != "Arrived":
        pass
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
learner = Gloo().learner()
worker = Gloo().worker(learner, "worker-0")
worker.join({{}})
sys.exit(7)
"""


def test_a_killed_learner_is_a_loss_its_port_is_free_again_and_nobody_aborts(link):
    code = LEARNER_THAT_DIES.format(folder=str(Path(__file__).parent))
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        address = process.stdout.readline().strip()
        dying = type("Learner", (), {"address": address})
        worker = link.worker(dying, "worker-0")
        worker.join({})
        worker.submit(b"the last thing it sees")
        started = time.monotonic()
        with pytest.raises(LearnerLost) as caught:
            worker.next_lease(20)
        assert caught.value.reason == "connection closed"
        assert time.monotonic() - started < DEADLINE_S
        # An exit with open sessions must not end in "terminate called without an active exception".
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (7, "")
    port = int(address.rpartition(":")[2])
    learner = link.learner(ports=range(port, port + 1))
    worker.join({})  # the run goes on at the same address
    event_of(learner, lambda event: isinstance(event, Joined))


# ---- addresses and ports --------------------------------------------------------------------


def test_ports_are_taken_in_order_and_their_end_is_explained(link):
    with contextlib.ExitStack() as stack:
        taken = PORTS[-3]
        while True:  # two neighbouring ports that nobody else uses
            try:
                for port in (taken, taken + 1):
                    busy = stack.enter_context(socket.socket())
                    busy.bind(("127.0.0.1", port))
                    busy.listen()
                break
            except OSError:
                taken -= 2
        with pytest.raises(WrongInput) as caught:
            link.learner(ports=range(taken, taken + 2))
        assert caught.value.exit_code == 2
        for text in (caught.value.ar, caught.value.en):
            assert f"{taken}–{taken + 1}" in text
            assert "port_first" in text
        learner = link.learner(ports=range(taken, PORTS.stop + 20))
        assert int(learner.address.rpartition(":")[2]) > taken + 1


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.1", "no such host.invalid"])
def test_an_address_that_cannot_be_bound_is_explained(link, bind):
    with pytest.raises(WrongInput) as caught:
        link.learner(bind=bind)
    assert bind in caught.value.ar
    assert bind in caught.value.en


def listening_addresses(pid: int) -> set[str]:
    """IPv4 and IPv6 addresses that a process listens on, from /proc."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                words = bytes.fromhex(fields[1].partition(":")[0])
                raw = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, raw))
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.2"])
def test_store_and_gloo_listen_on_the_given_address_only(link, bind):
    before = listening_addresses(os.getpid())
    learner = link.learner(bind=bind)
    worker = link.worker(learner, "worker-0", bind=bind)
    worker.join({})
    assert learner.address.startswith(bind)
    assert listening_addresses(os.getpid()) - before <= {bind}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (("127.0.0.1", "127.0.0.2"), "loopback"),
        (("::1", "127.0.0.1"), "loopback"),
        (("127.0.0.1", "10.1.2.3"), "private"),
        (("192.168.1.1", "fd00::1"), "private"),
        (("10.0.0.1", "8.8.8.8"), "public"),
        (("127.0.0.1", "a name"), "public"),
    ],
)
def test_address_class_is_the_wider_of_both(hosts, expected):
    assert address_class(*hosts) == expected


def test_the_group_itself_is_asked_for_its_backend(link):
    learner = link.learner()
    link.joined(learner, "worker-0")
    assert learner.opened_groups == (OpenedGroup(1, "gloo", ("learner", "worker-0"), "loopback"),)


# ---- strangers ------------------------------------------------------------------------------


def stranger(learner):
    host, _, port = learner.address.rpartition(":")
    return store_client(host, int(port), 3.0)


def test_noise_at_the_store_and_at_the_ports_does_no_harm(link):
    learner = link.learner()
    first = link.joined(learner, "first")
    store = stranger(learner)
    for noise in (b"", b"\xff" * 100, b"{}", b"[" * 4000, os.urandom(3000)):
        store.queue_push("knocks", noise)
        store.set("knocks", noise)
        store.set("pair/0/0", noise)
    for _ in range(20):
        with socket.create_connection(store_address(learner)) as line:
            line.sendall(os.urandom(200))
    reasons = {event_of(learner, lambda event: isinstance(event, Refused)).reason for _ in range(5)}
    assert reasons == {"malformed hello"}
    link.joined(learner, "second")
    first.submit(b"still here")
    assert event_of(learner, lambda event: isinstance(event, Arrived)).worker_id == "first"


def store_address(learner) -> tuple[str, int]:
    host, _, port = learner.address.rpartition(":")
    return host, int(port)


def test_a_recorded_hello_opens_nothing(link, monkeypatch):
    recorded = []

    def record(*args):
        recorded.append(make_hello(*args))
        return recorded[-1]

    monkeypatch.setattr("grpo_lib.transport.gloo.make_hello", record)
    learner = link.learner()
    link.joined(learner, "worker-0")
    stranger(learner).queue_push("knocks", recorded[0][0])
    assert event_of(learner, lambda event: isinstance(event, Refused)) == Refused(
        "worker-0", "replayed hello"
    )
    assert learner.workers() == ("worker-0",)
    assert len(learner.opened_groups) == 1


def test_what_a_stranger_writes_into_the_rendezvous_reaches_nobody(link):
    """A worker that is answered but whose meeting place is overwritten fails alone, and the process lives."""
    learner = link.learner()
    raw, hello = make_hello(SECRET, "run", "worker-0", "127.0.0.1")
    store = stranger(learner)
    for rank in (0, 1):
        store.set(f"pair/{hello.nonce}/0/{rank}", b"\xff" * 170)
    store.queue_push("knocks", raw)
    event = event_of(learner, lambda event: isinstance(event, Refused))
    assert event == Refused("worker-0", "pair failed: not connected")
    link.joined(learner, "worker-1")


def test_a_false_learner_gets_no_worker(link):
    """Somebody else's learner at the address, who does not know the secret."""
    learner = link.learner(secret=b"not the secret of this run")
    with pytest.raises(JoinRefused) as caught:
        link.worker(learner, "worker-0").join({})
    assert caught.value.reason == "join secret"


# ---- what crosses the link ------------------------------------------------------------------

PROMPT = "كم حاصل جمع سبعة عشر وخمسة وعشرين؟"
TENSOR = struct.pack("<4096f", *(0.001 * n for n in range(4096)))  # as in a safetensors file


def exchange(link) -> list[bytes]:
    """A whole small run; returns what must not be seen."""
    learner = link.learner(welcome={"purpose": PROMPT})
    worker = link.worker(learner, "worker-0")
    worker.join({"base": PROMPT})
    event_of(learner, lambda event: isinstance(event, Joined))
    learner.publish(1, TENSOR * 20)
    assert worker.latest_policy(0, 5) == (1, TENSOR * 20)
    learner.grant("worker-0", PROMPT.encode())
    worker.submit(worker.next_lease(5) + TENSOR)
    assert event_of(learner, lambda event: isinstance(event, Arrived)).payload == PROMPT.encode() + TENSOR
    worker.close()
    texts = [PROMPT.encode(), PROMPT.encode("utf-16-le"), json.dumps(PROMPT)[1:-1].encode(), SECRET]
    return texts + [TENSOR[start : start + 32] for start in range(0, len(TENSOR), 4096)]


def assert_sealed(seen: bytes, hidden: list[bytes]) -> None:
    assert [text for text in hidden if text in seen or text.hex().encode() in seen] == []


def test_the_process_group_is_given_sealed_bytes_only(link, monkeypatch):
    seen = []
    send = GlooWire.send

    def spy(self, piece, timeout):
        seen.append(bytes(piece))
        send(self, piece, timeout)

    monkeypatch.setattr(GlooWire, "send", spy)
    hidden = exchange(link)
    assert sum(map(len, seen)) > 21 * len(TENSOR)
    assert_sealed(b"".join(seen), hidden)


def test_a_capture_of_the_link_shows_no_prompt_and_no_tensor(link):
    """Every packet on the loopback interface, the store's included."""
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))  # ETH_P_ALL
    except (AttributeError, PermissionError):
        pytest.skip("capturing needs Linux and CAP_NET_RAW; the test above looks at the same bytes")
    seen = bytearray()
    over = threading.Event()

    def capture():
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                seen.extend(tap.recv(1 << 17))

    with tap:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        tap.bind(("lo", 0))
        tap.settimeout(0.1)
        thread = threading.Thread(target=capture)
        thread.start()
        hidden = exchange(link)
        with socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM
        ) as control:  # proves that the capture sees content
            control.sendto(b"control: " + PROMPT.encode(), ("127.0.0.1", 9))
        time.sleep(0.3)
        over.set()
        thread.join()
    before, mark, _ = bytes(seen).partition(b"control: " + PROMPT.encode())
    assert mark, "the capture is blind"
    assert b"GRPF" in before, "frames were captured"
    assert b"worker-0" in before, "the handshake was captured"
    assert len(before) > 21 * len(TENSOR)
    assert_sealed(before, hidden)


# ---- tampering below the session ------------------------------------------------------------


def test_a_foreign_message_in_the_group_is_counted_and_dropped(link):
    learner = link.learner()
    worker = link.joined(learner, "worker-0")
    wire = worker._view.session._wire
    for size in (
        1,
        512,
        1 << 20,
    ):  # as large as a piece may be: a larger one would abort the learner's process
        noise = torch.randint(0, 256, (size,), dtype=torch.uint8)
        wire._group.send([noise], 0, 0).wait()
    worker.submit(b"still here")
    events = events_until(learner, lambda event: isinstance(event, Arrived))
    assert events == [Dropped("worker-0", "foreign")] * 3 + [Arrived("worker-0", b"still here")]
    assert learner.stats()["dropped"] == {"foreign": 3}
