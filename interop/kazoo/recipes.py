"""kazoo's recipes and ours on the same paths.

The first argument is the address of the server, the second one the program that does the Rust side: it does what it is
told, line by line, and says what came of it. Prints `ok NAME` or `FAIL NAME: why` for each check and, last, the counts.
"""

import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient

# It only bounds failure.
PATIENCE = 60
# How often each of four adds one under a lock.
TIMES = 15


class Partner:
    """The Rust side."""

    def __init__(self, program, address):
        self.process = subprocess.Popen(
            [program, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.said = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.said.append(line.rstrip("\n"))
                self.changed.notify_all()

    def tell(self, order, answer=None):
        """Gives an order, and waits for what it says if that is named."""
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        if answer is not None:
            self.wait(answer)

    def wait(self, answer):
        """Waits until it says this."""
        end = time.monotonic() + PATIENCE
        with self.changed:
            while answer not in self.said:
                errors = [line for line in self.said if line.startswith("error")]
                left = end - time.monotonic()
                if errors or left < 0:
                    said, self.said = self.said, []
                    raise AssertionError(f"the partner shall say {answer!r}, it said {said}")
                self.changed.wait(left)
            self.said.remove(answer)

    def wait_for_error(self, words):
        """Waits until it complains of this."""

        def complaint():
            return next((line for line in self.said if line.startswith("error") and words in line), None)

        with self.changed:
            assert self.changed.wait_for(complaint, PATIENCE), f"{words!r} in an error; it said {self.said}"
            self.said.remove(complaint())

    def has_said(self, answer):
        with self.changed:
            return answer in self.said

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


class Meeting:
    """Two sessions on one server, and what the checks share."""

    def __init__(self, address, program):
        # Whoever loses a race for a version tries again, as often as it takes.
        retry = {"max_tries": -1, "delay": 0.001, "max_delay": 0.02}
        self.kazoo = KazooClient(address, timeout=30, command_retry=retry)
        self.kazoo.start()
        self.rust = Partner(program, address)
        self.threads = ThreadPoolExecutor(8)

    def close(self):
        self.rust.close()
        self.kazoo.stop()
        self.kazoo.close()

    def children(self, path, count):
        eventually(
            f"{count} children of {path}",
            lambda: self.kazoo.exists(path) and len(self.kazoo.get_children(path)) == count,
        )

    # Locks.

    def take_turns(self, lock, kind, path):
        """A lock of kazoo's and one of ours, each of which nobody else may have beside it."""
        kazoo, rust = self.kazoo, self.rust
        mine = lock(path)
        assert mine.acquire(timeout=PATIENCE)
        rust.tell(f"try a {kind} {path}", "a busy")
        rust.tell(f"take b {kind} {path}")
        self.children(path, 2)
        assert not rust.has_said("b held"), "Rust waits"
        mine.release()
        rust.wait("b held")
        other = lock(path)
        assert not other.acquire(blocking=False), "Rust holds it"
        waiting = self.threads.submit(other.acquire)
        self.children(path, 2)
        assert not waiting.done(), "kazoo waits"
        rust.tell("release b", "b released")
        assert waiting.result(PATIENCE)
        assert len(kazoo.get_children(path)) == 1
        other.release()

    def count(self, lock, kind, path):
        """Both add to a counter that only the lock protects."""
        counter = path + "-count"
        self.rust.tell(f"counter {counter}", f"counter {counter}")
        for name in ["x", "y"]:
            self.rust.tell(f"count {name} {kind} {path} {TIMES}")

        def add():
            mine = lock(path)
            for _ in range(TIMES):
                with mine:
                    data, _ = self.kazoo.get(counter)
                    self.kazoo.set(counter, str(int(data) + 1).encode())

        for adding in [self.threads.submit(add) for _ in range(2)]:
            adding.result(PATIENCE)
        self.rust.wait("x counted")
        self.rust.wait("y counted")
        equal(str(4 * TIMES).encode(), self.kazoo.get(counter)[0])

    def lock(self):
        self.take_turns(self.kazoo.Lock, "kazoo-mutex", "/lock")

    def lock_counts(self):
        self.count(self.kazoo.Lock, "kazoo-mutex", "/lock-counts")

    def lock_contenders(self):
        self.rust.tell("take a kazoo-mutex /contenders", "a held")
        mine = self.kazoo.Lock("/contenders", "python")
        waiting = self.threads.submit(mine.acquire)
        self.children("/contenders", 2)
        equal(["", "python"], mine.contenders())
        self.rust.tell("release a", "a released")
        assert waiting.result(PATIENCE)
        mine.release()

    def other_names_are_refused(self):
        """With Curator's names the two would not see each other; Rust notices."""
        mine = self.kazoo.Lock("/refused")
        mine.acquire()
        for kind in ["mutex", "read", "write"]:
            self.rust.tell(f"try a {kind} /refused")
            self.rust.wait_for_error("kazoo's names")
        mine.release()
        reading = self.kazoo.ReadLock("/refused")
        reading.acquire()
        for kind in ["mutex", "kazoo-mutex"]:
            self.rust.tell(f"try a {kind} /refused")
            self.rust.wait_for_error("kazoo's names")
        reading.release()

    def writers(self):
        self.take_turns(self.kazoo.WriteLock, "kazoo-write", "/writers")

    def writers_count(self):
        self.count(self.kazoo.WriteLock, "kazoo-write", "/writers-count")

    def readers(self):
        kazoo, rust = self.kazoo, self.rust
        reading = kazoo.ReadLock("/rw")
        assert reading.acquire(timeout=PATIENCE)
        rust.tell("take a kazoo-read /rw", "a held")
        rust.tell("try b kazoo-write /rw", "b busy")
        assert not kazoo.WriteLock("/rw").acquire(blocking=False), "Rust reads"
        reading.release()
        rust.tell("release a", "a released")
        rust.tell("take c kazoo-write /rw", "c held")
        assert not kazoo.ReadLock("/rw").acquire(blocking=False), "Rust writes"
        waiting = kazoo.ReadLock("/rw")
        acquired = self.threads.submit(waiting.acquire)
        self.children("/rw", 2)
        assert not acquired.done(), "kazoo waits"
        rust.tell("release c", "c released")
        assert acquired.result(PATIENCE)
        rust.tell("take d kazoo-write /rw")
        self.children("/rw", 2)
        assert not rust.has_said("d held"), "the writer waits for the reader"
        waiting.release()
        rust.wait("d held")
        rust.tell("release d", "d released")

    def downgrade(self):
        self.rust.tell("take a kazoo-write /downgrade", "a held")
        writing = self.kazoo.WriteLock("/downgrade")
        acquired = self.threads.submit(writing.acquire)
        self.children("/downgrade", 2)
        self.rust.tell("downgrade a", "a held")
        reading = self.kazoo.ReadLock("/downgrade")
        assert not reading.acquire(blocking=False), "a writer waits before it"
        assert not acquired.done(), "the writer waits for the reader that was a writer"
        self.rust.tell("release a", "a released")
        assert acquired.result(PATIENCE)
        writing.release()

    def election(self):
        kazoo, rust = self.kazoo, self.rust
        leads, done = threading.Event(), threading.Event()

        def lead():
            leads.set()
            assert done.wait(PATIENCE)

        rust.tell("take s kazoo-selector /election", "s held")
        election = kazoo.Election("/election", "python")
        running = self.threads.submit(election.run, lead)
        self.children("/election", 2)
        equal(["rust", "python"], election.contenders())
        rust.tell("leader kazoo-selector /election", "kazoo-selector rust")
        assert not leads.is_set(), "Rust leads"
        rust.tell("release s", "s released")
        rust.wait("selector gave way")
        assert leads.wait(PATIENCE), "kazoo leads"
        rust.tell("leader kazoo-selector /election", "kazoo-selector python")
        rust.tell("take t kazoo-selector /election")
        self.children("/election", 2)
        assert not rust.has_said("t held"), "Rust waits"
        done.set()
        running.result(PATIENCE)
        rust.wait("t held")
        rust.tell("release t", "t released")
        rust.wait("selector gave way")

    # Counters.

    def counter(self):
        counter = self.kazoo.Counter("/counter", support_curator=True)
        equal(0, counter.value)
        self.rust.tell("read integer /counter", "/counter is 0")
        self.rust.tell(f"add integer /counter 3 {TIMES}")

        def add():
            mine = self.kazoo.Counter("/counter", support_curator=True)
            for _ in range(TIMES):
                mine += 2

        for adding in [self.threads.submit(add) for _ in range(2)]:
            adding.result(PATIENCE)
        self.rust.wait("/counter added")
        equal(TIMES * (3 + 2 + 2), counter.value)
        self.rust.tell("read integer /counter", f"/counter is {TIMES * 7}")

    def shared_count(self):
        self.rust.tell("write shared-count /shared-count 41", "/shared-count written")
        counter = self.kazoo.Counter("/shared-count", support_curator=True)
        self.rust.tell("follow shared-count /shared-count 40")
        counter -= 1
        self.rust.wait("/shared-count became 40")
        equal(40, counter.value)

    # Barriers.

    def barrier(self):
        barrier = self.kazoo.Barrier("/barrier")
        barrier.create()
        self.rust.tell("barrier /barrier", "/barrier set")
        self.rust.tell("pass a /barrier")
        waiting = self.threads.submit(barrier.wait)
        assert barrier.remove()
        self.rust.wait("a passed")
        assert waiting.result(PATIENCE)
        self.rust.tell("set-barrier /barrier", "/barrier set")
        waiting = self.threads.submit(barrier.wait)
        assert not waiting.done(), "kazoo waits"
        self.rust.tell("remove-barrier /barrier", "/barrier open")
        assert waiting.result(PATIENCE)

    def double_barrier(self):
        """Whoever completes the number, all go on together and leave together."""
        for name, last_is_rust in [("/double-1", True), ("/double-2", False)]:
            members = [self.kazoo.DoubleBarrier(name, 4) for _ in range(2)]
            self.rust.tell(f"enter a {name} 4")
            entering = [self.threads.submit(member.enter) for member in members[:1]]
            self.children(name, 2)
            if last_is_rust:
                entering.append(self.threads.submit(members[1].enter))
                self.children(name, 3)
                assert not any(one.done() for one in entering) and not self.rust.has_said("a held")
                self.rust.tell(f"enter b {name} 4")
            else:
                self.rust.tell(f"enter b {name} 4")
                self.children(name, 3)
                assert not any(one.done() for one in entering) and not self.rust.has_said("a held")
                entering.append(self.threads.submit(members[1].enter))
            for one in entering:
                one.result(PATIENCE)
            self.rust.wait("a held")
            self.rust.wait("b held")
            leaving = [self.threads.submit(members[0].leave)]
            self.rust.tell("release a")
            leaving.append(self.threads.submit(members[1].leave))
            # The one with the lowest name is there until all have gone.
            eventually("some have gone", lambda: len(self.kazoo.get_children(name)) <= 2)
            assert not any(one.done() for one in leaving) and not self.rust.has_said("a released")
            self.rust.tell("release b", "b released")
            self.rust.wait("a released")
            for one in leaving:
                one.result(PATIENCE)

    def hasty_double_barrier(self):
        """kazoo's members take down the sign when they leave, and ours may not have seen it.

        One of kazoo's alone, and the last to come: of two, the slower may look for the sign when it has been taken down
        and count the members when ours has left. Then kazoo waits for ever, whatever the server.
        """
        for number in range(TIMES):
            name = f"/hasty-{number}"
            self.rust.tell(f"enter a {name} 2")
            self.children(name, 1)

            def pass_through():
                member = self.kazoo.DoubleBarrier(name, 2)
                member.enter()
                member.leave()

            passing = self.threads.submit(pass_through)
            self.rust.wait("a held")
            self.rust.tell("release a", "a released")
            passing.result(PATIENCE)

    # Queues.

    def queue(self):
        self.rust.tell("offer /queue one two three", "/queue offered")
        queue = self.kazoo.Queue("/queue")
        equal([b"one", b"two", b"three"], [queue.get() for _ in range(3)])
        equal(None, queue.get())
        self.rust.tell("offer /queue four", "/queue offered")
        equal(b"four", queue.get())

    # Groups.

    def parties(self, party, kind, path):
        mine = party(path, "python")
        mine.join()
        self.rust.tell(f"party r {kind} {path} rust", "r held")
        equal(["python", "rust"], sorted(mine))
        equal(2, len(mine))
        self.rust.tell("participants r python,rust", "r sees them")
        twin = party(path, "python")
        twin.join()
        self.rust.tell("participants r python,python,rust", "r sees them")
        twin.leave()
        self.rust.tell("participants r python,rust", "r sees them")
        self.rust.tell("release r", "r released")
        equal(["python"], sorted(mine))
        mine.leave()

    def party(self):
        self.parties(self.kazoo.Party, "deep", "/party")

    def shallow_party(self):
        self.parties(self.kazoo.ShallowParty, "shallow", "/shallow-party")

    def partitioners(self):
        items = ["1", "2", "3", "4", "5"]
        mine = Sharer(self.kazoo, "/partitions", items, "berta")
        mine.until(items)
        self.rust.tell("share a /partitions anna 1,2,3,4,5", "a held")
        self.rust.wait("a has 1,3,5")
        mine.until(["2", "4"])
        third = Sharer(self.kazoo, "/partitions", items, "clara")
        self.rust.wait("a has 1,4")
        mine.until(["2", "5"])
        third.until(["3"])
        self.rust.tell("release a", "a released")
        self.rust.wait("a left")
        mine.until(["1", "3", "5"])
        third.until(["2", "4"])
        self.rust.tell("share d /partitions dora 1,2,3,4,5", "d held")
        mine.leave()
        third.leave()
        self.rust.wait("d has 1,2,3,4,5")
        self.rust.tell("release d", "d released")
        self.rust.wait("d left")


class Sharer:
    """A partitioner of kazoo's that gives back what others want."""

    def __init__(self, kazoo, path, items, name):
        self.over = False
        self.changed = threading.Event()
        self.partitioner = kazoo.SetPartitioner(
            path, items, identifier=name, time_boundary=0.05, state_change_event=self.changed
        )
        self.share = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.over and not self.partitioner.failed:
            self.changed.wait()
            self.changed.clear()
            if self.partitioner.acquired:
                self.share = sorted(self.partitioner)
            elif self.partitioner.release:
                self.share = None
                self.partitioner.release_set()

    def until(self, share):
        eventually(f"kazoo's share is {share}", lambda: self.share == share)

    def leave(self):
        self.over = True
        self.changed.set()
        self.thread.join()
        self.partitioner.finish()


def equal(expected, got):
    assert expected == got, f"{expected!r} is expected, not {got!r}"


def eventually(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE} s"
        time.sleep(0.005)


CHECKS = [
    ("lock: each waits for the other", Meeting.lock),
    ("lock: both count under it", Meeting.lock_counts),
    ("lock: kazoo lists both", Meeting.lock_contenders),
    ("lock: names of another style are refused", Meeting.other_names_are_refused),
    ("write lock: each waits for the other", Meeting.writers),
    ("write lock: both count under it", Meeting.writers_count),
    ("read/write lock: readers together, writers alone", Meeting.readers),
    ("read/write lock: Rust becomes a reader", Meeting.downgrade),
    ("election: each leads in its turn", Meeting.election),
    ("counter: both add", Meeting.counter),
    ("counter: Rust follows a shared count", Meeting.shared_count),
    ("barrier: either sets and removes it", Meeting.barrier),
    ("double barrier: all enter and leave together", Meeting.double_barrier),
    ("double barrier: kazoo does not stay", Meeting.hasty_double_barrier),
    ("queue: kazoo takes what Rust offers", Meeting.queue),
    ("party: both see each other", Meeting.party),
    ("shallow party: both see each other", Meeting.shallow_party),
    ("set partitioner: both share out a set", Meeting.partitioners),
]


def main():
    meeting = Meeting(sys.argv[1], sys.argv[2])
    failed = 0
    for name, check in CHECKS:
        try:
            check(meeting)
            print(f"ok {name}", flush=True)
        except Exception as why:  # whatever it is, it is this check's failure
            traceback.print_exc()
            failed += 1
            print(f"FAIL {name}: {' '.join(str(why).split()) or type(why).__name__}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed", flush=True)
    meeting.close()


if __name__ == "__main__":
    main()
