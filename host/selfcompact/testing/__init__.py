"""For other people's tests: a fake provider, and pytest fixtures for sessions, scripted models and kernels.

The fixtures are a pytest plugin that loads itself when selfcompact is installed. Their sessions are played by the steps
of `selfcompact.cell`, `say`, `overflow` and `fail`:

```python
from selfcompact import cell, say

async def test_my_agent(selfcompact_session):
    async with selfcompact_session([cell("x = 1"), say("done")]) as session:
        result = await session.prompt("do it")
    assert result.text == "done"
```

What is exported here is one level below, what a provider answers over the wire: `Reply`, `cell_reply`, `Fault`.
Install `selfcompact[testing]` for the fake provider. The names are imported when they are first used.
"""

TYPE_CHECKING = False  # as in the root package

if TYPE_CHECKING:
    from selfcompact.testing.fake_provider import FakeProvider, Received
    from selfcompact.testing.replies import Call, Fault, Reply, cell_reply, overflow_fault

__all__ = ["Call", "FakeProvider", "Fault", "Received", "Reply", "cell_reply", "overflow_fault"]

_PLACES = {
    "testing.fake_provider": ("FakeProvider", "Received"),
    "testing.replies": ("Call", "Fault", "Reply", "cell_reply", "overflow_fault"),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562): pytest loads this package in every project."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        place = next(place for place, names in _PLACES.items() if name in names)
        found = globals()[name] = getattr(import_module(f"selfcompact.{place}"), name)
        return found

    def __dir__() -> list[str]:
        """The public names."""
        return list(__all__)
