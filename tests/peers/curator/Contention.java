import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;

/** Many threads of one client, each with its own lock object, over an unguarded counter. */
final class Contention {
    /** Far above any healthy wait: contention that lost a wake-up fails with a message, not by hanging. */
    private static final int CONTENDED_WAIT_MS_MAX = 60_000;

    private final CuratorFramework client;
    private final String path;
    private final Collection<String> grants = new ConcurrentLinkedQueue<>();
    private final AtomicInteger readers = new AtomicInteger();
    private final AtomicInteger readersMax = new AtomicInteger();

    Contention(CuratorFramework client, String path) {
        this.client = client;
        this.path = path;
    }

    /** contend CLIENT PATH COUNTER ROUNDS THREADS: answers VALUE:SEQUENCE of each grant. */
    List<String> overMutex(Words words) throws Exception {
        String counter = words.next("COUNTER");
        AtomicInteger rounds = new AtomicInteger(words.number("ROUNDS"));
        run(words.number("THREADS"), rounds, thread -> {
            InterProcessMutex mutex = new InterProcessMutex(client, path);
            while (rounds.getAndDecrement() > 0) {
                inside(mutex, () -> grants.add(increment(counter) + ":" + sequence(mutex)));
            }
        });
        return Words.values(grants);
    }

    /**
     * contendrw CLIENT PATH FIRST SECOND ROUNDS THREADS WRITE_PERCENT SEED: answers the most readers at once, then
     * KIND:VALUE:SEQUENCE of each grant.
     */
    List<String> overReadWriteLock(Words words) throws Exception {
        String first = words.next("FIRST");
        String second = words.next("SECOND");
        AtomicInteger rounds = new AtomicInteger(words.number("ROUNDS"));
        int threads = words.number("THREADS");
        int writePercent = words.number("WRITE_PERCENT");
        int seed = words.number("SEED");
        run(threads, rounds, thread -> {
            Random random = new Random(31L * seed + thread);
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
            while (rounds.getAndDecrement() > 0) {
                if (random.nextInt(100) < writePercent) {
                    inside(lock.writeLock(), () -> {
                        readPair(first, second);
                        int value = increment(first);
                        increment(second);
                        grants.add("write:" + value + ":" + sequence(lock.writeLock()));
                    });
                } else {
                    inside(lock.readLock(), () -> {
                        readersMax.accumulateAndGet(readers.incrementAndGet(), Math::max);
                        try {
                            int value = readPair(first, second);
                            grants.add("read:" + value + ":" + sequence(lock.readLock()));
                        } finally {
                            readers.decrementAndGet();
                        }
                    });
                }
            }
        });
        List<String> answer = new ArrayList<>(Words.values(readersMax.get()));
        answer.addAll(grants);
        return answer;
    }

    /** Runs the threads to their end; the first failure stops the others after their current round. */
    private void run(int threads, AtomicInteger rounds, ThreadBody body) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(threads, CuratorPeer::daemon);
        List<Future<Void>> running = new ArrayList<>();
        for (int index = 0; index < threads; index++) {
            int thread = index;
            running.add(executor.submit((Callable<Void>) () -> {
                try {
                    body.run(thread);
                } finally {
                    rounds.set(0);
                }
                return null;
            }));
        }
        executor.shutdown();
        for (Future<Void> each : running) {
            try {
                each.get();
            } catch (ExecutionException failure) {
                throw failure.getCause() instanceof Exception cause ? cause : failure;
            }
        }
    }

    private void inside(InterProcessMutex lock, Section section) throws Exception {
        if (!lock.acquire(CONTENDED_WAIT_MS_MAX, MILLISECONDS)) {
            throw new IllegalStateException("no grant within " + CONTENDED_WAIT_MS_MAX + " ms");
        }
        try {
            section.run();
        } finally {
            lock.release();
        }
    }

    /** Read, then write without a version: two holders at once lose an increment or see a value twice. */
    private int increment(String counter) throws Exception {
        int value = read(counter);
        client.setData().forPath(counter, String.valueOf(value + 1).getBytes(US_ASCII));
        return value;
    }

    private int readPair(String first, String second) throws Exception {
        int value = read(first);
        int copy = read(second);
        if (value != copy) {
            throw new IllegalStateException("torn pair: a writer is inside: " + value + " != " + copy);
        }
        return value;
    }

    private int read(String counter) throws Exception {
        return Integer.parseInt(new String(client.getData().forPath(counter), US_ASCII));
    }

    private static int sequence(InterProcessMutex lock) throws Exception {
        String node = CuratorPeer.lockPath(lock);
        return Integer.parseInt(node.substring(node.length() - 10));
    }

    private interface ThreadBody {
        void run(int thread) throws Exception;
    }

    private interface Section {
        void run() throws Exception;
    }
}
