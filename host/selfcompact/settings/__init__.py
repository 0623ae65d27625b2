"""What an operator can set: the parts' schemas, and how they are loaded, edited and watched."""

from selfcompact.settings.load import LoadedSettings, load_settings, user_settings_file
from selfcompact.settings.schema import LogSettings, Settings

__all__ = ["LoadedSettings", "LogSettings", "Settings", "load_settings", "user_settings_file"]
