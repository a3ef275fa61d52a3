"""`ScanDataset`: a scan as a `pyarrow.dataset.Dataset`, as DuckDB, Polars and DataFusion take one.

Engines call `scanner` or `to_batches` with the columns and the expression that they need, and trust that the expression
is applied. DataFusion asks for fragments, too: they are the parts of `Scan.plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs

from kafkalog.interchange.expression_trees import columns_read
from kafkalog.values.mixed_expressions import typed_expression

if TYPE_CHECKING:
    Columns = Sequence[str] | Mapping[str, pc.Expression] | None
_CHEAPEST: Final = "offset"
_BATCH_SIZE: Final = 2**17
_NO_FILE: Final = "not a file: use the dataset's own methods, such as scanner() and to_table()"


Source: TypeAlias = Any
"""A `Scan`, which imports this module when it makes a dataset."""


class ScanScanner:
    """A scan, with the methods of a `pyarrow.dataset.Scanner`.

    Arrow's own would fetch each record batch in another thread: a tenth of the time of a query for few records.
    """

    def __init__(self, scan: Source, batch_size: int) -> None:
        self._scan, self._batch_size = scan, batch_size

    def __repr__(self) -> str:
        return f"ScanScanner({self._scan!r})"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the record batches."""
        return self._scan.schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The same."""
        return self._scan.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches."""
        return _cut(self._scan.to_batches(), self._batch_size)

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the record batches."""
        return pa.RecordBatchReader.from_batches(self._scan.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All records."""
        return pa.Table.from_batches(self._scan.to_batches(), self._scan.schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first records."""
        return self._of_arrow().head(num_rows)

    def count_rows(self) -> int:
        """The number of records."""
        return int(self._scan.narrowed([_CHEAPEST]).count_rows())

    def scan_batches(self) -> Iterator[Any]:
        """Record batches, each with its fragment."""
        return self._of_arrow().scan_batches()  # type: ignore[no-any-return]

    def take(self, indices: Any) -> pa.Table:
        """The records with these numbers; all are read."""
        return self._of_arrow().take(indices)

    def _of_arrow(self) -> pa.dataset.Scanner:
        return pa.dataset.Scanner.from_batches(self.to_reader(), use_threads=False)


def scanner_of(
    scan: Source, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int | None = None
) -> pa.dataset.Scanner | ScanScanner:
    """A scanner of the columns of the records for which a filter is true."""
    plain = _plain(scan, columns, filter)
    return (
        _computed(scan, columns, filter, batch_size) if plain is None else ScanScanner(plain, batch_size or _BATCH_SIZE)
    )


def _computed(
    scan: Source, columns: Columns, filter: pc.Expression | None, batch_size: int | None
) -> pa.dataset.Scanner:
    """A scanner with which Arrow computes what a scan does not. It can be read once."""
    known, filter = scan.schema.names, _expression(filter)
    needed = _needed(columns, known)
    if filter is not None and scan.can_be_narrowed:
        scan, filter = scan.narrowed(None, filter), None
    elif filter is not None:
        read = columns_read(filter)
        needed = known if read is None else {*needed, *read}
        scan = scan.without_ruled_out(filter)
    # a projection may name no column, but an Arrow record batch without columns has no length: the cheapest stands in
    source = scan.narrowed([name for name in known if name in needed] or [_CHEAPEST])
    schema, batches = source.schema, _cut(source.to_batches(), batch_size or _BATCH_SIZE)
    if filter is not None:
        typed = typed_expression(filter, scan.mixed_paths)
        if typed.comparisons:
            filter, schema, batches = typed.expression, typed.schema(schema), map(typed.extended, batches)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    # Arrow chooses and computes columns, and keeps the number of rows where there are none
    return pa.dataset.Scanner.from_batches(
        reader,
        columns=known if columns is None else columns if isinstance(columns, Mapping) else list(columns),
        filter=filter,
        use_threads=filter is not None or isinstance(columns, Mapping),
    )


def table_of(scan: Source, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
    """The columns of the records for which a filter is true, as a table; see `scanner_of`."""
    return scanner_of(scan, columns, filter, **options).to_table()


def batches_of(
    scan: Source, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The columns of the records for which a filter is true, as record batches; see `scanner_of`."""
    return iter(scanner_of(scan, columns, filter, batch_size).to_batches())


def _plain(scan: Source, columns: Columns, filter: pc.Expression | None) -> Source | None:
    """The scan that gives just these columns and records; None if Arrow has to compute something of it."""
    names = scan.schema.names if columns is None else columns
    if isinstance(names, Mapping) or not names or len(set(names)) < len(names) or not scan.can_be_narrowed:
        return None
    _needed(names, scan.schema.names)
    source = scan.narrowed(list(names), _expression(filter))
    # derived columns come by themselves
    return source if source.schema.names == list(names) else None


def _expression(filter: Any) -> pc.Expression | None:
    """A filter as an expression: DataFusion gives a scalar for a condition that is always or never true."""
    return pc.scalar(filter) if isinstance(filter, pa.Scalar) else filter


def _cut(batches: Iterator[pa.RecordBatch], n: int) -> Iterator[pa.RecordBatch]:
    """Record batches of at most `n` rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, n):
            yield batch.slice(start, n)


def _of_rows(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say which rows and how many at a time; the others only speed up the reading of files."""
    return {name: value for name, value in options.items() if name in ("columns", "filter", "batch_size")}


def _needed(columns: Columns, known: Sequence[str]) -> Sequence[str] | set[str]:
    """The columns that a projection reads."""
    if columns is None:
        return known
    if isinstance(columns, Mapping):
        read = [columns_read(expression) for expression in columns.values()]
        needed = set(known) if None in read else {name for names in read for name in names or ()}
    else:
        needed = set(columns)
    for name in sorted(needed):
        if name not in known:
            raise ValueError(f"no column {name!r}; there are {', '.join(known)}")
    return needed


class ScanFragment:
    """A part of a scan, with the methods of a `pyarrow.dataset.Fragment`."""

    def __init__(self, scan: Source) -> None:
        self._scan = scan

    def __repr__(self) -> str:
        return f"ScanFragment({self._scan!r})"

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema of the records."""
        return self._scan.schema

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> pa.dataset.Scanner | ScanScanner:
        """A scanner over the part; options that only speed up the reading of files have no effect."""
        return scanner_of(self._scan, columns, filter, batch_size)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Record batches; see `scanner`."""
        yield from batches_of(self._scan, **_of_rows(options))

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """All records; see `scanner`."""
        return table_of(self._scan, **_of_rows(options))

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first records; see `scanner`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, **options: Any) -> int:
        """The number of records; see `scanner`."""
        return int(self.scanner(**{**options, "columns": []}).count_rows())


class ScanDataset(pa.dataset.FileSystemDataset):  # type: ignore[misc]
    """A scan, with the methods of a `pyarrow.dataset.Dataset`.

    `to_batches`, `to_table`, `head`, `count_rows`, `filter` and `get_fragments` are those of a Dataset. There is no
    `take`, since rows have no numbers, and no join or sort: an engine or a table does that.

    Arrow's compiled code bypasses these methods. For it the object is a dataset of one file that does not exist, so
    that it reports an error instead of using memory that is not there.
    """

    def __init__(self, scan: Source) -> None:
        form, files = pa.dataset.IpcFileFormat(), pa.fs.LocalFileSystem()
        super().__init__([form.make_fragment(_NO_FILE, files)], scan.schema, form, files)
        self._scan = scan

    def __reduce__(self) -> Any:
        return ScanDataset, (self._scan,)

    def __repr__(self) -> str:
        return f"ScanDataset({self._scan!r})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the columns, and the conditions at each level. Nothing is read."""
        return str(self._scan._repr_html_(repr(self)))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches()).__arrow_c_stream__(requested_schema)

    @property
    def files(self) -> list[str]:
        """None: a log is not a list of files of one format."""
        return []

    @property
    def format(self) -> NoReturn:
        """Raise: a writer of datasets needs an explicit format."""
        raise AttributeError("a log has no file format to write: pass one, such as format='parquet'")

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> pa.dataset.Scanner | ScanScanner:
        """A `pyarrow.dataset.Scanner`, or what has its methods. It may be read once only.

        `columns` may be empty; those that are not needed are not decoded. `batch_size` is the maximum number of rows in
        a record batch. `options` that only speed up the reading of files have no effect.
        """
        return scanner_of(self._scan, columns, filter, batch_size)

    def to_batches(
        self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Record batches; see `scanner`."""
        yield from batches_of(self._scan, columns, filter, **_of_rows(options))

    def to_table(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """All records; see `scanner`."""
        return table_of(self._scan, columns, filter, **_of_rows(options))

    def head(self, num_rows: int, *arguments: Any, **options: Any) -> pa.Table:
        """The first records; see `scanner`."""
        return self.scanner(*arguments, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """The number of records for which the filter is true."""
        if filter is None or self._scan.can_be_narrowed:
            return int(self._scan.narrowed([_CHEAPEST], _expression(filter)).count_rows())
        return int(self.scanner([], filter).count_rows())

    def filter(self, expression: pc.Expression) -> ScanDataset:
        """The dataset of the records for which an expression is true."""
        return ScanDataset(self._scan.narrowed(None, expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ScanFragment]:
        """The parts of the dataset, of `Scan.plan`, each with the records for which the filter is true.

        There is always one: DataFusion refuses to sort or join a dataset of none.
        """
        scan = self._scan
        parts: Sequence[Source] = []
        if scan.can_be_narrowed:
            scan = scan.narrowed(None, _expression(filter))
            parts = scan.plan()
        for part in parts or [scan]:
            yield ScanFragment(part)

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise: see the class."""
        raise NotImplementedError("a dataset of a log does not support this operation: use an engine, or to_table()")

    take = join = join_asof = sort_by = replace_schema = _get_fragments = _refuse
