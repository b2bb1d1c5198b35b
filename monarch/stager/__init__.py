"""The service that carries out Placements by bounded Transfers, demand first."""

from monarch.stager.adoption import Adoption, ExtentDigests, describe, match
from monarch.stager.fill import FillSettings
from monarch.stager.planner import Sharing
from monarch.stager.replicas import Event, FileTable, Replicas, WrittenMarks
from monarch.stager.sources import Opening, PeerEvents, Sources
from monarch.stager.stager import Stager
from monarch.stager.transfer import Engine, Receiver

__all__ = [
    "Adoption",
    "Engine",
    "Event",
    "ExtentDigests",
    "FileTable",
    "FillSettings",
    "Opening",
    "PeerEvents",
    "Receiver",
    "Replicas",
    "Sharing",
    "Sources",
    "Stager",
    "WrittenMarks",
    "describe",
    "match",
]
