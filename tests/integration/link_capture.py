"""What really crosses a loopback address: a packet socket, as `tcpdump -i lo host ADDRESS` would see it."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict

# linux/if_packet.h: a packet for this host (on `lo` each packet is also seen once as an outgoing one).
_PACKET_HOST = 0
_ETHERNET_BYTES = 14
_ANY_PROTOCOL = 0x0003
_BUFFER_BYTES = 64 << 20
_SO_RCVBUFFORCE = 33


class LinkCapture:
    """Records the TCP payload of every flow from or to one IPv4 loopback address. Needs CAP_NET_RAW.

    Raises:
        PermissionError: this user may not capture.
    """

    def __init__(self, address: str):
        self._address = socket.inet_aton(address)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ANY_PROTOCOL))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._flows: defaultdict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            ending = self._done.is_set()
            if ending:
                self._socket.setblocking(False)  # only what lies there already
            try:
                frame, (_, _, kind, *_) = self._socket.recvfrom(1 << 18)
            except (TimeoutError, BlockingIOError):
                if ending:
                    return
                continue
            if kind == _PACKET_HOST:
                self._keep(frame[_ETHERNET_BYTES:])

    def _keep(self, packet: bytes) -> None:
        if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        if self._address not in (packet[12:16], packet[16:20]):
            return
        tcp = packet[(packet[0] & 15) * 4 :]
        source, target = struct.unpack_from(">HH", tcp)
        self._flows[source, target] += tcp[(tcp[12] >> 4) * 4 :]

    def stop(self) -> list[bytes]:
        """End the capture; one byte string per direction of each connection."""
        self._done.set()
        self._thread.join()
        self._socket.close()
        return [bytes(flow) for flow in self._flows.values()]
