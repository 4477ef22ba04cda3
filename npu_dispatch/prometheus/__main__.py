"""The exporter's helper process: python -m npu_dispatch.prometheus PID HOST PORT.

It prints the port that it got, and serves until its standard input or PID ends.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from npu_dispatch.processes import Processes
from npu_dispatch.prometheus.scrapes import Scrapes

_TICK_MS = 1000


def serve(pid: int, host: str, port: int) -> int:
    scrapes = Scrapes(Processes(pid=pid), ranked=False)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body, content_type = scrapes.answer(self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            # HTTPServer's own method would ask the network for the host's name.
            socketserver.TCPServer.server_bind(self)

    try:
        server = Server((host.strip("[]"), port), Handler)
        watched = os.pidfd_open(pid)
    except (OSError, OverflowError) as error:
        print(error, flush=True)
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gc.freeze()  # what is loaded stays, so collections need not look at it
    print(server.server_address[1], flush=True)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
    while not poll.poll(_TICK_MS):
        scrapes.tick()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
