"""kazoo's locks, driven by one command a line on stdin. The protocol is in ../README.md."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote_plus, unquote_plus

import kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

CONNECT_SECONDS_MAX = 50
# Far above any healthy wait: contention that lost a wake-up fails with a message, not by hanging.
CONTENDED_WAIT_SECONDS_MAX = 60


class CuratorMutex(Lock):
    """kazoo's lock in the queue of Curator's InterProcessMutex."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class CuratorReadLock(Lock):
    """kazoo's lock as a reader of Curator's InterProcessReadWriteLock."""

    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["-__WRIT__"]


class CuratorWriteLock(Lock):
    """kazoo's lock as a writer of Curator's InterProcessReadWriteLock."""

    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["-__READ__", "-__WRIT__"]


# What a lock is by the word for its names.
FORMS = {
    "own": Lock,
    "counting": lambda client, path: Lock(client, path, extra_lock_patterns=["-lock-"]),
    "own.read": ReadLock,
    "own.write": WriteLock,
    "curator": CuratorMutex,
    "curator.read": CuratorReadLock,
    "curator.write": CuratorWriteLock,
}


class Peer:
    def __init__(self):
        self.clients = {}
        self.locks = {}
        self.threads = {}
        self.unnamed = ThreadPoolExecutor(max_workers=64)
        self.answers = threading.Lock()

    def dispatch(self, line):
        """Hands the command to its thread. The reader of stdin itself never waits."""
        number, thread, verb, *words = [unquote_plus(word) for word in line.split(" ")]
        if verb == "exit":
            self.close()
            self.answer(number, "ok")
            os._exit(0)
        executor = self.unnamed
        if thread != "main":
            executor = self.threads.setdefault(thread, ThreadPoolExecutor(max_workers=1))
        executor.submit(self.run, number, verb, words)

    def run(self, number, verb, words):
        try:
            values = getattr(self, "do_" + verb)(*words)
        except Exception as failure:
            message = " ".join(str(failure).split())
            self.answer(number, "error", type(failure).__name__, message)
        else:
            self.answer(number, "ok", *(quote_plus(str(value), safe="/:") for value in values))

    def answer(self, *words):
        with self.answers:
            print(" ".join(words), flush=True)

    def close(self):
        """Ends the sessions, so that none outlives its peer."""
        for client in self.clients.values():
            client.stop()

    def do_version(self):
        return [kazoo.__version__]

    def do_open(self, name, hosts, session_ms):
        client = KazooClient(hosts=hosts, timeout=int(session_ms) / 1000)
        client.start(timeout=CONNECT_SECONDS_MAX)
        self.clients[name] = client
        return self.do_session(name)

    def do_session(self, name):
        session, _ = self.clients[name].client_id
        return [format(session % 2**64, "x")]

    def do_close(self, name):
        self.clients[name].stop()
        return []

    def do_lock(self, name, client, path, form):
        self.locks[name] = FORMS[form](self.clients[client], path)
        return []

    def do_acquire(self, name, ms=None):
        try:
            granted = self.locks[name].acquire(timeout=None if ms is None else int(ms) / 1000)
        except LockTimeout:
            granted = False
        return [str(granted).lower()]

    def do_release(self, name):
        self.locks[name].release()
        return []

    def do_lockpath(self, name):
        lock = self.locks[name]
        return [] if lock.node is None else [lock.path + "/" + lock.node]

    def do_contend(self, client, path, counter, rounds, threads, form):
        contention = Contention(self.clients[client], path, counter, int(rounds))
        return contention.run(int(threads), FORMS[form])


class Contention:
    """Many threads of one client, each with its own lock, over an unguarded counter."""

    def __init__(self, client, path, counter, rounds):
        self.client = client
        self.path = path
        self.counter = counter
        self.left = rounds
        self.grants = []
        self.mutex = threading.Lock()

    def run(self, threads, form):
        """VALUE:SEQUENCE of each grant. The first failure stops the others after their round."""
        with ThreadPoolExecutor(max_workers=threads) as executor:
            running = [executor.submit(self.rounds, form) for _ in range(threads)]
        for each in running:
            each.result()
        return self.grants

    def rounds(self, form):
        lock = form(self.client, self.path)
        try:
            while self.take_one():
                self.inside(lock)
        except Exception:
            self.left = 0
            raise

    def take_one(self):
        with self.mutex:
            self.left -= 1
            return self.left >= 0

    def inside(self, lock):
        if not lock.acquire(timeout=CONTENDED_WAIT_SECONDS_MAX):
            raise RuntimeError("no grant")
        try:
            value = self.increment()
            with self.mutex:
                self.grants.append(f"{value}:{lock.node[-10:]}")
        finally:
            lock.release()

    def increment(self):
        """Read, then write without a version: two holders at once lose an increment or read a
        value twice."""
        value = int(self.client.get(self.counter)[0])
        self.client.set(self.counter, str(value + 1).encode())
        return value


def main():
    peer = Peer()
    for line in sys.stdin:
        peer.dispatch(line.rstrip("\n"))
    peer.close()
    os._exit(0)


main()
