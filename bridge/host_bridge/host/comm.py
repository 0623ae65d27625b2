"""The host's end of the comm transport: the same line and dispatcher behind a Jupyter comm. Host only.

For kernels that cannot reach a socket of ours: remote ones behind a gateway, and clients of other runtimes. A request
is a comm opened on the target `host.request` with data `{**payload, "type": …}`; further requests may be messages on
it. The answer is a `comm_msg` on the control channel, because a shell message never reaches a cell that awaits. A
client that sends no version gets flat keys, `{"status": "ok", **result}`; one that sends `"v": 1` gets them under
`result`.

Comm messages travel on IOPub, which drops messages when a cell floods it: a lost request is a time-out in the cell.
That is why this is the second transport.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from host_bridge.host.line import Line
from host_bridge.wire.errors import FrameError
from host_bridge.wire.protocol import (
    CANCEL,
    COMM_TARGET,
    VERSION,
    Answer,
    ErrorCode,
    Request,
    pack_request,
    unpack_answer,
)

_MAX_COMMS = 1024

SendOnControl = Callable[[str, Mapping[str, Any]], object]


class CommEnd:
    """Turns comm messages of one kernel into requests on its line, and answers into comm messages.

    The event loop's thread owns it. `send` sends a message of a type with a content on the control channel.
    """

    def __init__(self, line: Line, *, key: bytes, generation: int, send: SendOnControl) -> None:
        self._line, self._key, self._generation, self._send = line, key, generation, send
        self._open: dict[str, str] = {}

    def receive(self, message_type: str, content: Mapping[str, Any]) -> None:
        """Take a comm message from IOPub. Those of other targets are not ours and are ignored. Never raises."""
        comm_id, data = content.get("comm_id"), content.get("data")
        if not isinstance(comm_id, str) or not comm_id:
            return
        ours = comm_id in self._open or (message_type == "comm_open" and content.get("target_name") == COMM_TARGET)
        if message_type == "comm_close":
            self._cancel(self._open.pop(comm_id, ""))
        elif ours:
            self._ask(comm_id, data)

    def _ask(self, comm_id: str, data: object) -> None:
        request_id = uuid.uuid4().hex
        while len(self._open) >= _MAX_COMMS:
            self._open.pop(next(iter(self._open)))
        self._open[comm_id] = request_id
        values = dict(data) if isinstance(data, Mapping) else {}
        versioned = values.get("v") == VERSION
        flat = {key: value for key, value in values.items() if key != "type"}
        payload = values.get("payload") if versioned else flat
        request_type = values.get("type")
        if not isinstance(request_type, str) or not isinstance(payload, Mapping):
            answer = Answer(request_id, self._generation, {}, ErrorCode.BAD_FRAME, "a request needs a type")
            self._answer(comm_id, answer, versioned=versioned)
            return
        try:
            frame = pack_request(self._key, Request(request_id, self._generation, request_type, payload))
        except FrameError as error:
            answer = Answer(request_id, self._generation, {}, error.code, str(error))
            self._answer(comm_id, answer, versioned=versioned)
            return
        self._line.receive(
            frame, lambda said: self._answer(comm_id, unpack_answer(self._key, said), versioned=versioned)
        )

    def _answer(self, comm_id: str, answer: Answer, *, versioned: bool) -> None:
        if answer.code == ErrorCode.CANCELLED:
            return
        data: dict[str, Any]
        if versioned:
            error = None if answer.ok else {"code": answer.code, "message": answer.message}
            data = {"v": VERSION, "status": "ok" if answer.ok else "error", "result": dict(answer.result)}
            data.update({} if error is None else {"error": error})
        elif answer.ok:
            data = {**answer.result, "status": "ok"}
        else:
            data = {"status": "error", "error": answer.message, "code": answer.code}
        self._send("comm_msg", {"comm_id": comm_id, "data": data})

    def _cancel(self, request_id: str) -> None:
        if request_id:
            request = Request(uuid.uuid4().hex, self._generation, CANCEL, {"id": request_id})
            self._line.receive(pack_request(self._key, request), lambda _said: None)
