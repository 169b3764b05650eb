"""An OAuth2 token endpoint on a free port. Its tokens are unsigned JWTs, which a test's Kafka accepts."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def token_endpoint(client: str, secret: str) -> Iterator[str]:
    """Run it for the block and yield its URL; it has one client, with basic authentication."""
    shown = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers.get("Authorization") == shown
            response = {"access_token": _token(client), "expires_in": 600} if known else {"error": "invalid_client"}
            body = json.dumps(response | {"token_type": "Bearer"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
        server.shutdown()
        thread.join()


def _token(subject: str) -> str:
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + 600, "scope": "bus"})
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts), ""])
