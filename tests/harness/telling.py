"""A Prometheus that answers as it is told."""

import json
import threading
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from tests.harness.serving import Quiet


class TellingServer:
    def __init__(self):
        self.status, self.body, self.hold, self.asked = 200, {}, threading.Event(), 0
        self.location, self.forms, self.paths, self.header_bytes, self.sent = "", [], [], 8192, 0
        self.tenant, self.encoding = None, "identity"
        self.get_only, self.verdict = False, lambda query: (200, None)
        self.hold.set()
        outer = self

        class Handler(Quiet):
            def do_GET(self):  # noqa: N802
                self.say(parse_qs(urlsplit(self.path).query))

            def do_POST(self):  # noqa: N802
                form = parse_qs(self.body().decode())
                self.say(form | parse_qs(urlsplit(self.path).query))

            def say(self, form):
                outer.asked += 1
                outer.tenant = self.headers["X-Scope-OrgID"]
                outer.forms.append(form)
                outer.paths.append(self.path)
                outer.hold.wait(10)
                status = outer.status
                if len(self.requestline) > outer.header_bytes:
                    status = 414  # nginx with large_client_header_buffers 4 8k
                elif outer.get_only and self.command == "POST":
                    status = 405
                said, body = outer.verdict("".join(form.get("query", [])))
                self.send_response(status if status != 200 else said)
                body = body or outer.body
                text = body if isinstance(body, str) else json.dumps(body)
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Content-Encoding", outer.encoding)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.end_headers()
                view = memoryview(text.encode())
                with suppress(OSError):
                    for begin in range(0, len(view), 2**16):
                        outer.sent += self.wfile.write(view[begin : begin + 2**16])

        self.handler, self.url = Handler, ""

    def answer(self, *series, **more):
        self.body = {"status": "success", "data": {"resultType": "vector", "result": list(series)}, **more}


def series(value="3", kind="v"):
    return {"metric": {"namespace": "ns", "service": "chat", "_": kind}, "value": [100.0, value]}
