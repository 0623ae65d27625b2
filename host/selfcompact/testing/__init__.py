"""For other people's tests: a fake provider, and pytest fixtures for sessions, scripted models and kernels.

The fixtures are a pytest plugin that loads itself when selfcompact is installed:

```python
async def test_my_agent(selfcompact_session):
    async with selfcompact_session([cell("x = 1"), say("done")]) as session:
        result = await session.prompt("do it")
    assert result.text == "done"
```

Install `selfcompact[testing]` for the fake provider.
"""

from typing import TYPE_CHECKING, Any

from selfcompact.testing.replies import Call, Fault, Reply, cell, overflow_fault

if TYPE_CHECKING:
    from selfcompact.testing.fake_provider import FakeProvider, Received

__all__ = ["Call", "FakeProvider", "Fault", "Received", "Reply", "cell", "overflow_fault"]


def __getattr__(name: str) -> Any:
    """The fake provider needs a web server, which a project that only uses the fixtures need not install."""
    if name in ("FakeProvider", "Received"):
        from selfcompact.testing import fake_provider

        return getattr(fake_provider, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
