"""A session's figures as one self-contained page: no script, no style sheet and no font from elsewhere."""

from __future__ import annotations

from html import escape

from selfcompact.reports.statistics import SessionFigures

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 300, 70, 30, 20

STYLE = """
:root { color-scheme: light dark; --line: #2f6fde; --mark: #b3408f; --grid: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .75rem .25rem 0;
border-bottom: 1px solid var(--grid); vertical-align: top; } td.n, th.n { text-align: right; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 12px; }
pre { white-space: pre-wrap; border: 1px solid var(--grid); padding: .75rem; border-radius: 6px; }
"""


def page(figures: SessionFigures) -> str:
    """The whole HTML document."""
    title = escape(figures.name or figures.session_id)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width"><title>{title}</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            _table([("what", "value")], _overview(figures)),
            "<h2>Context over turns</h2>",
            chart(figures),
            "<h2>Compactions</h2>",
            _table([("after turn", "why", "before", "after", "saved", "asked to keep")], _compactions(figures)),
            "<h2>Live context by role</h2>",
            _table([("role", "tokens")], [(role, f"{count:,}") for role, count in figures.live_tokens.items()]),
            "<h2>Files</h2>",
            _table([("file", "what")], _files(figures)),
            *(["<h2>Newest summary</h2>", f"<pre>{escape(figures.summary)}</pre>"] if figures.summary else []),
            "</body></html>\n",
        ]
    )


def chart(figures: SessionFigures) -> str:
    """An SVG: tokens of the context at each response, compactions as vertical lines."""
    points = figures.context_tokens
    if not points:
        return "<p>No response reported usage.</p>"
    turns = max(1, points[-1][0])
    most = max(tokens for _, tokens in points)
    step = _step(most)
    top = -(-most // step) * step

    def x(turn: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * turn / turns

    def y(tokens: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * tokens / top

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="context tokens over turns">']
    parts.extend(
        f'<line x1="{LEFT}" y1="{y(tokens):.1f}" x2="{WIDTH - 10}" y2="{y(tokens):.1f}" stroke="var(--grid)"/>'
        f'<text x="{LEFT - 8}" y="{y(tokens) + 4:.1f}" text-anchor="end">{tokens:,}</text>'
        for tokens in range(0, top + 1, step)
    )
    line = " ".join(f"{x(turn):.1f},{y(tokens):.1f}" for turn, tokens in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="var(--line)" stroke-width="2"/>')
    for each in figures.compactions:
        place = f"{x(each.after_turn):.1f}"
        what = f"after turn {each.after_turn}: {each.reason or 'compaction'}, {each.tokens_before:,} tokens before"
        parts.append(
            f'<line x1="{place}" y1="{TOP}" x2="{place}" y2="{HEIGHT - BOTTOM}" stroke="var(--mark)" '
            f'stroke-dasharray="4 3"><title>{escape(what)}</title></line>'
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">turn 1</text>')
    parts.append(f'<text x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">turn {turns}</text></svg>')
    return "".join(parts)


def _step(most: int) -> int:
    """A round distance between grid lines: 1, 2 or 5 times a power of ten, at most six lines."""
    scale = 1
    while True:
        for factor in (1, 2, 5):
            if most <= 6 * scale * factor:
                return scale * factor
        scale *= 10


def _table(head: list[tuple[str, ...]], rows: list[tuple[str, ...]]) -> str:
    heads = "".join(f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in row)}</tr>" for row in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{heads}{body or '<tr><td>(none)</td></tr>'}</table>"


def _overview(figures: SessionFigures) -> list[tuple[str, ...]]:
    return [
        ("file", figures.path),
        ("workspace", figures.workspace),
        ("began", figures.began),
        ("models", ", ".join(figures.models) or "–"),
        ("turns", f"{figures.turns:,}"),
        ("cells", f"{figures.cells:,} ({figures.failed_cells:,} failed)"),
        ("live context", f"{figures.live_messages:,} messages, about {figures.live_total:,} tokens"),
    ]


def _compactions(figures: SessionFigures) -> list[tuple[str, ...]]:
    return [
        (
            f"{each.after_turn}",
            each.reason or "–",
            f"{each.tokens_before:,}",
            f"{each.tokens_after:,}" if each.tokens_after is not None else "–",
            f"{each.saved_percent} %" if each.saved_percent is not None else "–",
            each.instructions or "",
        )
        for each in figures.compactions
    ]


def _files(figures: SessionFigures) -> list[tuple[str, ...]]:
    modified: list[tuple[str, ...]] = [(path, "modified") for path in figures.modified_files]
    return modified + [(path, "read") for path in figures.read_files]
