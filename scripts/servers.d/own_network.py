"""A server that listens on every address, kept where only this machine's loopback reaches it.

Usage: own_network.py PORT COMMAND…

The listening socket is made first, on 127.0.0.1; then this process moves into a network of its own, with nothing in it but a
loopback, starts the command there, and hands on what comes in. A socket stays in the network it was made in, so both sides are reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_DIE_WITH_PARENT = 1
_SET_FLAGS, _UP = 0x8914, 0x1
_PIECE = 1 << 18

libc = ctypes.CDLL(None, use_errno=True)


def move() -> None:
    """Into a network of our own; only a user namespace gives that right to someone who is not root."""
    flags = _NEW_NETWORK | (_NEW_USER if os.getuid() else 0)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "a network of its own is not allowed here (user namespaces may be off)")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def hand_on(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def serve(caller: socket.socket, port: int) -> None:
    try:
        callee = socket.create_connection(("127.0.0.1", port), 10)
    except OSError:
        caller.close()
        return
    callee.settimeout(None)
    for sock in (caller, callee):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=hand_on, args=(callee, caller), daemon=True)
    back.start()
    hand_on(caller, callee)
    back.join()
    caller.close()
    callee.close()


def main() -> int:
    port, command = int(sys.argv[1]), sys.argv[2:]
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    move()
    server = subprocess.Popen(command, preexec_fn=lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL))
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())

    def accept() -> None:
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=serve, args=(caller, port), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
