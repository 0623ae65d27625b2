"""Sessions in the forms of others. Each exporter says what its form cannot hold."""

from selfcompact.exporters.forms import FORMS, Export, export_session

__all__ = ["FORMS", "Export", "export_session"]
