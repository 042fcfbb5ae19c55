"""A real chat server on this machine whose model is a script, for tests of whole commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from drv_env.protocol import Answer, Search, Visit, render_turn, search_hits
from drv_env.tasks import Task

Messages = list[dict[str, str]]


class ChatServer:
    """``with ChatServer(policy) as server``: answers ``/v1/chat/completions`` from a thread.

    Args:
        policy: the next turn for a conversation; what it raises is answered with HTTP 400.
        hold: the number, from 1, of a request that gets no answer, nor any after it.

    Attributes:
        requests: the bodies that came.
        reached: set once the request ``hold`` has come.
    """

    def __init__(self, policy: Callable[[Messages], str], hold: int | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.reached = threading.Event()
        self._free = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.requests.append(body)
                    outer.headers.append(dict(self.headers))
                    held = hold is not None and len(outer.requests) >= hold
                if held:
                    outer.reached.set()
                    outer._free.wait()
                    self.close_connection = True
                    return
                try:
                    text, status = policy(body["messages"]), 200
                except ValueError as error:
                    text, status = str(error), 400
                reply: dict[str, Any] = {"error": {"message": text}}
                if status == 200:
                    choice = {"message": {"content": text}, "finish_reason": "stop"}
                    usage = {"prompt_tokens": 100, "completion_tokens": 10}
                    reply = {"choices": [choice], "usage": usage}
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._free.set()
        self._server.shutdown()
        self._server.server_close()


class Knowing:
    """A policy that searches for the question's first name, opens the page, and answers.

    Args:
        tasks: whose answers it knows.
        wrong: questions that it answers wrongly.
        lost: questions for which the server fails.
    """

    def __init__(
        self, tasks: Sequence[Task], wrong: Sequence[str] = (), lost: Sequence[str] = ()
    ) -> None:
        self.answers = {task.question: task.answers[0] for task in tasks}
        self.starts = {task.question: task.metadata["start"] for task in tasks}
        self.wrong, self.lost = set(wrong), set(lost)

    def __call__(self, messages: Messages) -> str:
        question = next(item["content"] for item in messages if item["role"] == "user")
        if question in self.lost:
            raise ValueError("the model has gone fishing")
        start = self.starts[question]
        turn = sum(item["role"] == "assistant" for item in messages)
        if turn == 0:
            return render_turn(f"I look for {start}.", Search((start,)))
        if turn == 1:
            url = search_hits(messages[-1]["content"])[0]["url"]
            return render_turn("I open its page.", Visit((url,), "what it says"))
        answer = "nobody" if question in self.wrong else self.answers[question]
        return render_turn(f"The page says {answer}.", Answer(answer))
