"""Sources of training rows."""

from cavity.data.accept import as_source, is_source
from cavity.data.ahead import ahead
from cavity.data.arrays import ArrayData
from cavity.data.csv import CSV
from cavity.data.in_memory import Arrays
from cavity.data.iterables import Batches
from cavity.data.labels import Encoded
from cavity.data.npy import Npy
from cavity.data.parquet import Parquet
from cavity.data.shuffle import LaneBatch, batches, in_order, steps
from cavity.data.source import Block, Source
from cavity.data.streamed import StreamData
from cavity.data.survey import Sample, Survey, my_lanes, survey
from cavity.data.whole import read_all

__all__ = [
    "CSV",
    "ArrayData",
    "Arrays",
    "Batches",
    "Block",
    "Encoded",
    "LaneBatch",
    "Npy",
    "Parquet",
    "Sample",
    "Source",
    "StreamData",
    "Survey",
    "ahead",
    "as_source",
    "batches",
    "in_order",
    "is_source",
    "my_lanes",
    "read_all",
    "steps",
    "survey",
]
