"""Operations of admins on the models of the database."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolyard.agents.models.available_models import ListedModel, Models, ModelTestAnswer
from toolyard.config.secret_replacement import find_secret_parameter
from toolyard.config.settings.model_entries import (
    MODEL_KEY_VARIABLE_PREFIX,
    MODEL_NAME_HINT,
    MODEL_PROVIDERS,
    is_model_name,
)
from toolyard.net import AddressGuard
from toolyard.registry.errors import NotFound
from toolyard.registry.field_validation import client_credential_fault
from toolyard.registry.validation import FieldChecker, is_different_origin
from toolyard.store.errors import StoreError
from toolyard.store.repositories.models import SqlModelStorage, edit_conflict_error
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.stored_model import LOCAL_PROVIDER, ModelAudience, ModelDraft, StoredModel

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = ["ModelRegistry"]

_log = logging.getLogger("toolyard.models")

_KEY_VARIABLE_PATTERN = re.compile(MODEL_KEY_VARIABLE_PREFIX + r"[A-Z0-9_]{1,64}")
_INVALID_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PRICE_DOLLARS = 1_000_000.0
_MAX_TEMPERATURE = 10.0
_MIN_CONTEXT_TOKENS, _MAX_CONTEXT_TOKENS = 1_000, 1_000_000_000


class ModelRegistry:
    """Manages the models of the database, and keeps those of this process up to date.

    Does not check permissions: that is up to the interfaces.
    """

    def __init__(
        self,
        storage: SqlModelStorage,
        accounts: SqlAccountStorage,
        models: Models,
        guard: AddressGuard,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.models = models
        self._storage = storage
        self._accounts = accounts
        self._guard = guard
        self._clock = clock
        self._load_lock = asyncio.Lock()

    async def load(self) -> None:
        """Make this process use the stored models. If they cannot be read, the current ones stay in use."""
        try:
            # One after the other: an older read must not replace the result of a newer one.
            async with self._load_lock:
                await self.models.set_stored(await self._storage.list_models())
        except StoreError as error:
            _log.error("the stored models could not be loaded: %s", error.cause)

    async def follow_changes(self) -> None:
        """Load the models again after each change by any process, until the database is closed."""
        async with aclosing(self._storage.listen()) as changes:
            async for _ in changes:
                await self.load()

    async def list_models(self) -> Sequence[ListedModel]:
        """Return all models, those of files and variables included."""
        await self.load()
        return self.models.list_all()

    async def get_model(self, name: str) -> StoredModel:
        """Return a stored model. Raises NotFound."""
        return await self._storage.get_model(name)

    async def add_model(self, draft: ModelDraft) -> StoredModel:
        """Add a model. Raises Invalid or Taken."""
        model = await self.check_model(draft)
        await self._storage.add_model(model)
        await self.load()
        return model

    async def edit_model(self, name: str, draft: ModelDraft, revision: int | None = None) -> StoredModel:
        """Replace a model, except its name.

        Without ``revision``, the current version is replaced. Raises Invalid, NotFound, or Outdated if
        the stored model has another revision.
        """
        old = await self.get_model(name)
        if revision not in (None, old.revision):
            raise edit_conflict_error(old)
        model = await self._storage.save_model(await self.check_model(draft, old))
        await self.load()
        return model

    async def delete_model(self, name: str) -> StoredModel:
        """Delete a model, and return it. Raises NotFound."""
        model = await self.get_model(name)
        await self._storage.delete_model(name)
        await self.load()
        return model

    async def test_model(self, model: StoredModel | str) -> ModelTestAnswer:
        """Send a short request to a model that need not be stored, or to a listed one, by its name.

        Raises NotFound for an unknown name, and ModelError.
        """
        if isinstance(model, str):
            listed = await self.list_models()
            if all(each.record.name != model for each in listed):
                raise NotFound(f"unknown model '{model}'", hint="it may have been deleted")
        return await self.models.test(model)

    async def check_model(self, draft: ModelDraft, old: StoredModel | None = None) -> StoredModel:
        """Return the model that a draft describes, without storing it. Raises Invalid."""
        checker = FieldChecker()
        draft = replace(draft, name=draft.name if old is None else old.name)
        if old is None and not draft.name.strip():
            draft = replace(draft, name=_derive_name(draft))
        values = checker.check_fields(StoredModel, draft, skip=("is_default", "api_key"))
        now = self._clock()
        model = StoredModel(
            **values,
            is_default=old is not None and old.is_default if draft.is_default is None else draft.is_default,
            revision=1 if old is None else old.revision,
            created_at=now if old is None else old.created_at,
            updated_at=now,
        )
        if not is_model_name(model.name):
            checker.add_problem("name", "is not a valid name", MODEL_NAME_HINT)
        _check_numbers(checker, model)
        model = self._check_provider(checker, model, old)
        model = self._check_key(checker, model, draft.api_key, old)
        model = await self._check_people(checker, model)
        checker.raise_problems()
        return model

    def _check_provider(
        self, checker: FieldChecker, model: StoredModel, old: StoredModel | None
    ) -> StoredModel:
        if model.provider == LOCAL_PROVIDER:
            return replace(model, model="", base_url=None, private_addresses=False, key_variable=None)
        if model.provider not in MODEL_PROVIDERS:
            checker.add_problem("provider", f"must be one of {', '.join((*MODEL_PROVIDERS, LOCAL_PROVIDER))}")
        is_new = old is None or old.base_url != model.base_url
        if is_new and (parameter := find_secret_parameter(model.base_url or "")) is not None:
            checker.add_problem(
                "base_url",
                f"must not contain a secret: the URL is not encrypted, and shows the value of {parameter}",
                f"remove {parameter} from the URL, and enter it as the key",
            )
        if not model.model:
            checker.add_problem("model", "is required", "write it as the provider does, such as gpt-5-mini")
        if model.base_url is not None and not model.private_addresses and self._is_private(model.base_url):
            checker.add_problem(
                "base_url",
                "is a private network address",
                "if it is your own server, allow private network addresses",
            )
        return model

    def _is_private(self, url: str) -> bool:
        """Return whether the host is a refused IP address. Names are checked when they are connected to."""
        host = urlsplit(url).hostname or ""
        address = "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else host
        is_literal = ":" in address or re.fullmatch(r"[0-9.]+", address) is not None
        return is_literal and self._guard.find_refusal(address) is not None

    def _check_key(
        self, checker: FieldChecker, model: StoredModel, key: str | None, old: StoredModel | None
    ) -> StoredModel:
        """Return the model with its key: the entered one, or the stored one if the address is the same."""
        variable = model.key_variable
        if variable is not None:
            definition = MODEL_PROVIDERS.get(model.provider)
            own = () if definition is None or model.base_url is not None else definition.key_variables
            if variable not in own and not _KEY_VARIABLE_PATTERN.fullmatch(variable):
                # Otherwise an admin could send any secret of the process to an address of their choice.
                hint = f"at a custom address, its name must begin with {MODEL_KEY_VARIABLE_PREFIX}"
                checker.add_problem(
                    "key_variable", "is not an environment variable that may hold a model key", hint
                )
            if key:
                checker.add_problem("key_variable", "must be empty if a key is entered")
            return replace(model, api_key=None)
        if model.provider == LOCAL_PROVIDER:
            return replace(model, api_key=None)
        if key is None and old is not None and old.api_key is not None:
            if _has_same_address(model, old):
                return replace(model, api_key=old.api_key)
            checker.add_problem(
                "api_key",
                "must be entered again, because the address changed",
                "the stored key is sent only to the address that it was entered for",
            )
            return model
        given = checker.check_text("api_key", key, _find_key_fault) if key else None
        model = replace(model, api_key=given or None)
        if self.models.lacks_key(model):
            checker.add_problem("api_key", "is required for this provider")
        return model

    async def _check_people(self, checker: FieldChecker, model: StoredModel) -> StoredModel:
        if model.audience is not ModelAudience.PEOPLE:
            return replace(model, people=())
        if not model.people:
            checker.add_problem("people", "is required", "name at least one person")
        for index, user_id in enumerate(model.people):
            if user_id != LOCAL_PRINCIPAL.id and await self._accounts.get_user(user_id) is None:
                checker.add_problem(f"people[{index}]", "is not a person with an account")
        return model


def _derive_name(draft: ModelDraft) -> str:
    """Return a name for a new model, from the provider's name of it."""
    text = draft.model.rpartition("/")[2] if draft.model else draft.provider
    return _INVALID_NAME_CHARACTERS.sub("-", text).strip("-._")[:64]


def _has_same_address(model: StoredModel, old: StoredModel) -> bool:
    if model.provider not in MODEL_PROVIDERS or old.provider not in MODEL_PROVIDERS:
        return False
    one, other = (each.base_url or MODEL_PROVIDERS[each.provider].base_url for each in (model, old))
    try:
        return not is_different_origin(one, other)
    except ValueError:
        # The new address is invalid, which is a problem of its own field.
        return True


def _find_key_fault(key: str) -> str | None:
    return client_credential_fault(key) or ("must not contain spaces" if " " in key else None)


def _check_numbers(checker: FieldChecker, model: StoredModel) -> None:
    limits = {
        "input_price": (0.0, _MAX_PRICE_DOLLARS),
        "output_price": (0.0, _MAX_PRICE_DOLLARS),
        "temperature": (0.0, _MAX_TEMPERATURE),
        "context": (_MIN_CONTEXT_TOKENS, _MAX_CONTEXT_TOKENS),
    }
    for name, (least, most) in limits.items():
        value: float | None = getattr(model, name)
        if value is not None and not (isfinite(value) and least <= value <= most):
            checker.add_problem(name, f"must be a number from {least:,.0f} to {most:,.0f}")
    if (model.input_price is None) != (model.output_price is None):
        missing = "input_price" if model.input_price is None else "output_price"
        checker.add_problem(missing, "is required if the other price is set")
