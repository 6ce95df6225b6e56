"""A small HTTP client for OpenAI's API as `vllm serve` offers it: stdlib only, a deadline on every call."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


class HttpError(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body[:500]}")
        self.status = status
        self.body = body


class Stream:
    """Server-sent events of one request. close() hangs up in the middle."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.texts: list[str] = []
        self.request_id = ""
        self.error: Json | None = None
        self.finish_reason: str | None = None

    def __iter__(self) -> Iterator[str]:
        """Pieces of text, until [DONE] or an error event."""
        for line in self._response:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                self.error = event["error"]
                return
            self.request_id = event.get("id", self.request_id)
            for choice in event.get("choices", []):
                text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
                self.texts.append(text)
                yield text

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def close(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._response.close()
        self._connection.close()


class Api:
    def __init__(self, port: int, model: str, timeout_s: float = 120.0) -> None:
        self.port = port
        self.model = model
        self.timeout_s = timeout_s

    def _send(self, method: str, path: str, body: Json | None, timeout_s: float | None = None) -> tuple[
        http.client.HTTPConnection, http.client.HTTPResponse]:  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s or self.timeout_s)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def ask(self, method: str, path: str, body: Json | None = None, timeout_s: float | None = None) -> Any:
        """The JSON answer, or its text. Raises HttpError."""
        connection, response = self._send(method, path, body, timeout_s)
        text = response.read().decode()
        connection.close()
        if response.status >= 300:
            raise HttpError(response.status, text)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def post(self, path: str, body: Json | None = None, timeout_s: float | None = None) -> Any:
        return self.ask("POST", path, body, timeout_s)

    def completion(self, prompt: Any, **fields: Any) -> Json:
        body = {"model": self.model, "prompt": prompt, "temperature": 0, "max_tokens": 16, **fields}
        answer: Json = self.post("/v1/completions", body)
        return answer

    def chat(self, text: str, **fields: Any) -> Json:
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "temperature": 0,
                "max_tokens": 24, **fields}  # fmt: skip
        answer: Json = self.post("/v1/chat/completions", body)
        return answer

    def stream(self, prompt: str, **fields: Any) -> Stream:
        body = {"model": self.model, "prompt": prompt, "temperature": 0, "max_tokens": 64, "stream": True, **fields}
        connection, response = self._send("POST", "/v1/completions", body)
        if response.status >= 300:
            raise HttpError(response.status, response.read().decode())
        return Stream(connection, response)

    def health(self, timeout_s: float = 5.0) -> int:
        """The status of /health, 0 when nobody answers."""
        try:
            connection, response = self._send("GET", "/health", None, timeout_s)
        except (OSError, http.client.HTTPException):
            return 0
        response.read()
        connection.close()
        return response.status
