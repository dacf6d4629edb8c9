"""Rows of Parquet files, a part of a row group after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from cavity.data.arrow import Columns, check, choose, field, label_kind, labels, numbers
from cavity.data.files import File, deal, find_files
from cavity.data.row_groups import Facts, Piece, Reader, facts, merged, pieces
from cavity.data.source import Block, arranged, block_rows, checked, spot

LANES, READING_BYTES = (8, 4, 2), 2**25  # the most lanes that hold no more than this while they are read at once


class Parquet:
    """Rows of a Parquet file, or of all `.parquet` files in a folder in the order of their names.

    Only the columns in use are read, some thousand rows at a time: memory does not grow with the files. A row group, or
    an eighth of a large one, is what is shuffled first when training, and its rows then pass through a buffer.

    Args:
        path: the file or the folder.
        target: the column of labels, of any type; None for prediction.
        features: the columns of X, in this order; by default all that hold numbers but the target. Those that are
            passed over are listed in `ignored`.
        lanes: into how many stretches the rows are divided, which is the most processes that can share them. By default
            8; 4 or 2 where reading in 8 places at once would take much memory, as it does of many columns of fractions.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> folder = tempfile.mkdtemp()
    >>> flights = {"distance": [300.0, 1200.0, 640.0], "carrier": ["X", "Y", "X"], "delay": ["none", "short", "none"]}
    >>> pyarrow.parquet.write_table(pyarrow.table(flights), f"{folder}/part-0.parquet")
    >>> source = Parquet(folder, target="delay", lanes=2)
    >>> source.feature_names, source.ignored
    (['distance'], ['carrier'])
    >>> [block.y.tolist() for lane in range(source.lanes) for block in source.blocks(lane)]
    [['none'], ['short', 'none']]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: str | None = None,
        features: Sequence[str] | None = None,
        lanes: int | None = None,
    ) -> None:
        self._files = find_files(path, (".parquet",))
        found = [facts(file) for file in self._files]
        self._columns = choose(found[0].schema, target, features, self._files[0].name)
        _check(self._files, found, self._columns)
        wanted = (
            _affordable(sum(found[0].held.get(name, 0) for name in self._columns.names)) if lanes is None else lanes
        )
        self._pieces = pieces([one.counts for one in found], wanted)
        self._dealt = deal([piece.n_rows for piece in self._pieces], wanted)
        self._file_rows = [sum(one.counts) for one in found]
        self.lanes, self.n_features = len(self._dealt), len(self._columns.features)
        self.feature_names, self.ignored = self._columns.features, self._columns.ignored

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        dealt = [self._pieces[i] for i in self._dealt[lane]]
        mine = merged(dealt) if seed is None else dealt
        firsts = np.cumsum([0, *(piece.n_rows for piece in mine)]).tolist()
        size = block_rows(self.n_features, self.lanes)
        with Reader(self._files, self._columns.names, size) as reader:
            for piece, first in arranged(list(zip(mine, firsts, strict=False)), seed):
                yield from self._of_piece(reader, piece, first)

    def fingerprint(self) -> dict[str, Any]:
        files = [file.facts() | {"rows": n} for file, n in zip(self._files, self._file_rows, strict=True)]
        columns = {"features": self._columns.features, "target": self._columns.target}
        return {"kind": "parquet", **columns, "lanes": self.lanes, "files": files}

    def _of_piece(self, reader: Reader, piece: Piece, first: int) -> Iterator[Block]:
        name, done, target = self._files[piece.file].name, 0, self._columns.target
        for batch in reader.batches(piece):
            rows = np.arange(first + done, first + done + batch.num_rows)
            y = None if target is None else labels(batch.column(target))
            where = partial(spot, name, piece.start + done)
            yield checked(Block(numbers(batch, self._columns.features), y, rows, where), self._columns.features)
            done += batch.num_rows


def _check(files: list[File], found: list[Facts], columns: Columns) -> None:
    """Refuse files that lack a column, or have another type of labels than the first."""
    kinds = list[str]()
    for file, one in zip(files, found, strict=True):
        check(one.schema, columns, file.name)
        if columns.target is not None:
            kinds.append(label_kind(field(one.schema, columns.target, file.name).type))
            if kinds[-1] != kinds[0]:
                raise ValueError(f"{file.name}: the target {columns.target!r} is of type {kinds[-1]}, but {kinds[0]} "
                                 f"in {files[0].name}; one type is needed")  # fmt: skip


def _affordable(held: int) -> int:
    """How many lanes, each of which holds so many bytes while it is read."""
    return next((lanes for lanes in LANES if lanes * held <= READING_BYTES), LANES[-1])
