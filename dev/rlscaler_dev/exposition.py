"""Text that is made up at each request, served on loopback: metrics for Prometheus to scrape, and live graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"


class ExpositionServer:
    """Answers every GET with the text of that moment until closed; of port 0 a free one is taken."""

    def __init__(self, text: Callable[[], str], port: int = 0, kind: str = "text/plain; version=0.0.4") -> None:
        """`text` is called from other threads; its `kind` is Prometheus's text format. Raises OSError."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self.address = f"{HOST}:{self._server.server_port}"
        """Host and port, as a scrape configuration takes them."""
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and wait for the thread that did."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
