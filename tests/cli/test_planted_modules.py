"""The script imports nothing from the directory it is started in, and neither does what it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = ("anyio", "json", "sitecustomize", "usercustomize", "zmq", "click", "selfcompact", "site")
SCRIPT = Path(sys.executable).with_name("selfcompact")


@pytest.mark.parametrize("command", [["settings"], ["sandbox"], ["run", "x", "--script", "script.json", "--json"]])
def test_what_cells_planted_in_a_workspace_is_not_run_by_the_script(tmp_path: Path, command: list[str]) -> None:
    mark = tmp_path.with_name(f"{tmp_path.name}-ran")
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    (tmp_path / "planted.pth").write_text(f"import os; open({str(mark)!r}, 'a').write('pth')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p planted\n")
    (tmp_path / "script.json").write_text(json.dumps([{"cell": "6 * 7"}, {"say": "done"}]))
    done = subprocess.run(
        [str(SCRIPT), *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert not mark.exists(), mark.read_text()
    assert '"42"' in done.stdout or command[0] != "run"
