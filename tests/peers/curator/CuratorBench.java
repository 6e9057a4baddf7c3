import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's side of the benchmarks: a measurement a line on stdin. The protocol is in ../README.md. */
public final class CuratorBench {
    private static final int SESSION_MS = 40_000;
    private static final int CONNECT_MS_MAX = 15_000;
    /** Before threads that share the work are counted, all of them shall have begun. */
    private static final int BEGIN_MS = 200;
    private static final int RANDOM_SEED = 7;

    private final Map<String, List<CuratorFramework>> clients = new HashMap<>();
    private final ExecutorService executor = Executors.newCachedThreadPool(CuratorPeer::daemon);
    private final List<Future<?>> waiters = new ArrayList<>();
    private InterProcessLock held;

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8);
        System.setOut(System.err); // stdout is only the protocol, whatever a library prints
        CuratorBench bench = new CuratorBench();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, ISO_8859_1));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(bench.answer(new Words(line)));
            answers.flush();
        }
        bench.clients.values().forEach(all -> all.forEach(CuratorFramework::close));
        Runtime.getRuntime().halt(0);
    }

    private String answer(Words words) {
        try {
            String work = words.next("WORK");
            if (work.equals("version")) {
                return "ok " + CuratorPeer.curatorVersion();
            }
            Collection<Long> figures = measure(work, words);
            return figures.stream().map(figure -> " " + figure).collect(Collectors.joining("", "ok", ""));
        } catch (Exception failure) {
            return ("error " + failure).replaceAll("\\s+", " ");
        }
    }

    private Collection<Long> measure(String work, Words words) throws Exception {
        if (work.equals("free")) {
            held.release();
            return List.of();
        }
        if (work.equals("drain")) {
            return drain();
        }
        String at = words.next("CONNECT");
        String path = words.next("PATH");
        int millis = words.number("MILLIS");
        switch (work) {
            case "uncontended":
                return cycles(new InterProcessMutex(clients(at, 1).get(0), path), millis);
            case "set":
                return cycles(set(clients(at, 1).get(0), path, words.number("MEMBERS")), millis);
            case "semaphore":
                return cycles(new SemaphoreLock(clients(at, 1).get(0), path, words.number("PERMITS"), 1), millis);
            case "hold":
                // By a session that does not try.
                held = new InterProcessMutex(clients(at, 2).get(1), path);
                held.acquire();
                return List.of();
            case "try":
                return tries(new InterProcessMutex(clients(at, 1).get(0), path), millis);
            case "contended":
                return together(contended(at, path, words.number("SESSIONS")), millis);
            case "local":
                return together(local(clients(at, 1).get(0), path, words.number("CONTENDERS")), millis);
            case "parallel":
                return together(parallel(clients(at, 1).get(0), path, words.number("LOCKS")), millis);
            case "readwrite":
                return together(readWrite(at, path, words), millis);
            case "queue":
                queue(at, path, words.number("SESSIONS"), words.number("WAITERS"), words.number("APART") == 1);
                return List.of();
            default:
                throw new IllegalArgumentException("unknown work: " + work);
        }
    }

    /** Nanoseconds of each acquire and each release, in turn. */
    private static List<Long> cycles(InterProcessLock lock, int millis) throws Exception {
        List<Long> samples = new ArrayList<>();
        long start = System.nanoTime();
        long released = start;
        while (released - start < MILLISECONDS.toNanos(millis)) {
            long begun = System.nanoTime();
            lock.acquire();
            long acquired = System.nanoTime();
            lock.release();
            released = System.nanoTime();
            samples.add(acquired - begun);
            samples.add(released - acquired);
        }
        return samples;
    }

    /** Nanoseconds of each attempt to get what another session holds. */
    private static List<Long> tries(InterProcessLock lock, int millis) throws Exception {
        List<Long> samples = new ArrayList<>();
        long start = System.nanoTime();
        long refused = start;
        while (refused - start < MILLISECONDS.toNanos(millis)) {
            long begun = System.nanoTime();
            if (lock.acquire(0, MILLISECONDS)) {
                throw new IllegalStateException("granted what another session holds");
            }
            refused = System.nanoTime();
            samples.add(refused - begun);
        }
        return samples;
    }

    private static InterProcessLock set(CuratorFramework client, String path, int members) {
        List<InterProcessLock> locks = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            locks.add(new InterProcessMutex(client, path + "/" + member));
        }
        return new InterProcessMultiLock(locks);
    }

    private List<Cycle> contended(String at, String path, int sessions) throws Exception {
        List<Cycle> cycles = new ArrayList<>();
        for (CuratorFramework client : clients(at, sessions)) {
            InterProcessMutex lock = new InterProcessMutex(client, path);
            cycles.add(() -> once(lock));
        }
        return cycles;
    }

    private static List<Cycle> local(CuratorFramework client, String path, int contenders) {
        InterProcessMutex lock = new InterProcessMutex(client, path);
        return Collections.nCopies(contenders, () -> once(lock));
    }

    private static List<Cycle> parallel(CuratorFramework client, String path, int locks) {
        List<Cycle> cycles = new ArrayList<>();
        for (int index = 0; index < locks; index++) {
            InterProcessMutex lock = new InterProcessMutex(client, path + "/" + index);
            cycles.add(() -> once(lock));
        }
        return cycles;
    }

    private List<Cycle> readWrite(String at, String path, Words words) throws Exception {
        int sessions = words.number("SESSIONS");
        int tasks = words.number("TASKS");
        int writePercent = words.number("WRITE_PERCENT");
        List<Cycle> cycles = new ArrayList<>();
        for (CuratorFramework client : clients(at, sessions)) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
            for (int task = 0; task < tasks; task++) {
                Random random = new Random(RANDOM_SEED + cycles.size());
                cycles.add(() -> once(random.nextInt(100) < writePercent ? lock.writeLock() : lock.readLock()));
            }
        }
        return cycles;
    }

    private static void once(InterProcessLock lock) throws Exception {
        lock.acquire();
        lock.release();
    }

    /** Each on a thread of its own: the cycles while all were at it, the nanoseconds of that, and all cycles. */
    private List<Long> together(List<Cycle> cycles, int millis) throws Exception {
        LongAdder done = new LongAdder();
        AtomicBoolean over = new AtomicBoolean();
        List<Future<?>> threads = new ArrayList<>();
        for (Cycle cycle : cycles) {
            threads.add(executor.submit((Callable<Void>) () -> {
                while (!over.get()) {
                    cycle.run();
                    done.increment();
                }
                return null;
            }));
        }
        Thread.sleep(BEGIN_MS);
        long before = done.sum();
        long begun = System.nanoTime();
        Thread.sleep(millis);
        long counted = done.sum() - before;
        long length = System.nanoTime() - begun;
        over.set(true);
        for (Future<?> thread : threads) {
            thread.get();
        }
        return List.of(counted, length, done.sum());
    }

    /**
     * Lets that many threads queue up behind a holder. They share one lock object for each session, as in a service,
     * or have one each.
     */
    private void queue(String at, String path, int sessions, int count, boolean apart) throws Exception {
        List<InterProcessMutex> shared = new ArrayList<>();
        for (CuratorFramework client : clients(at, sessions)) {
            shared.add(new InterProcessMutex(client, path));
        }
        held = new InterProcessMutex(clients(at, 1).get(0), path);
        held.acquire();
        for (int index = 0; index < count; index++) {
            int session = index % sessions;
            InterProcessMutex lock =
                    apart ? new InterProcessMutex(clients(at, sessions).get(session), path) : shared.get(session);
            waiters.add(executor.submit((Callable<Void>) () -> {
                once(lock);
                return null;
            }));
        }
    }

    private List<Long> drain() throws Exception {
        long begun = System.nanoTime();
        held.release();
        for (Future<?> waiter : waiters) {
            waiter.get();
        }
        long length = System.nanoTime() - begun;
        long count = waiters.size();
        waiters.clear();
        return List.of(count, length, count);
    }

    /** The first so many clients of that server; they stay for all measurements. */
    private List<CuratorFramework> clients(String at, int count) throws Exception {
        List<CuratorFramework> all = clients.computeIfAbsent(at, unused -> new ArrayList<>());
        while (all.size() < count) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(
                    at, SESSION_MS, CONNECT_MS_MAX, new ExponentialBackoffRetry(100, 5));
            client.start();
            all.add(client);
            if (!client.blockUntilConnected(CONNECT_MS_MAX, MILLISECONDS)) {
                throw new IllegalStateException("no connection within " + CONNECT_MS_MAX + " ms");
            }
        }
        return all.subList(0, count);
    }

    private interface Cycle {
        void run() throws Exception;
    }
}
