"""What people do in a kernel, end to end in the real sandbox: it must stay as pleasant as without one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

from selfcompact.messages import ImageContent
from selfcompact.sandbox.interpreter import inspect_interpreter

from .conftest import KERNEL_PYTHON, OpenKernel
from .layouts import make_environment, make_prefix, make_shim

COMMIT = """%%bash
set -e
git init -q -b trunk .
git config user.name Agent
git config user.email agent@example.org
echo text > file
git add file
git commit -q -m 'first words'
git log --format='%an: %s'
git status --short
"""

ours = pytest.mark.skipif(bool(KERNEL_PYTHON), reason="needs what is installed beside the tests, or makes its own")


@ours
@pytest.mark.slow
async def test_numbers_tables_and_figures_work_and_a_figure_is_an_image(opened: OpenKernel) -> None:
    async with opened() as kernel:
        tables = await kernel.execute(
            "import numpy as np, pandas as pd\n"
            "frame = pd.DataFrame({'n': np.arange(4), 'square': np.arange(4) ** 2})\n"
            "int(frame.square.sum()), float(np.linalg.norm(np.ones((3, 3)) @ np.ones(3)))"
        )
        assert tables.text.startswith("(14, 5.19"), tables.text
        figure = await kernel.execute(
            "import matplotlib.pyplot as plt\nframe.plot(x='n', y='square'); plt.title('squares'); plt.show()",
            timeout_s=50,
        )
        assert figure.status == "ok", figure.text
        assert [type(image) for image in figure.images] == [ImageContent]
        assert figure.images[0].mime_type == "image/png"
        saved = await kernel.execute(
            "plt.plot([1, 2]); plt.savefig('plot.png'); plt.close(); open('plot.png', 'rb').read(4)"
        )
        assert saved.text == "b'\\x89PNG'"


@pytest.mark.slow
async def test_children_pools_and_threads_work(opened: OpenKernel, workspace: Path) -> None:
    (workspace / "work.py").write_text("def double(n): return 2 * n\n")
    async with opened() as kernel:
        child = await kernel.execute(
            "import subprocess\nsubprocess.run('cat', input=b'abc', capture_output=True).stdout"
        )
        assert child.text == "b'abc'"
        pools = await kernel.execute(
            "import multiprocessing, work\n"
            "def pooled(how):\n"
            "    with multiprocessing.get_context(how).Pool(2) as pool: return pool.map(work.double, [1, 2])\n"
            "[pooled(how) for how in ('fork', 'spawn')]",
            timeout_s=40,
        )
        assert pools.text == "[[2, 4], [2, 4]]"
        threads = await kernel.execute(
            "from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor\n"
            "with ThreadPoolExecutor(8) as a, ProcessPoolExecutor(2, multiprocessing.get_context('spawn')) as b:\n"
            "    both = sum(a.map(work.double, range(100))), sum(b.map(work.double, range(10)))\nboth",
            timeout_s=40,
        )
        assert threads.text == "(9900, 90)"
        queue = await kernel.execute(
            "queue = multiprocessing.get_context('fork').Queue(); queue.put('through a pipe'); queue.get(timeout=5)"
        )
        assert queue.text == "'through a pipe'"
        assert "warn" not in queue.text.lower()


@pytest.mark.slow
async def test_shells_and_magics_work(opened: OpenKernel, workspace: Path) -> None:
    (workspace / "file.txt").touch()
    async with opened() as kernel:
        assert (await kernel.execute("!ls")).text == "file.txt"
        assert (await kernel.execute("listing = !ls\nlist(listing)")).text == "['file.txt']"
        assert (await kernel.execute("%%bash\nfor n in 1 2; do echo $n; done")).text == "1\n2"
        assert (await kernel.execute("%%bash\nls | wc -l > count; cat count")).text.strip() in ("1", "2")
        failed = await kernel.execute("%%bash\nexit 3")
        assert failed.error_name == "CalledProcessError"
        assert (await kernel.execute("%cd -q ..\n%pwd")).status == "ok"


@ours
@pytest.mark.slow
async def test_pip_lists_what_is_installed(opened: OpenKernel) -> None:
    async with opened() as kernel:
        listed = await kernel.execute("%pip list --disable-pip-version-check", timeout_s=40)
        assert "ipykernel" in listed.text, listed.text


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_works_in_the_workspace_and_what_it_makes_is_the_users(opened: OpenKernel, workspace: Path) -> None:
    """The user's own configuration of git is not there: a cell says who it is."""
    async with opened() as kernel:
        done = await kernel.execute(COMMIT)
        assert done.text == "Agent: first words"
    assert {path.stat().st_uid for path in (workspace / ".git").rglob("*")} == {os.getuid()}
    seen = await anyio.run_process(["git", "log", "--format=%s"], cwd=workspace)
    assert seen.stdout == b"first words\n"


@ours
@pytest.mark.slow
async def test_an_environment_in_the_workspace_can_be_the_kernels_and_be_installed_into(
    opened: OpenKernel, workspace: Path
) -> None:
    python = make_environment(workspace / ".venv")
    async with opened(python=python) as kernel:
        assert (await kernel.execute("import sys; sys.prefix")).text == repr(str(workspace / ".venv"))
        # The host runs it at each start, so that changing it takes the user's word.
        assert (await kernel.execute("open(sys.prefix + '/bin/python', 'w')")).error_name in (
            "OSError",
            "PermissionError",
        )
        assert (await kernel.execute("__import__('os').rename('.venv', 'aside')")).error_name == "OSError"
    async with opened({"write": [str(workspace / ".venv")]}, python=python) as kernel:
        made = await kernel.execute(
            "import sysconfig, pathlib\n"
            "pathlib.Path(sysconfig.get_path('purelib'), 'installed_now.py').write_text('answer = 42')\n"
            "import installed_now; installed_now.answer"
        )
        assert made.text == "42"
        assert (await kernel.execute("!python -c 'import sys; print(sys.prefix)'")).text == str(workspace / ".venv")


@ours
@pytest.mark.slow
async def test_an_environment_in_the_users_home_can_be_the_kernels_and_nothing_else_of_home_is_there(
    opened: OpenKernel,
) -> None:
    home = Path.home()
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_text("a key")
    python = make_environment(home / ".virtualenvs" / "work")
    async with opened(python=python) as kernel:
        assert (await kernel.execute("import sys; sys.prefix")).text == repr(str(python.parents[1]))
        listing = await kernel.execute(f"import os; os.listdir({str(home)!r}), os.path.exists({str(home / '.ssh')!r})")
        assert listing.text == "(['.virtualenvs'], False)"
        written = await kernel.execute("open(os.path.join(sys.prefix, 'new'), 'w')")
        assert written.error_name == "OSError"


@ours
@pytest.mark.slow
async def test_a_version_managers_interpreter_works_by_itself_by_its_shim_and_below_an_environment(
    opened: OpenKernel, workspace: Path
) -> None:
    root = Path.home() / ".pyenv"
    python = make_prefix(root / "versions" / "3.x")
    for chosen in (python, make_shim(root, python), make_environment(workspace / ".venv", python)):
        async with opened(python=chosen) as kernel:
            found = await kernel.execute(
                f"import os, sys\nsys.base_prefix == {str(python.parents[1])!r}, os.listdir({str(root)!r})"
            )
            assert found.text == "(True, ['versions'])", chosen


@ours
@pytest.mark.slow
async def test_a_prefix_as_conda_makes_it_works(opened: OpenKernel) -> None:
    """No pyvenv.cfg; `bin/python` is a link; libraries and data lie in the prefix itself."""
    prefix = Path.home() / "miniconda3" / "envs" / "science"
    python = make_prefix(prefix)
    (prefix / "share").mkdir()
    (prefix / "share" / "data").write_text("of a package")
    (Path.home() / "miniconda3" / "envs" / "other").mkdir()
    assert not list(prefix.rglob("pyvenv.cfg"))
    async with opened(python=python) as kernel:
        assert (await kernel.execute("import sys; sys.prefix")).text == repr(str(prefix))
        assert (await kernel.execute("open(sys.prefix + '/share/data').read()")).text == "'of a package'"
        assert (await kernel.execute("!which python")).text == str(python)
        assert (await kernel.execute("import os; os.listdir(sys.prefix + '/..')")).text == "['science']"


def test_an_interpreter_behind_a_script_is_the_interpreter_itself(tmp_path: Path) -> None:
    shim = make_shim(tmp_path, Path(sys.executable))
    assert inspect_interpreter(shim).executable == Path(sys.executable)
