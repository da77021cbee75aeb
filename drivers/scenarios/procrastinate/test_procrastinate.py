"""procrastinate's queue with workers, over its connectors for psycopg 3. Where to connect to is in
libpq's variables."""

import asyncio
import inspect
import itertools
import os

import procrastinate
import psycopg
import pytest
from procrastinate import exceptions, jobs

NUMBERS = itertools.count()


@pytest.fixture
def schema():
    """A schema of its own with procrastinate's tables, found by the search_path of its connections."""
    name = f"procrastinate{os.getpid()}_{next(NUMBERS)}"
    with psycopg.connect(autocommit=True) as owner:
        owner.execute(f"create schema {name}")
        owner.execute(f"set search_path to {name}, public")
        # A percent sign in it stands for itself.
        owner.cursor().execute(procrastinate.schema.SchemaManager.get_schema())
    yield name
    with psycopg.connect(autocommit=True) as owner:
        owner.execute(f"drop schema {name} cascade")


async def configure(connection, schema):
    await connection.set_autocommit(True)
    await connection.execute(f"set search_path to {schema}, public")


def scenario(play):
    """Runs a coroutine with an open app."""
    def test(schema):
        async def whole():
            connector = procrastinate.PsycopgConnector(
                min_size=2, max_size=8, configure=lambda connection: configure(connection, schema))
            app = procrastinate.App(connector=connector)
            async with app.open_async():
                given = {"app": app, "connector": connector}
                await play(*(given[name] for name in inspect.signature(play).parameters))
        asyncio.run(whole())
    test.__name__ = play.__name__
    return test


async def work(app, **more):
    await asyncio.wait_for(app.run_worker_async(wait=False, install_signal_handlers=False, **more), 60)


@scenario
async def test_jobs_are_done_in_order(app):
    done = []

    @app.task(name="note")
    async def note(number):
        done.append(number)

    for number in range(30):
        await note.defer_async(number=number)
    await work(app)
    assert done == list(range(30))


@scenario
async def test_jobs_in_a_batch(app):
    done = []

    @app.task(name="note")
    async def note(number):
        done.append(number)

    await note.batch_defer_async(*({"number": number} for number in range(100)))
    await work(app, concurrency=5)
    assert sorted(done) == list(range(100))


@scenario
async def test_a_worker_is_notified(app):
    done = asyncio.Event()

    @app.task(name="note")
    async def note():
        done.set()

    # It looks for jobs by itself once in an hour only.
    worker = asyncio.create_task(app.run_worker_async(
        fetch_job_polling_interval=3600, install_signal_handlers=False))
    for _ in range(5):
        await asyncio.sleep(0.3)
        await note.defer_async()
        await asyncio.wait_for(done.wait(), 30)
        done.clear()
    worker.cancel()
    await asyncio.wait([worker], timeout=30)


@scenario
async def test_a_job_is_aborted_by_notification(app):
    started = asyncio.Event()

    @app.task(name="long")
    async def long():
        started.set()
        await asyncio.sleep(60)

    number = await long.defer_async()
    worker = asyncio.create_task(app.run_worker_async(
        wait=False, install_signal_handlers=False, abort_job_polling_interval=3600))
    await asyncio.wait_for(started.wait(), 30)
    # The worker listens as soon as it can, and does not wait for that.
    await asyncio.sleep(2)
    assert await app.job_manager.cancel_job_by_id_async(number, abort=True)
    await asyncio.wait_for(worker, 30)
    assert await app.job_manager.get_job_status_async(number) == jobs.Status.ABORTED


@scenario
async def test_a_lock_is_held(app):
    at_once = most = 0

    @app.task(name="locked", lock="one")
    async def locked():
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    for _ in range(10):
        await locked.defer_async()
    await work(app, concurrency=4)
    assert most == 1


@scenario
async def test_a_queueing_lock_refuses(app):
    @app.task(name="only", queueing_lock="only")
    async def only():
        pass

    await only.defer_async()
    with pytest.raises(exceptions.AlreadyEnqueued):
        await only.defer_async()
    await work(app)
    await only.defer_async()


@scenario
async def test_retries_and_failures(app):
    tried = []

    @app.task(name="fails", retry=2)
    async def fails():
        tried.append(1)
        raise ValueError

    number = await fails.defer_async()
    await work(app)
    assert len(tried) == 3
    assert await app.job_manager.get_job_status_async(number) == jobs.Status.FAILED


@scenario
async def test_priorities_and_schedules(app):
    done = []

    @app.task(name="note")
    async def note(number):
        done.append(number)

    for number in (1, 3, 2):
        await note.configure(priority=number).defer_async(number=number)
    await note.configure(schedule_in={"hours": 1}).defer_async(number=4)
    await work(app)
    assert done == [3, 2, 1]


@scenario
async def test_queues(app):
    done = []

    @app.task(name="note")
    async def note(number):
        done.append(number)

    for number in range(6):
        await note.configure(queue=f"queue {number % 2}").defer_async(number=number)
    await work(app, queues=["queue 1"])
    assert done == [1, 3, 5]


@scenario
async def test_workers_share_the_jobs(app):
    done = []

    @app.task(name="note")
    async def note(number):
        done.append(number)
        await asyncio.sleep(0.001)

    await note.batch_defer_async(*({"number": number} for number in range(60)))
    await asyncio.gather(*(work(app, name=f"worker {number}") for number in range(3)))
    assert sorted(done) == list(range(60))


@scenario
async def test_the_connector(connector):
    assert await connector.execute_query_one_async("select %(a)s::int as a", a=1) == {"a": 1}
    rows = await connector.execute_query_all_async("select n from generate_series(1, 3) n")
    assert [row["n"] for row in rows] == [1, 2, 3]
    with pytest.raises(exceptions.ConnectorException):
        await connector.execute_query_async("select nothing")


@scenario
async def test_a_job_is_deferred_in_a_transaction(app):
    done = []

    @app.task(name="note")
    async def note(number):
        done.append(number)

    sync = app.connector
    async with sync.pool.connection() as connection:
        await connection.set_autocommit(False)
        await note.configure(connection=connection).defer_async(number=1)
        await connection.rollback()
        await note.configure(connection=connection).defer_async(number=2)
        await connection.commit()
        await connection.set_autocommit(True)
    await work(app)
    assert done == [2]


def test_the_synchronous_connector(schema):
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(
        configure=lambda connection: connection.execute(f"set search_path to {schema}, public") and connection.commit()))
    with app.open():
        numbers = [app.configure_task("later").defer(number=number) for number in range(10)]
        found = app.job_manager.list_jobs()
        assert [job.id for job in found] == numbers
