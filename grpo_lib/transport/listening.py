"""The port that a learner is found at. No torch: the launcher reserves it before the learner has loaded anything."""

from __future__ import annotations

import ipaddress
import socket

from grpo_lib.errors import WrongInput, isolate


def listen(bind: str, ports: range) -> socket.socket:
    """A listening socket on the first free port of the range, on this one address."""
    try:
        family, _, _, _, (host, *_) = socket.getaddrinfo(bind, None, type=socket.SOCK_STREAM)[0]
        if ipaddress.ip_address(host).is_unspecified:
            raise OSError("a wildcard address")
    except (OSError, ValueError) as error:
        raise WrongInput(
            ar=f"لا يصلح {isolate(bind)} عنوانًا للاستماع ({isolate(error)}). اذكر عنوان بطاقة الشبكة نفسها، "
            f"مثل {isolate('127.0.0.1')}.",
            en=f"{bind} cannot be listened on ({error}). Name the address of an interface, like 127.0.0.1.",
        ) from None
    error: OSError | None = None
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a port whose last run has just ended is free
        try:
            listener.bind((host, port))
            listener.listen(128)
            return listener
        except OSError as failed:
            listener.close()
            error = failed
    span = f"{ports.start}–{ports.stop - 1}"
    raise WrongInput(
        ar=f"لا منفذ متاحًا على {isolate(bind)} في المدى {isolate(span)} ({isolate(error)}). "
        f"أوقف تشغيلًا سابقًا أو وسّع المدى ({isolate('port_first')} و{isolate('port_last')}).",
        en=f"No port is free on {bind} in the range {span} ({error}). "
        "Stop an earlier run or widen the range (port_first, port_last).",
    )
