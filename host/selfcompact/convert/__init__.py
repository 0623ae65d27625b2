"""Sessions in the forms of others, and conversations of others as session files of ours."""

from collections.abc import Callable, Mapping

from selfcompact.convert.exporting import FORMS, Export, export_session
from selfcompact.convert.openai_chat import Imported, import_openai_chat

IMPORTERS: Mapping[str, Callable[..., Imported]] = {"openai": import_openai_chat}
"""Readers of other programs' conversations, by the name of their form."""

__all__ = ["FORMS", "IMPORTERS", "Export", "Imported", "export_session", "import_openai_chat"]
