"""Storage of the models that admins added, with encrypted keys."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, update

from toolyard.errors import NotFound, Outdated, Taken
from toolyard.store.change_feed.signals import MODELS_CHANNEL, Signals
from toolyard.store.repositories.rows import RecordMapper
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import insert_if_absent
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.tables import models
from toolyard.types.stored_model import StoredModel

__all__ = ["SqlModelStorage", "edit_conflict_error"]

_MODEL_MAPPER = RecordMapper(StoredModel, models)


class SqlModelStorage(Repository):
    """Storage of models, shared by all replicas, which are notified of every change."""

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals) -> None:
        super().__init__(executor)
        self._cipher = cipher
        self._signals = signals

    async def list_models(self) -> Sequence[StoredModel]:
        """Return all models, sorted by name."""
        query = _MODEL_MAPPER.select.order_by(models.c.name)
        return await self._executor.fetch_all(query, lambda row: _MODEL_MAPPER.load(row, self._cipher))

    async def get_model(self, name: str) -> StoredModel:
        """Return a model. Raises NotFound, also for a name that cannot be stored."""
        model = await self._executor.read_or_default(lambda each: self._read_model(each, name), None)
        if model is None:
            raise _not_found_error(name)
        return model

    @transaction
    def add_model(self, connection: Connection, model: StoredModel) -> None:
        """Add a model. Raises Taken if there is one of this name."""
        if not insert_if_absent(connection, models, _MODEL_MAPPER.values(model, self._cipher)):
            cause = f"a model named '{model.name}' already exists"
            raise Taken(cause, field="name", hint="choose another name")
        self._finish_change(connection, model)

    @transaction
    def save_model(self, connection: Connection, model: StoredModel) -> StoredModel:
        """Replace a model if the stored one has its revision, and return it with the next one.

        Raises NotFound, or Outdated if it was changed since it was read.
        """
        saved = replace(model, revision=model.revision + 1)
        values = _MODEL_MAPPER.values(saved, self._cipher)
        del values["name"], values["created_at"]
        is_same = (models.c.name == model.name) & (models.c.revision == model.revision)
        if not connection.execute(update(models).where(is_same).values(values)).rowcount:
            raise edit_conflict_error(self._read_model(connection, model.name))
        self._finish_change(connection, saved)
        return saved

    @transaction
    def delete_model(self, connection: Connection, name: str) -> None:
        """Delete a model. Raises NotFound."""
        if not connection.execute(delete(models).where(models.c.name == name)).rowcount:
            raise _not_found_error(name)
        self._signals.notify(connection, MODELS_CHANNEL, name)

    def listen(self) -> AsyncGenerator[str]:
        """Yield the names of changed models; an empty one if changes may have been missed."""
        return self._signals.listen(MODELS_CHANNEL)

    def _read_model(self, connection: Connection, name: str) -> StoredModel:
        row = connection.execute(_MODEL_MAPPER.select.where(models.c.name == name)).one_or_none()
        if row is None:
            raise _not_found_error(name)
        return _MODEL_MAPPER.load(row, self._cipher)

    def _finish_change(self, connection: Connection, model: StoredModel) -> None:
        """Make a default model the only one, and notify all replicas."""
        if model.is_default:
            others = (models.c.name != model.name) & models.c.is_default
            connection.execute(update(models).where(others).values(is_default=False))
        self._signals.notify(connection, MODELS_CHANNEL, model.name)


def edit_conflict_error(current: StoredModel) -> Outdated:
    """Return the error for an edit of an older version."""
    return Outdated(
        f"the model '{current.name}' was changed by someone else since you loaded it",
        current=current,
        hint="check the newer version, then save again",
    )


def _not_found_error(name: str) -> NotFound:
    return NotFound(f"no model is stored as '{name}'", hint="it may have been deleted")
