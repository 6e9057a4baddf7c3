"""kazoo's side of the benchmarks: a measurement a line on stdin. The protocol is in ../README.md."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import kazoo
from kazoo.client import KazooClient

SESSION_SECONDS = 40
# Before threads that share the work are counted, all of them shall have begun.
BEGIN_SECONDS = 0.2


class Bench:
    def __init__(self):
        self.clients = {}
        self.held = None

    def connected(self, at, count):
        """The first so many clients of that server; they stay for all measurements."""
        clients = self.clients.setdefault(at, [])
        while len(clients) < count:
            client = KazooClient(hosts=at, timeout=SESSION_SECONDS)
            client.start()
            clients.append(client)
        return clients[:count]

    def close(self):
        for clients in self.clients.values():
            for client in clients:
                client.stop()

    def measure(self, work, *words):
        if work == "free":
            self.held.release()
            return []
        at, path, seconds = words[0], words[1], int(words[2]) / 1000
        if work == "hold":
            self.held = self.connected(at, 2)[1].Lock(path)
            self.held.acquire()
            return []
        if work == "contended":
            locks = [client.Lock(path) for client in self.connected(at, int(words[3]))]
            return together(locks, seconds)
        lock = self.connected(at, 1)[0].Lock(path)
        if work == "uncontended":
            return cycles(lock, seconds)
        if work == "try":
            return tries(lock, seconds)
        raise ValueError("unknown work: " + work)


def cycles(lock, seconds):
    """Nanoseconds of each acquire and each release, in turn."""
    samples = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter_ns()
        lock.acquire()
        acquired = time.perf_counter_ns()
        lock.release()
        samples += [acquired - begun, time.perf_counter_ns() - acquired]
    return samples


def tries(lock, seconds):
    """Nanoseconds of each attempt to get what another session holds."""
    samples = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter_ns()
        if lock.acquire(blocking=False):
            raise RuntimeError("granted what another session holds")
        samples.append(time.perf_counter_ns() - begun)
    return samples


def together(locks, seconds):
    """Each on a thread of its own: cycles while all were at it, nanoseconds of that, all cycles."""
    done, over = [0] * len(locks), threading.Event()

    def run(index):
        while not over.is_set():
            locks[index].acquire()
            locks[index].release()
            done[index] += 1

    with ThreadPoolExecutor(len(locks)) as executor:
        threads = [executor.submit(run, index) for index in range(len(locks))]
        time.sleep(BEGIN_SECONDS)
        before, begun = sum(done), time.perf_counter_ns()
        time.sleep(seconds)
        counted, length = sum(done) - before, time.perf_counter_ns() - begun
        over.set()
        for thread in threads:
            thread.result()
    return [counted, length, sum(done)]


def main():
    bench = Bench()
    for line in sys.stdin:
        words = line.split()
        try:
            figures = [kazoo.__version__] if words == ["version"] else bench.measure(*words)
            answer = " ".join(["ok", *map(str, figures)])
        except Exception as failure:
            answer = " ".join(f"error {failure!r}".split())
        print(answer, flush=True)
    bench.close()


main()
