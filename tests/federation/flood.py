"""Strangers at a gateway: `python -m tests.federation.flood PORT CA`.

500 silent connections and 50 that send 60 MB each, again and again until the process is killed, at the lowest
priority: real strangers use processors of their own.
"""

import contextlib
import os
import socket
import ssl
import sys
import threading
import time

HEAD = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {60 * 2**20}\r\n\r\n"


def silent(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def be_silent(port: int) -> None:
    while True:
        lines = []
        for _ in range(25):
            with contextlib.suppress(OSError):
                lines.append(silent(port))
        time.sleep(1)
        for line in lines:
            line.close()


def send_much(port: int, trust: ssl.SSLContext) -> None:
    while True:
        with contextlib.suppress(OSError), trust.wrap_socket(silent(port), server_hostname="localhost") as line:
            line.sendall(HEAD.encode())
            for _ in range(60):
                line.sendall(bytes(2**20))
        time.sleep(0.5)


def main(port: int, ca: str) -> None:
    os.nice(19)
    trust = ssl.create_default_context(cafile=ca)
    for _ in range(20):
        threading.Thread(target=be_silent, args=(port,), daemon=True).start()
    for _ in range(50):
        threading.Thread(target=send_much, args=(port, trust), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
