"""Sessions in the forms of others, and conversations of others as session files of ours."""

from selfcompact.convert.exporting import FORMS, Export, export_session
from selfcompact.convert.openai_chat import Imported, import_openai_chat

__all__ = ["FORMS", "Export", "Imported", "export_session", "import_openai_chat"]
