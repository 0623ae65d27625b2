"""The floors of the product, lowest first: a package imports only what stands below it. See ARCHITECTURE.md."""

from __future__ import annotations

FLOORS = (
    ("host_bridge.wire",),
    ("host_bridge.kernel", "host_bridge.host"),
    ("compact",),
    ("agent_kernel",),
    ("selfcompact.errors", "selfcompact.codec", "selfcompact.private_files"),
    ("selfcompact.messages", "selfcompact.workspace"),
    ("selfcompact.entries", "selfcompact.events", "selfcompact.skills"),
    ("selfcompact.details",),
    ("selfcompact.text",),
    ("selfcompact.sandbox",),
    ("selfcompact.settings",),
    ("selfcompact.models",),
    ("selfcompact.log",),
    ("selfcompact.kernel",),
    ("selfcompact.compaction.style",),
    ("selfcompact.compaction.planning",),
    ("selfcompact.compaction.offline",),
    ("selfcompact.compaction.summary",),
    ("selfcompact.compaction",),
    ("selfcompact.session",),
    ("selfcompact.reports", "selfcompact.convert"),
    ("selfcompact",),
    ("selfcompact.testing",),
    ("selfcompact.cli",),
    ("selfcompact.__main__",),
)
"""Packages and single modules of one row do not import each other. The longest name that fits is a module's place."""
