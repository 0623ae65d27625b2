"""From the parts of a message to a checked value, on the loop when they are few and on a thread when they are many.

A signature over megabytes, their decoding and an image's pixels take milliseconds that no other session should wait
for. There is one thread for all kernels, and one message of each waits for it at most: it takes as much memory as a
message may have, once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from host_bridge.host.connection import Connection
from selfcompact.kernel.content import Content, Display, content_of
from selfcompact.kernel.output import Shown, has_image, shown
from selfcompact.kernel.wire import Message, Wire

log = logging.getLogger(__name__)

OFF_LOOP_BYTES = 64 * 1024
"""From here on a message is checked on the thread."""

WantsImages = Callable[[str], bool]
"""Whether images of the cell with this request id are still kept."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was signed with the kernel's key. `content` is None when it says nothing that we know."""

    message: Message
    content: Content | Shown | None = None


class Checking:
    """Checks the messages of one channel in their order and hands on those that are the kernel's.

    The loop's thread owns it. `deliver` is called on the loop, with None for what the kernel's key did not sign.
    """

    def __init__(
        self, wire: Wire, deliver: Callable[[Received | None], None], wants_images: WantsImages, image_bytes: int
    ) -> None:
        self._wire, self._deliver, self._wants_images = wire, deliver, wants_images
        self._image_bytes = image_bytes
        self.busy = False
        """Whether a message is being checked on the thread."""

    def __call__(self, connection: Connection, parts: list[bytes]) -> None:
        """Take a message of a connection, which is held until it was handed on."""
        if sum(map(len, parts)) < OFF_LOOP_BYTES:
            found = self._read(parts)
            display = found.content if found is not None else None
            if found is None or not isinstance(display, Display):
                self._deliver(found)
                return
            if not has_image(display.data):
                self._deliver(Received(found.message, shown(display.data, None)))
                return
        self.busy = True
        connection.hold()
        begin = time.perf_counter()
        future = asyncio.get_running_loop().run_in_executor(_thread(), self._check, parts)
        future.add_done_callback(lambda done: self._checked(connection, done, begin))

    def _checked(self, connection: Connection, done: asyncio.Future[Received | None], begin: float) -> None:
        self.busy = False
        if connection.closed or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("a message of the kernel was dropped", exc_info=error)
        self._deliver(None if error is not None else done.result())
        connection.release(time.perf_counter() - begin)

    def _read(self, parts: Sequence[bytes]) -> Received | None:
        message = self._wire.unpack(parts)
        return None if message is None else Received(message, content_of(message.type, message.raw_content))

    def _check(self, parts: Sequence[bytes]) -> Received | None:
        found = self._read(parts)
        if found is None or not isinstance(found.content, Display):
            return found
        keep = self._image_bytes if self._wants_images(found.message.parent_id) else None
        return Received(found.message, shown(found.content.data, keep))


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="selfcompact-check")
