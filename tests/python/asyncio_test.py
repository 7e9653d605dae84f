"""Rounds in coroutines: the event loop goes on, and a round that nobody waits for any more is whole.

Bugs that this would catch: a round stood in the way of every other task, and a cancelled
one left its rows to the next.
"""

import asyncio
import unittest

import numpy as np

import specd
from door_case import URI, V, DoorCase, one_hot
from in_flight_test import BEST, DRAFTS, LARGE, Long


def one_hot_row(size, token, dtype):
    row = np.zeros((1, size), dtype)
    row[0, token] = 50
    return row


class AsyncioTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.engine = specd.Engine(URI, vocab_size=V, max_batch=4, max_sequences=16, max_draft=3)
        self.addCleanup(self.engine.close)

    def open(self, **fields):
        return self.engine.open(specd.SamplingParams(**{"temperature": 0, **fields}))

    async def test_a_round_is_awaited(self):
        sequence = self.open()
        result, = await self.engine.averify(one_hot(1, 2, 3), {sequence: [1, 2]})
        self.assertEqual((result.tokens.tolist(), result.num_accepted), ([1, 2, 3], 2))
        round = self.engine.submit(one_hot(4), {sequence: []})
        result, = await round
        self.assertEqual((result.tokens.tolist(), result.total_kept), ([4], 4))
        self.assertIs((await round)[0], result)

    async def test_many_tasks_share_an_engine(self):
        async def generate(first):
            sequence, tokens = self.open(max_tokens=20), []
            while True:
                wanted = [(first + len(tokens) + i) % V for i in range(3)]
                # Rows of the one dtype and of the other must be bound in turn.
                dtype = np.float32 if first % 2 else np.float16
                result, = await self.engine.averify(one_hot(*wanted, dtype=dtype),
                                                    {sequence: wanted[:2]})
                tokens += result.tokens.tolist()
                if result.finish_reason:
                    return tokens
        texts = await asyncio.gather(*[generate(first) for first in range(10)])
        self.assertEqual(texts, [[(first + i) % V for i in range(20)] for first in range(10)])

    async def test_tasks_whose_rows_must_be_bound_in_turn_have_turns(self):
        # Bug: the task whose rows were bound submitted again before the other one heard of the answer.
        counts, wanted = [0, 0], 50

        async def generate(which, dtype):
            sequence = self.open(max_tokens=None)
            while max(counts) < wanted:
                await self.engine.averify(one_hot(3, dtype=dtype), {sequence: []})
                counts[which] += 1
        await asyncio.gather(generate(0, np.float32), generate(1, np.float16))
        self.assertGreaterEqual(min(counts), wanted - 2)

    async def test_batches_whose_rows_must_be_bound_leave_the_event_loop_free(self):
        # Bug: await engine.submit_batch(...) stopped the event loop while rows had to be bound.
        long = Long(self)
        first = long.engine.submit(None, long.drafts)
        handles = [sequence.handle for sequence in long.sequences[:1]]
        half = one_hot_row(LARGE, BEST, np.float16)
        task = asyncio.create_task(long.engine.averify_batch(half, handles))
        await asyncio.sleep(0)  # the task has begun, and waits for the first round
        self.assertFalse(first.done())
        found = await task
        self.assertTrue(first.done())
        self.assertEqual(found.tokens.tolist(), [[BEST]])

    async def test_batches_and_rounds_have_turns(self):
        handles = [self.open(max_tokens=None).handle for _ in range(6)]

        async def generate(which):
            for i in range(20):
                dtype = np.float32 if which % 2 else np.float16
                rows = one_hot((which + i) % V, dtype=dtype)
                if which % 3:
                    found, = await self.engine.averify(rows, {int(handles[which]): []})
                else:
                    found = await self.engine.averify_batch(rows, handles[which:which + 1])
                self.assertEqual(np.ravel(found.tokens).tolist(), [(which + i) % V])
            return int(np.ravel(found.total_kept)[0])
        self.assertEqual(await asyncio.gather(*[generate(which) for which in range(6)]), [20] * 6)

    async def test_a_task_that_is_cancelled_while_it_has_the_turn_passes_it_on(self):
        long = Long(self)
        first = long.engine.submit(None, long.drafts)
        half = one_hot_row(LARGE, BEST, np.float16)
        tasks = [asyncio.create_task(long.engine.averify(half, {long.sequences[0]: []}))
                 for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        result, = await tasks[2]
        self.assertTrue(first.done())
        self.assertEqual(result.tokens.tolist(), [BEST])
        for task in tasks[:2]:
            self.assertTrue(task.cancelled())

    async def test_adrain_ends_while_other_tasks_submit(self):
        # Bug: it waited for whatever had been submitted last.
        self.engine.rows(1)[:] = one_hot(3)
        sequence, stop = self.open(max_tokens=None), asyncio.Event()

        async def submit_on():
            behind = self.engine.submit(None, {sequence: []})
            while not stop.is_set():
                before, behind = behind, self.engine.submit(None, {sequence: []})
                await before
        task = asyncio.create_task(submit_on())
        await asyncio.sleep(0.01)
        mine = self.engine.submit(None, {sequence: []})
        await asyncio.wait_for(self.engine.adrain(), 10)
        self.assertTrue(mine.done())
        self.assertFalse(task.done())
        stop.set()
        await task
        await self.engine.adrain()
        self.assertEqual(self.engine._in_flight.pending, {})

    async def test_other_tasks_run_and_call_the_engine_meanwhile(self):
        long, opened = Long(self), []

        async def others():
            while True:
                sequence = long.engine.open(specd.SamplingParams())
                opened.append(sequence.seed)
                sequence.close()
                long.engine.stats()
                await asyncio.sleep(0.001)
        task = asyncio.create_task(others())
        long.check(self, await long.engine.averify(None, long.drafts))
        self.assertFalse(task.done())  # no call of its was refused
        task.cancel()
        self.assertGreater(len(opened), 3)

    async def test_a_part_that_was_not_done_is_raised(self):
        nan = np.full((1, V), np.nan, np.float32)
        with self.assertRaisesRegex(specd.RoundError, "target_rows.*NaN"):
            await self.engine.averify(nan, {self.open(): []})
        result, = await self.engine.averify(nan, {self.open(): []}, strict=False)
        self.assertEqual(result.status, "bad_distribution")

    async def test_a_cancelled_round_is_whole_and_its_rows_are_not_written(self):
        long = Long(self)
        kept = long.engine.slot_output("kept_tokens")
        row = long.rows[:1].copy()
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.03):
                await long.engine.averify(row, long.drafts)
        row[0, BEST], row[0, 3] = 0, 100
        other = long.engine.open(specd.SamplingParams(temperature=0))
        result, = await long.engine.averify(row, {other: []})
        self.assertEqual(result.tokens.tolist(), [3])
        for sequence in long.sequences:
            self.assertEqual(kept[sequence.slot].tolist(), [BEST] * (DRAFTS + 1))

    async def test_after_adrain_the_rows_are_the_callers_again(self):
        long = Long(self)
        kept = long.engine.slot_output("kept_tokens")
        task = asyncio.create_task(long.engine.averify(None, long.drafts))
        await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await long.engine.adrain()
        long.rows[0] = 0
        for sequence in long.sequences:
            self.assertEqual(kept[sequence.slot].tolist(), [BEST] * (DRAFTS + 1))

    async def test_a_wait_may_be_cancelled_at_every_moment(self):
        sequence, rounds = self.open(max_tokens=None), 60
        for i in range(rounds):
            task = asyncio.create_task(self.engine.averify(one_hot(i % V), {sequence: []}))
            for _ in range(i % 6):
                await asyncio.sleep(0)
            task.cancel()
            try:
                result, = await task
                self.assertEqual(result.tokens.tolist(), [i % V])
            except asyncio.CancelledError:
                pass
        await self.engine.adrain()
        self.assertEqual(self.engine._in_flight.pending, {})
        result, = await self.engine.averify(one_hot(5), {sequence: []})
        self.assertEqual(result.tokens.tolist(), [5])
        self.assertLessEqual(result.total_kept, rounds + 1)

    async def test_a_task_and_a_thread_that_waits_ask_for_the_same_answers(self):
        rounds = [self.engine.submit(one_hot(i, i), {self.open(): [-1]}) for i in range(4)]
        tasks = [asyncio.create_task(round.aresult()) for round in rounds[::-1]]
        await asyncio.sleep(0)
        self.assertEqual(rounds[2].result()[0].tokens.tolist(), [2])  # while a slice may be under way
        self.assertEqual([(await task)[0].tokens.tolist() for task in tasks], [[3], [2], [1], [0]])

    async def test_one_slice_runs_at_a_time_however_many_tasks_wait(self):
        # Two would write the same completion.
        long, slices = Long(self), []
        begin = long.engine._in_flight._begin_slice

        def checked(timeout_ms):
            self.assertTrue(all(each.done() for each in slices))
            slices.append(begin(timeout_ms))
            return slices[-1]

        long.engine._in_flight._begin_slice = checked
        round = long.engine.submit(None, long.drafts)
        answers = await asyncio.gather(*[round.aresult() for _ in range(5)])
        self.assertTrue(all(answer is answers[0] for answer in answers))
        self.assertGreater(len(slices), 1)

    async def test_an_engine_that_is_closed_meanwhile_is_an_error_and_no_crash(self):
        long = Long(self)
        task = asyncio.create_task(long.engine.averify(None, long.drafts))
        await asyncio.sleep(0.01)
        long.engine.close()
        with self.assertRaisesRegex(specd.Error, "the engine is closed"):
            await task

    async def test_nothing_is_written_about_errors_that_somebody_has_read(self):
        said = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        with self.assertRaises(specd.Error):
            await self.engine.averify(None, [specd.Draft(self.open(), target_rows=[0])])
        await self.engine.averify(one_hot(1), {self.open(): []})
        await asyncio.sleep(0)
        self.assertEqual(said, [])


class LoopsTest(DoorCase):
    def test_an_engine_serves_one_event_loop_after_another(self):
        # Tasks wait for each other in each of them: what is shared belongs to one loop.
        async def main():
            tokens = await asyncio.gather(*[
                self.engine.averify(one_hot(token, dtype=dtype), {self.open(): []})
                for token, dtype in ((1, np.float32), (2, np.float16), (3, np.float32))])
            return [result.tokens.tolist() for (result,) in tokens]

        for _ in range(3):
            self.assertEqual(asyncio.run(main()), [[1], [2], [3]])


if __name__ == "__main__":
    unittest.main()
