"""Input that waits for a boundary."""

from __future__ import annotations

from collections import deque

from selfcompact.messages import UserMessage


class Inbox:
    """Steering and follow-ups, each in the order it was given. Any task puts, the run takes; nothing awaits."""

    def __init__(self) -> None:
        self._steering: deque[UserMessage] = deque()
        self._follow_ups: deque[UserMessage] = deque()

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self._steering or self._follow_ups)

    def steer(self, message: UserMessage) -> None:
        """Deliver it before the next request."""
        self._steering.append(message)

    def follow_up(self, message: UserMessage) -> None:
        """Deliver it when the run would end."""
        self._follow_ups.append(message)

    def take(self, *, run_would_end: bool) -> list[UserMessage]:
        """What goes into the next request: all steering; without any, one follow-up if the run would end."""
        taken = list(self._steering)
        self._steering.clear()
        if not taken and run_would_end and self._follow_ups:
            taken.append(self._follow_ups.popleft())
        return taken
