"""The service that carries out Placements by bounded Transfers, demand first."""

from monarch.stager.adoption import Adoption, ExtentDigests, describe, match
from monarch.stager.stager import Engine, FillSettings, Stager
from monarch.stager.table import FileTable

__all__ = [
    "Adoption",
    "Engine",
    "ExtentDigests",
    "FileTable",
    "FillSettings",
    "Stager",
    "describe",
    "match",
]
