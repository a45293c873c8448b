"""Storage's door to the file system: `tidemark.files`, by the name that it has here."""

from tidemark.files import REAL_FILES, Buffer, DataFile, Files, OpenFile, Reservation, directories_below

__all__ = ["REAL_FILES", "Buffer", "DataFile", "Files", "OpenFile", "Reservation", "directories_below"]
