"""The demo's agent: a script that audits the Python standard library of the machine it runs on.

Every cell is real work on real files. The script looks at what the kernel answered where an agent would: how full
the context is decides whether it asks for a compaction or reads on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfcompact.messages import Message, text_of
from selfcompact.models.scripted import ScriptedModel, Step, StepSource, cell, say

WINDOW = 32_000
"""Tokens. Small on purpose: the audit's output does not fit into it."""

TASK = """\
Audit the Python standard library of this machine. Parse every module, find the public functions without docstrings, \
the longest functions and the import cycles, and write your findings into `stdlib-audit.md` in the workspace. \
Leave out the test packages, and change nothing but that report."""

INSTRUCTIONS = "keep `longest_functions` and the report path `stdlib-audit.md`"

COMPACT_ABOVE_PERCENT = 60.0
"""When the demo's agent asks for a compaction; real ones decide for themselves."""

FIND = """\
import ast, os, sys, sysconfig
from collections import Counter, defaultdict
from pathlib import Path

STDLIB = Path(sysconfig.get_path("stdlib"))
SKIP = {"site-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3", "ensurepip", "config"}
modules = {}
for path in sorted(STDLIB.rglob("*.py")):
    parts = path.relative_to(STDLIB).with_suffix("").parts
    if not SKIP.intersection(parts):
        modules[".".join(parts).removesuffix(".__init__")] = path
report = Path("stdlib-audit.md")
audit_id, kernel_pid = id(modules), os.getpid()
print(f"Python {sys.version.split()[0]}: {len(modules)} modules under {STDLIB.name}")
packages = Counter(name.split(".")[0] for name in modules)
for name, count in packages.most_common(90):
    print(f"{name:<20} {count:>4} modules")
"""

PARSE = """\
trees, sources, failed = {}, {}, []
for name, path in modules.items():
    try:
        sources[name] = path.read_text(encoding="utf-8")
        trees[name] = ast.parse(sources[name])
    except (SyntaxError, UnicodeDecodeError) as error:
        failed.append((name, str(error)))
lines = {name: source.count("\\n") for name, source in sources.items()}
print(f"parsed {len(trees)} modules, {sum(lines.values()):,} lines; {len(failed)} could not be parsed")
for name, error in failed:
    print("  failed:", name, error)
print("largest modules:")
for name, count in sorted(lines.items(), key=lambda item: -item[1])[:120]:
    print(f"  {name:<36} {count:>6,} lines")
"""

FUNCTIONS = '''\
def functions(tree):
    """Every function of a module with its qualified name."""
    stack = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield prefix + child.name, child
                stack.append((child, f"{prefix}{child.name}."))
            elif isinstance(child, ast.ClassDef):
                stack.append((child, f"{prefix}{child.name}."))
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                stack.append((child, prefix))

found = {name: list(functions(tree)) for name, tree in trees.items()}
public = {name: [(f, n) for f, n in all_ if not any(p.startswith("_") for p in f.split("."))]
          for name, all_ in found.items() if not name.split(".")[-1].startswith("_")}
undocumented = {name: [f for f, n in some if ast.get_docstring(n) is None] for name, some in public.items()}
total = sum(map(len, public.values()))
missing = sum(map(len, undocumented.values()))
share = f"{missing:,} ({missing / total:.0%})"
print(f"{sum(map(len, found.values())):,} functions, {total:,} of them public; {share} without docstring")
for name, names in sorted(undocumented.items(), key=lambda item: -len(item[1]))[:150]:
    print(f"  {name:<32} {len(names):>4} of {len(public[name]):>4}   {', '.join(names[:7])}")
'''

LONGEST = """\
longest_functions = sorted(
    ((node.end_lineno - node.lineno + 1, name, qualified, node.lineno)
     for name, some in found.items() for qualified, node in some),
    reverse=True)[:50]
print("lines  function")
for length, name, qualified, line in longest_functions:
    print(f"{length:>5}  {name}:{line} {qualified}")
"""

IMPORTS = """\
imports = defaultdict(set)
for name, tree in trees.items():
    package = name if modules[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in tree.body:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - (node.level - 1)] if node.level else []
            stem = ".".join([*base, node.module] if node.module else base)
            targets = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
        else:
            continue
        imports[name].update(target for target in targets if target in modules and target != name)
print(f"{sum(map(len, imports.values())):,} imports between modules at the top level")
imported_by = Counter(target for targets in imports.values() for target in targets)
for name, count in imported_by.most_common(110):
    print(f"  {name:<28} imported by {count:>3}   imports {', '.join(sorted(imports[name])[:8])}")
"""

CYCLES = '''\
def strongly_connected(graph):
    """Tarjan's components, without recursion."""
    index, low, on_stack, stack, out = {}, {}, set(), [], []
    for root in list(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index); stack.append(root); on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index); stack.append(target); on_stack.add(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        component.append(stack.pop()); on_stack.discard(component[-1])
                        if component[-1] == node:
                            break
                    if len(component) > 1:
                        out.append(sorted(component))
    return sorted(out, key=len, reverse=True)

cycles = strongly_connected(dict(imports))
print(f"{len(cycles)} import cycles")
for number, component in enumerate(cycles, 1):
    print(f"  {number}. {len(component)} modules: {', '.join(component)}")
'''

STATUS = "await compact.status()"

READ = """\
length, name, qualified, line = longest_functions[{index}]
print(f"{{name}}:{{line}} {{qualified}}, {{length}} lines")
print("\\n".join(sources[name].splitlines()[line - 1 : line - 1 + {limit}]))
"""

RUN = f'await compact.run("{INSTRUCTIONS}")'

BRANCHES = '''\
def branches(node):
    """How many ways lead through a function: decisions plus one."""
    kinds = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.BoolOp, ast.IfExp, ast.comprehension, ast.match_case)
    return 1 + sum(isinstance(child, kinds) for child in ast.walk(node))

nodes = {(name, qualified): node for name, some in found.items() for qualified, node in some}
complexity = [(branches(nodes[name, qualified]), length, name, qualified)
              for length, name, qualified, line in longest_functions]
for count, length, name, qualified in sorted(complexity, reverse=True)[:25]:
    print(f"{count:>4} branches in {length:>4} lines   {name} {qualified}")
'''

WRITE = """\
top = sorted(undocumented.items(), key=lambda item: -len(item[1]))[:20]
text = [f"# Audit of the standard library of Python {sys.version.split()[0]}", "",
        f"{len(trees)} modules, {sum(lines.values()):,} lines, {sum(map(len, found.values())):,} functions.", "",
        "## Public functions without docstring", "",
        f"{missing:,} of {total:,} ({missing / total:.0%}). Most of them in:", "",
        *(f"- `{name}`: {len(names)} of {len(public[name])}" for name, names in top), "",
        "## Longest functions", "", "| lines | branches | function |", "| ---: | ---: | --- |",
        *(f"| {length} | {count} | `{name}.{qualified}` |" for count, length, name, qualified in
          sorted(complexity, key=lambda row: -row[1])), "",
        "## Import cycles", "", *(f"- {', '.join(f'`{m}`' for m in component)}" for component in cycles), ""]
report.write_text("\\n".join(text), encoding="utf-8")
print(f"wrote {report} ({report.stat().st_size:,} bytes)")
"""

CHECK = """\
assert report.read_text(encoding="utf-8").count("\\n| ") == len(longest_functions) + 2
assert id(modules) == audit_id and os.getpid() == kernel_pid
print(f"same kernel process (pid {os.getpid()}), same object (id {id(modules):#x}), {len(modules)} modules, "
      f"{len(longest_functions)} longest functions: all as before the compaction")
print("\\n".join(report.read_text(encoding="utf-8").splitlines()[:12]))
"""


def demo_model() -> ScriptedModel:
    """The scripted agent of the demo; it is summarised offline."""
    steps: list[StepSource] = [
        cell(FIND, say="I will collect the modules first."),
        cell(PARSE, say="Now parse all of them; the trees stay in `trees`."),
        cell(FUNCTIONS, say="Which public functions have no docstring?"),
        cell(LONGEST, say="The longest functions, kept in `longest_functions`."),
        cell(IMPORTS, say="The import graph between modules."),
        cell(CYCLES, say="And the cycles in it."),
        cell(READ.format(index=0, limit=300), say="Let me read the longest function before I judge it."),
        cell(READ.format(index=1, limit=300), say="And the second longest."),
        cell(READ.format(index=2, limit=300), say="The third is of another kind."),
        cell(STATUS, say="That was a lot of text. How full is my context?"),
        _compact_or_read_on,
        cell(
            READ.format(index=4, limit=300), say="Going on: `longest_functions` is still there. One from further down."
        ),
        cell(READ.format(index=5, limit=300), say="And one more, to compare."),
        cell(READ.format(index=6, limit=300), say="The last one I read whole."),
        cell(BRANCHES, say="Length alone says little: I measure how branched they are."),
        cell(WRITE, say="Everything is there; write the report."),
        cell(CHECK, say="Check the report, and that nothing was lost on the way."),
        cell(STATUS, say="How full is my context now?"),
        say(
            "The audit is done. `stdlib-audit.md` in the workspace lists the public functions without docstring, "
            "the 50 longest functions with their number of branches, and the import cycles. I compacted my context "
            "on the way; every variable lived on."
        ),
    ]
    return ScriptedModel(steps, context_window=WINDOW)


def _compact_or_read_on(messages: Sequence[Message]) -> Step:
    shown = re.search(r"'percent': ([\d.]+)", text_of(messages[-1]))
    percent = float(shown[1]) if shown else 0.0
    if percent >= COMPACT_ABOVE_PERCENT:
        return cell(RUN, say=f"{percent:.0f} % is enough. I have what I need in variables; the old output can go.")
    return cell(READ.format(index=3, limit=300), say=f"Only {percent:.0f} %: I can read one more.")
