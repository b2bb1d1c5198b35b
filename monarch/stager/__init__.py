"""The service that carries out Placements by bounded Transfers, demand first."""

from monarch.stager.adoption import Adoption, ExtentDigests, describe, match
from monarch.stager.background import FillSettings
from monarch.stager.exchange import Sharing
from monarch.stager.flight import Engine, Receiver
from monarch.stager.sources import Opening, PeerEvents, Sources
from monarch.stager.stager import Stager
from monarch.stager.table import FileTable

__all__ = [
    "Adoption",
    "Engine",
    "ExtentDigests",
    "FileTable",
    "FillSettings",
    "Opening",
    "PeerEvents",
    "Receiver",
    "Sharing",
    "Sources",
    "Stager",
    "describe",
    "match",
]
