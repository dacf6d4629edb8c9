"""Sources of rows: arrays, memory maps, Parquet, CSV, batches; and what is known of them after one pass."""

from cavity.data.accept import as_source, is_source
from cavity.data.arrays import ArrayData
from cavity.data.csv import CSV
from cavity.data.in_memory import Arrays
from cavity.data.iterables import Batches
from cavity.data.npy import Npy
from cavity.data.parquet import Parquet
from cavity.data.source import Block, Source
from cavity.data.streamed import StreamData
from cavity.data.survey import Survey, survey
from cavity.data.whole import read_all

__all__ = [
    "CSV",
    "ArrayData",
    "Arrays",
    "Batches",
    "Block",
    "Npy",
    "Parquet",
    "Source",
    "StreamData",
    "Survey",
    "as_source",
    "is_source",
    "read_all",
    "survey",
]
