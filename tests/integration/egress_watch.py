"""Run a command where no address beyond loopback can be reached, and tell whether it tried.

    python egress_watch.py RESULT COMMAND...

The command gets a network namespace with nothing but `lo`. The kernel counts there each connection or datagram that
finds no route, by whatever program and in whatever language (`OutNoRoutes`), also what neither an audit hook nor a
sample would see: the C library asking a name server, a static binary, a library's own sockets. RESULT becomes JSON:
`{"isolated": bool, "without_route": int, "code": int}`.

Where the system forbids new namespaces (some containers, some distributions), the command runs as it is and `isolated`
is false; the caller has its other means. Nothing needs to be installed.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

# linux/sched.h, linux/sockios.h, linux/if.h
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def isolate() -> None:
    """Move this process, which must have one thread, into a network of its own.

    Raises:
        OSError: the system forbids it, perhaps only halfway through.
    """
    import fcntl

    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWNET) != 0:  # root may
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        # The same user inside: some programs refuse to run as root.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def can_isolate() -> bool:
    """Whether `isolate` goes all the way, tried by a child: half of it would leave this process without a network."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        try:
            isolate()
            without_route()
        except Exception:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def without_route() -> int:
    """How many packets, IPv4 and IPv6, had nowhere to go in this network."""
    head, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Ip:")
    )
    sixth = Path("/proc/net/snmp6")
    rows = dict(line.split() for line in sixth.read_text().splitlines()) if sixth.is_file() else {}
    return int(values[head.index("OutNoRoutes")]) + int(rows.get("Ip6OutNoRoutes", 0))


def main() -> None:
    result, *command = sys.argv[1:]
    isolated = can_isolate()
    if isolated:
        isolate()
    code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    found = {"isolated": isolated, "without_route": without_route() if isolated else 0, "code": code}
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
