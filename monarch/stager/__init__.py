"""The Stager carries out the Policy of its node by bounded Transfers, demand first."""

from monarch.stager.adoption import ExtentDigests, describe, match
from monarch.stager.capacity import CodecInUse, Storage, footprint, footprints
from monarch.stager.concurrency import FillConcurrency
from monarch.stager.eviction import room_left
from monarch.stager.fill import StagerSettings
from monarch.stager.node_share import Share
from monarch.stager.policy import Destination, Policy
from monarch.stager.progress import Progress, ProgressMeter, Rates
from monarch.stager.replicas import Event, FileTable, Replicas, WrittenMarks
from monarch.stager.sources import Opening, PeerEvents, Sources
from monarch.stager.stager import Stager
from monarch.stager.transfer import Engine, Receiver
from monarch.stager.yielding import DemandFirst

__all__ = [
    "CodecInUse",
    "DemandFirst",
    "Destination",
    "Engine",
    "Event",
    "ExtentDigests",
    "FileTable",
    "FillConcurrency",
    "Opening",
    "PeerEvents",
    "Policy",
    "Progress",
    "ProgressMeter",
    "Rates",
    "Receiver",
    "Replicas",
    "Share",
    "Sources",
    "Stager",
    "StagerSettings",
    "Storage",
    "WrittenMarks",
    "describe",
    "footprint",
    "footprints",
    "match",
    "room_left",
]
