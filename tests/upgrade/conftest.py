"""Where the fixtures of each release are."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data/upgrade"
RELEASES = sorted(path.name for path in DATA.iterdir())


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    """The folder of a release: what its users have on their disks."""
    return DATA / str(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder
