"""A connection that compiles a statement once and then gives it to the driver itself.

SQLAlchemy takes several times as long to prepare one of our small statements as the database does to execute it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine import IteratorResult
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import SelectBase

Parameters = Mapping[str, Any]
Conversion = Callable[[Any], Any]

MAX_LIST = 8  # values of an IN: each length is prepared on its own
MAX_PREPARED = 64  # forms of one statement


class PreparedConnection(sa.Connection):
    """Executes the SQL that SQLAlchemy would, with the same results and errors. Fetches all rows at once."""

    def execute(self, statement: Any, parameters: Any = None, *, execution_options: Any = None) -> Any:
        """Executes a statement as prepared; by SQLAlchemy the first time, with options, or if somebody listens."""
        if isinstance(parameters, list) and len(parameters) == 1:
            parameters = parameters[0]
        options = execution_options or self.get_execution_options()  # such as another schema
        watched = self.dispatch.before_cursor_execute or self.dispatch.after_cursor_execute
        prepared = None if options or watched else _find_prepared(self.dialect, statement, parameters)
        if prepared is None:
            return super().execute(statement, parameters, execution_options=execution_options)
        cursor = self.connection.cursor()
        driver = self.dialect.loaded_dbapi
        try:
            return prepared.execute(self.dialect, cursor, parameters)
        except driver.Error as error:
            is_lost = self.dialect.is_disconnect(error, self.connection.dbapi_connection, cursor)
            if is_lost:
                self.invalidate(error)
            raise DBAPIError.instance(
                prepared.sql, parameters, error, driver.Error, connection_invalidated=is_lost, dialect=self.dialect
            ) from error
        finally:
            cursor.close()


class _Result(IteratorResult[Any]):
    """The rows of a statement, and how many it has changed."""

    def __init__(self, columns: SimpleResultMetaData, rows: Sequence[Any], rowcount: int) -> None:
        super().__init__(columns, iter(rows))
        self.rowcount = rowcount


class _Value(NamedTuple):
    """Where the driver's parameter comes from: a parameter, an item of one that is a list, or a constant."""

    name: str
    source: str | None
    item: int | None
    constant: Any
    convert: Conversion | None

    def find_in(self, parameters: Parameters) -> Any:
        value = self.constant if self.source is None else parameters[self.source]
        if self.item is not None:
            value = value[self.item]
        return self.convert(value) if self.convert else value


class _PreparedStatement:
    """A compiled statement, and how its values are converted for the driver and back."""

    def __init__(self, statement: Any, compiled: SQLCompiler, sample: Parameters) -> None:
        state = compiled.construct_expanded_state(sample)
        items = {
            name: (base, number)
            for base, names in state.parameter_expansion.items()
            for number, name in enumerate(names)
        }
        self.sql = state.statement
        self._is_positional = compiled.positional
        self._values = []
        for name in state.positiontup if state.positiontup is not None else state.parameters:
            base, item = items.get(name, (name, None))
            bind = compiled.binds[base]
            source = next((key for key in (bind.key, base) if key in sample), None)
            convert = bind.type.dialect_impl(compiled.dialect).bind_processor(compiled.dialect)
            self._values.append(_Value(name, source, None if source is None else item, state.parameters[name], convert))
        self._types = [column.type for column in statement.exported_columns]
        self._columns = SimpleResultMetaData([])
        self._conversions: list[tuple[int, Conversion]] | None = None  # not known before the first execution

    def execute(self, dialect: sa.Dialect, cursor: Any, parameters: Any) -> _Result:
        if isinstance(parameters, list):
            cursor.executemany(self.sql, [self._values_for_driver(some) for some in parameters])
        else:
            cursor.execute(self.sql, self._values_for_driver(parameters or {}))
        rows = self._fetch_rows(dialect, cursor) if self._types else ()
        return _Result(self._columns, rows, cursor.rowcount)

    def _values_for_driver(self, parameters: Parameters) -> Any:
        if self._is_positional:
            return [value.find_in(parameters) for value in self._values]
        return {value.name: value.find_in(parameters) for value in self._values}

    def _fetch_rows(self, dialect: sa.Dialect, cursor: Any) -> list[Any]:
        if self._conversions is None:
            self._columns = SimpleResultMetaData([name for name, *_ in cursor.description])
            found = [
                (number, type_.dialect_impl(dialect).result_processor(dialect, described[1]))
                for number, (type_, described) in enumerate(zip(self._types, cursor.description, strict=True))
            ]
            self._conversions = [(number, convert) for number, convert in found if convert]
        rows = cursor.fetchall()
        return [self._convert_row(self._conversions, row) for row in rows] if self._conversions else rows

    @staticmethod
    def _convert_row(conversions: list[tuple[int, Conversion]], row: Sequence[Any]) -> tuple[Any, ...]:
        values = [*row]
        for number, convert in conversions:
            values[number] = convert(values[number])
        return tuple(values)


class _Statement:
    """A statement's prepared forms: one for each database, set of parameters, and length of the lists among them."""

    def __init__(self) -> None:
        self._lists: list[str] | None = None
        self._prepared: dict[Any, _PreparedStatement | None] = {}

    def find_prepared(self, dialect: sa.Dialect, statement: Any, parameters: Any) -> _PreparedStatement | None:
        if self._lists is None:
            binds = (each for each in visitors.iterate(statement) if isinstance(each, sa.BindParameter))
            self._lists = [bind.key for bind in binds if bind.expanding]
        many = isinstance(parameters, list)
        sample = parameters[0] if many else parameters or {}
        lists = [sample[name] for name in self._lists if name in sample]
        if any(not isinstance(some, list | tuple) or len(some) > MAX_LIST for some in lists):
            return None
        lengths = map(len, lists)
        key = (dialect.name, many, *sample, *lengths)
        try:
            return self._prepared[key]
        except KeyError:
            if len(self._prepared) >= MAX_PREPARED:
                return None
            made = self._prepared[key] = _prepare(dialect, statement, sample, many)
            return made


_STATEMENTS: WeakKeyDictionary[Any, _Statement] = WeakKeyDictionary()


def _find_prepared(dialect: sa.Dialect, statement: Any, parameters: Any) -> _PreparedStatement | None:
    """Returns None for a statement that is executed for the first time: it may have been built for this one time."""
    if not isinstance(statement, SelectBase | UpdateBase) or not isinstance(parameters, dict | list | None):
        return None
    if parameters == []:
        return None
    known = _STATEMENTS.get(statement)
    if known is None:
        _STATEMENTS[statement] = _Statement()
        return None
    return known.find_prepared(dialect, statement, parameters)


def _prepare(dialect: sa.Dialect, statement: Any, sample: Parameters, many: bool) -> _PreparedStatement | None:
    """Returns None for what only SQLAlchemy can do: defaults computed in Python, rows returned by many inserts."""
    returns = bool(len(statement.exported_columns))
    if statement.get_execution_options() or (many and returns):
        return None
    compiled = statement.compile(
        dialect=dialect, column_keys=[*sample], for_executemany=many or (statement.is_insert and not returns)
    )
    needs_more = (
        compiled.insert_prefetch,
        compiled.update_prefetch,
        compiled.literal_execute_params,
        compiled.escaped_bind_names,
        [bind for bind in compiled.binds.values() if bind.required and bind.key not in sample],
    )
    return None if any(needs_more) else _PreparedStatement(statement, compiled, sample)
