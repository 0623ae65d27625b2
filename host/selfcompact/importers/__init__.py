"""Conversations of others, as session files of ours."""

from selfcompact.importers.openai_chat import Imported, import_openai_chat

__all__ = ["Imported", "import_openai_chat"]
