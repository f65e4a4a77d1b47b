"""Whatever is stored and read, in a file or in a database: each reads their own, for as long as it is kept,
and nothing grows past its bounds."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from toolyard.results.result_store import (
    PrincipalResultStores,
    Retention,
    StoredResult,
    make_handle,
    pack_body,
)
from toolyard.results.sqlite_store import SqliteResultStore
from toolyard.store import Database
from toolyard.store.repositories.results import DatabaseResultStore
from toolyard.types.account import Principal
from toolyard.types.server import Trust

SECONDS, MOST, SHARE = 100.0, 1_600, 1_500
PEOPLE = ("ann", "bob", "Ann")
Key: TypeAlias = tuple[str, str]
"""Who, and a handle."""

bodies = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=()), max_size=40),
    st.binary(max_size=40),
    # What cannot be compressed, up to more than anybody's share.
    st.sampled_from([500, 700, 900, 1_300, 2_500]).map(lambda size: random.Random(size).randbytes(size)),
)
results = st.builds(
    lambda body, trust, server: StoredResult(body, trust, server, "" if isinstance(body, str) else "a/b"),
    bodies,
    st.sampled_from(Trust),
    st.sampled_from(["", "one", "two"]),
)


@dataclass(frozen=True)
class Step:
    """Somebody puts a result in, after some time."""

    who: str
    kept: StoredResult
    after: float


steps = st.lists(
    st.builds(Step, st.sampled_from(PEOPLE), results, st.sampled_from([0.0, 1.0, 40.0])), max_size=8
)
# A story is short as it is: to look for a shorter one would take minutes.
laws = settings(
    max_examples=15,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class ModelledStorage:
    """One storage, emptied for every example, and what should be in it."""

    def __init__(
        self, make: Callable[[Callable[[], float]], PrincipalResultStores], empty: Callable[[], Any]
    ) -> None:
        self.now = 1_000_000.0
        self.store = make(lambda: self.now)
        self._empty = empty

    async def played(self, story: Sequence[Step]) -> dict[Key, tuple[StoredResult, float]]:
        """Play it from the beginning: what everybody put in, and until when it may be read."""
        await self._empty()
        put: dict[Key, tuple[StoredResult, float]] = {}
        for step in story:
            self.now += step.after
            handle = make_handle(step.kept)
            await self.store.for_principal(Principal(step.who)).save(handle, step.kept)
            put[step.who, handle] = (step.kept, self.now + SECONDS)
        return put

    async def readable(self, handles: set[str]) -> dict[Key, StoredResult]:
        results_by_key = {
            (owner, handle): await self.store.for_principal(Principal(owner)).read(handle)
            for owner in PEOPLE
            for handle in handles
        }
        return {key: item for key, item in results_by_key.items() if item is not None}


@pytest.fixture(params=["file", "sqlite", "postgresql"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    bounds = Retention(SECONDS, MOST, SHARE)
    if request.param == "file":
        file = tmp_path / "r.db"

        async def unlink() -> None:
            file.unlink(missing_ok=True)

        yield ModelledStorage(lambda clock: SqliteResultStore(file, bounds, clock), unlink)
        return
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    database = await Database.open(tmp_path, url=url, secret_key="a key for tests, long enough")
    workshop = database.executor

    async def delete() -> None:
        await workshop.write(lambda connection: connection.exec_driver_sql("DELETE FROM results"))

    yield ModelledStorage(lambda clock: DatabaseResultStore(workshop, clock, bounds), delete)
    await database.close()


def size(stored_result: StoredResult) -> int:
    return len(zlib.compress(pack_body(stored_result.body, stored_result.mime), 1))


@laws
@given(story=steps, later=st.sampled_from([1.0, 60.0, 99.0, 100.0, 101.0]))
async def test_each_reads_their_own_for_its_time_and_within_bounds(
    place: ModelledStorage, story: list[Step], later: float
) -> None:
    put = await place.played(story)
    handles = {handle for _, handle in put}
    stored_results = await place.readable(handles)
    _are_their_owners(stored_results, put)
    if story:
        _fit(stored_results, (story[-1].who, make_handle(story[-1].kept)))
    place.now += later
    remaining_results = await place.readable(handles)
    assert remaining_results == {key: item for key, item in stored_results.items() if put[key][1] > place.now}
    for principal_id in PEOPLE:
        assert await place.store.for_principal(Principal(principal_id)).has_any() == any(
            owner == principal_id for owner, _ in remaining_results
        )


def _are_their_owners(
    stored_results: Mapping[Key, StoredResult], put: Mapping[Key, tuple[StoredResult, float]]
) -> None:
    for key, item in stored_results.items():
        assert key in put
        assert put[key][0] == item


def _fit(stored_results: Mapping[Key, StoredResult], newest: Key) -> None:
    sizes = {key: size(item) for key, item in stored_results.items()}
    assert newest in sizes
    assert sum(sizes.values()) <= MOST or set(sizes) == {newest}
    for principal_id in PEOPLE:
        own_sizes = [each for (owner, _), each in sizes.items() if owner == principal_id]
        assert sum(own_sizes) <= SHARE or len(own_sizes) == 1


@given(results, results)
def test_different_results_have_different_handles(one: StoredResult, other: StoredResult) -> None:
    assert (make_handle(one) == make_handle(other)) == (one == other)
