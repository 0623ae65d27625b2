"""Which files a conversation read and changed, told from its tool calls and cells.

Paths only: no URLs, line ranges stripped. A best effort over text: a path that a program computes is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from selfcompact.codec import Json
from selfcompact.messages import AssistantMessage, Message

READ_TOOLS = frozenset({"read", "read_file", "readfile", "view", "view_file", "cat", "open_file"})
EDIT_TOOLS = frozenset({"edit", "edit_file", "multiedit", "str_replace", "str_replace_editor", "apply_patch", "patch"})
WRITE_TOOLS = frozenset({"write", "write_file", "writefile", "create_file", "notebookedit"})
CELL_TOOLS = frozenset({"ipython", "python", "execute_code", "run_code", "notebook"})
SHELL_TOOLS = frozenset({"bash", "shell", "sh", "exec", "exec_command", "run_command", "terminal"})

_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "notebook_path", "target_file")


@dataclass(frozen=True)
class FileOps:
    """Paths by what was done to them, each in the order it was first seen."""

    read: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    @property
    def modified_files(self) -> tuple[str, ...]:
        """Everything that was edited or written, sorted."""
        return tuple(sorted({*self.edited, *self.written}))

    @property
    def read_files(self) -> tuple[str, ...]:
        """What was read and not modified, sorted."""
        return tuple(sorted(set(self.read) - set(self.modified_files)))

    def with_earlier(self, details: Mapping[str, Json] | None) -> FileOps:
        """These and those of an earlier compaction entry's `details`."""
        earlier = details or {}
        return FileOps(
            read=_unique((*_paths_in(earlier.get("readFiles")), *self.read)),
            edited=_unique((*_paths_in(earlier.get("modifiedFiles")), *self.edited)),
            written=self.written,
        )


def files_of(messages: Iterable[Message]) -> FileOps:
    """The files that the tool calls of these messages name."""
    found: dict[str, dict[str, None]] = {"read": {}, "edited": {}, "written": {}}
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                for kind, path in _of_call(call.name.lower(), call.arguments):
                    cleaned = clean_path(path)
                    if cleaned:
                        found[kind][cleaned] = None
    return FileOps(read=tuple(found["read"]), edited=tuple(found["edited"]), written=tuple(found["written"]))


def clean_path(path: str) -> str:
    """A path without its line range; empty when it is not a path."""
    path = path.strip().strip("\"'`")
    path = re.sub(r"(?::\d+(?:[-:,]\d*)*|#L\d+(?:-L?\d+)?)$", "", path)
    if not path or "\n" in path or len(path) > 1_024 or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", path):
        return ""
    return path


def _of_call(name: str, arguments: Mapping[str, Json]) -> Iterable[tuple[str, str]]:
    for kind, names in (("read", READ_TOOLS), ("edited", EDIT_TOOLS), ("written", WRITE_TOOLS)):
        if name in names:
            path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), None)
            if path is not None:
                yield kind, path
            elif kind == "edited":
                yield from _of_patch(str(arguments.get("patch") or arguments.get("input") or ""))
            return
    if name in CELL_TOOLS:
        code = next((v for k in ("code", "input", "source") if isinstance(v := arguments.get(k), str)), "")
        yield from _of_cell(code)
    # Shell tools are left to the session family's own programs: they do not list what a command line touches.


def _of_patch(patch: str) -> Iterable[tuple[str, str]]:
    for match in re.finditer(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ (?:b/)?)(.+)$", patch, re.MULTILINE):
        if match[1].strip() != "/dev/null":
            yield "edited", match[1]


_STRING = r"[rRbBuU]{0,2}(?P<q>['\"])(?P<path>[^'\"\n]+)(?P=q)"
_OPEN = re.compile(r"\bopen\(\s*" + _STRING + r"\s*(?:,\s*(?:mode\s*=\s*)?['\"](?P<mode>[rwaxbt+]+)['\"])?")
_PATHLIB = re.compile(
    r"\bPath\(\s*" + _STRING + r"\s*\)\s*\.\s*(?P<what>read_text|read_bytes|write_text|write_bytes|open|touch|unlink)"
)
_READERS = re.compile(r"\b(?:read_csv|read_json|read_parquet|read_excel|read_table|loadtxt|np\.load)\(\s*" + _STRING)
_WRITERS = re.compile(r"\.(?:to_csv|to_json|to_parquet|to_excel|savefig|savetxt)\(\s*" + _STRING)
_WRITEFILE = re.compile(r"^%%(?:writefile|file)\s+(?:-a\s+)?(?P<path>\S+)", re.MULTILINE)
_SHELL_LINE = re.compile(r"^[ \t]*(?:!|%sx\s|%system\s)(?P<line>.+)$", re.MULTILINE)
_SHELL_CELL = re.compile(r"^%%(?:bash|sh|script\s+\S+)[^\n]*\n(?P<body>.*)", re.DOTALL)
_SUBPROCESS = re.compile(r"\b(?:run|check_output|check_call|call|Popen|system|popen)\(\s*" + _STRING)


def _of_cell(code: str) -> Iterable[tuple[str, str]]:
    for match in _WRITEFILE.finditer(code):
        yield "written", match["path"]
    for match in _OPEN.finditer(code):
        mode = match["mode"] or "r"
        kind = "edited" if "+" in mode or "a" in mode else "written" if set(mode) & {"w", "x"} else "read"
        yield kind, match["path"]
    for match in _PATHLIB.finditer(code):
        if match["what"] == "open":
            continue
        yield "read" if match["what"].startswith("read") else "written", match["path"]
    for match in _READERS.finditer(code):
        yield "read", match["path"]
    for match in _WRITERS.finditer(code):
        yield "written", match["path"]
    for match in _SHELL_LINE.finditer(code):
        yield from _of_shell(match["line"])
    for match in _SHELL_CELL.finditer(code):
        for line in match["body"].splitlines():
            yield from _of_shell(line)
    for match in _SUBPROCESS.finditer(code):
        yield from _of_shell(match["path"])
    if re.search(r"\bgit\s+apply\b|\bpatch\s+-", code):
        yield from _of_patch(code)


_REDIRECT = re.compile(r"(?<![0-9&>])(>>?)\s*([^\s;&|<>()]+)")
_READ_COMMANDS = frozenset({"cat", "head", "tail", "less", "more", "nl", "wc", "sort", "md5sum", "sha256sum"})


def _of_shell(line: str) -> Iterable[tuple[str, str]]:
    for match in _REDIRECT.finditer(line):
        if not match[2].startswith("/dev/"):
            yield "edited" if match[1] == ">>" else "written", match[2]
    for command in re.split(r"&&|\|\||[;|]", _REDIRECT.sub(" ", line)):
        words = [word.strip("'\"") for word in re.findall(r"'[^']*'|\"[^\"]*\"|\S+", command)]
        if not words:
            continue
        named = [word for word in words[1:] if not word.startswith("-")]
        if words[0] in _READ_COMMANDS:
            yield from (("read", word) for word in named if re.search(r"[./]", word))
        elif words[0] == "sed":
            in_place = any(re.match(r"-[nErz]*i|--in-place", word) for word in words[1:])
            yield from (("edited" if in_place else "read", word) for word in named[1:])
        elif words[:2] == ["git", "apply"]:
            yield from (("read", word) for word in named[1:] if not word.startswith("<"))
        elif words[0] == "touch":
            yield from (("written", word) for word in named)
        elif words[0] in ("cp", "mv") and len(named) == 2:
            yield "read" if words[0] == "cp" else "edited", named[0]
            yield "written", named[1]
        elif words[0] == "tee":
            yield from (("written", word) for word in named)


def _paths_in(value: Json) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
