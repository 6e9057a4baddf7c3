import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's side of the benchmarks: a measurement a line on stdin. The protocol is in ../README.md. */
public final class RedissonBench {
    /** Before threads that share the work are counted, all of them shall have begun. */
    private static final int BEGIN_MS = 200;
    private static final int RANDOM_SEED = 7;
    /** The default is 32 and 16 for each client, but here eight clients share a process. */
    private static final int THREADS = 4;

    /** One for each session; they stay for all measurements. */
    private final List<RedissonClient> clients = new ArrayList<>();
    private final ExecutorService executor = Executors.newCachedThreadPool();
    private RLock held;

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8);
        System.setOut(System.err); // stdout is only the protocol, whatever a library prints
        RedissonBench bench = new RedissonBench();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, ISO_8859_1));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(bench.answer(new Words(line)));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(Words words) {
        try {
            String work = words.next("WORK");
            if (work.equals("version")) {
                return "ok " + Redisson.class.getPackage().getImplementationVersion();
            }
            List<Long> figures = measure(work, words);
            return figures.stream().map(figure -> " " + figure).collect(Collectors.joining("", "ok", ""));
        } catch (Exception failure) {
            return ("error " + failure).replaceAll("\\s+", " ");
        }
    }

    private List<Long> measure(String work, Words words) throws Exception {
        String url = words.next("URL");
        String name = words.next("LOCK");
        int millis = words.number("MILLIS");
        boolean isFair = words.next("KIND").equals("RFairLock");
        switch (work) {
            case "uncontended":
                return cycles(lock(url, 0, name, isFair), millis);
            case "set":
                RLock[] members = IntStream.range(0, words.number("MEMBERS"))
                        .mapToObj(member -> lock(url, 0, name + ":" + member, isFair))
                        .toArray(RLock[]::new);
                return cycles(client(url, 0).getMultiLock(members), millis);
            case "hold":
                held = lock(url, 1, name, isFair);
                held.lock();
                return List.of();
            case "try":
                return tries(lock(url, 0, name, isFair), millis);
            case "free":
                held.unlock();
                return List.of();
            case "saturated":
                return contest(locks(url, name, isFair, words.number("SESSIONS")), 0, 0, millis);
            case "paced":
                List<RLock> paced = locks(url, name, isFair, words.number("SESSIONS"));
                return contest(paced, words.number("HOLD_MS"), words.number("PAUSE_MS"), millis);
            case "parallel":
                return together(parallel(url, name, isFair, words.number("LOCKS")), millis);
            case "readwrite":
                return together(readWrite(url, name, words), millis);
            default:
                throw new IllegalArgumentException("unknown work: " + work);
        }
    }

    /** Nanoseconds of each acquire and each release, in turn. */
    private static List<Long> cycles(RLock lock, int millis) {
        List<Long> samples = new ArrayList<>();
        long start = System.nanoTime();
        long released = start;
        while (released - start < MILLISECONDS.toNanos(millis)) {
            long begun = System.nanoTime();
            lock.lock();
            long acquired = System.nanoTime();
            lock.unlock();
            released = System.nanoTime();
            samples.add(acquired - begun);
            samples.add(released - acquired);
        }
        return samples;
    }

    /** Nanoseconds of each attempt to get what another session holds. */
    private static List<Long> tries(RLock lock, int millis) {
        List<Long> samples = new ArrayList<>();
        long start = System.nanoTime();
        long refused = start;
        while (refused - start < MILLISECONDS.toNanos(millis)) {
            long begun = System.nanoTime();
            if (lock.tryLock()) {
                throw new IllegalStateException("granted what another session holds");
            }
            refused = System.nanoTime();
            samples.add(refused - begun);
        }
        return samples;
    }

    /** What has happened in a contest. Only the holder changes it, apart from `isCounted`. */
    private static final class Course {
        boolean isCounted;
        int last = -1;
        long released;
        long handedOn;
        long all;
        long[] served;
        final List<Long> gaps = new ArrayList<>();

        synchronized void granted(int to, long at) {
            if (isCounted) {
                served[to]++;
                handedOn += last == to ? 0 : 1;
                if (released != 0) {
                    gaps.add(at - released);
                }
            }
            last = to;
            released = 0;
            all++;
        }

        synchronized void releases() {
            released = System.nanoTime();
        }

        synchronized void count(boolean counted) {
            isCounted = counted;
        }
    }

    /** Nanoseconds, grants handed on, all grants, number of sessions, the grants of each, gaps. */
    private List<Long> contest(List<RLock> locks, int holdMs, int pauseMs, int millis) throws Exception {
        Course course = new Course();
        course.served = new long[locks.size()];
        AtomicBoolean over = new AtomicBoolean();
        List<Future<?>> threads = new ArrayList<>();
        for (int session = 0; session < locks.size(); session++) {
            int index = session;
            RLock lock = locks.get(index);
            threads.add(executor.submit((Callable<Void>) () -> {
                while (!over.get()) {
                    lock.lock();
                    course.granted(index, System.nanoTime());
                    rest(holdMs);
                    course.releases();
                    lock.unlock();
                    rest(pauseMs);
                }
                return null;
            }));
        }
        Thread.sleep(BEGIN_MS);
        course.count(true);
        long begun = System.nanoTime();
        Thread.sleep(millis);
        course.count(false);
        long length = System.nanoTime() - begun;
        over.set(true);
        for (Future<?> thread : threads) {
            thread.get();
        }
        List<Long> figures = new ArrayList<>(List.of(length, course.handedOn, course.all, (long) locks.size()));
        for (long served : course.served) {
            figures.add(served);
        }
        figures.addAll(course.gaps);
        return figures;
    }

    private static void rest(int millis) throws InterruptedException {
        if (millis > 0) {
            Thread.sleep(millis);
        }
    }

    private List<RLock> locks(String url, String name, boolean isFair, int sessions) {
        return IntStream.range(0, sessions).mapToObj(it -> lock(url, it, name, isFair)).toList();
    }

    private List<Runnable> parallel(String url, String name, boolean isFair, int count) {
        List<Runnable> cycles = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            RLock lock = lock(url, 0, name + ":" + index, isFair);
            cycles.add(() -> once(lock));
        }
        return cycles;
    }

    private List<Runnable> readWrite(String url, String name, Words words) {
        int sessions = words.number("SESSIONS");
        int tasks = words.number("TASKS");
        int writePercent = words.number("WRITE_PERCENT");
        List<Runnable> cycles = new ArrayList<>();
        for (int session = 0; session < sessions; session++) {
            RReadWriteLock lock = client(url, session).getReadWriteLock(name);
            for (int task = 0; task < tasks; task++) {
                Random random = new Random(RANDOM_SEED + cycles.size());
                cycles.add(() -> once(random.nextInt(100) < writePercent ? lock.writeLock() : lock.readLock()));
            }
        }
        return cycles;
    }

    private static void once(RLock lock) {
        lock.lock();
        lock.unlock();
    }

    /** Each on a thread of its own: the cycles while all were at it, the nanoseconds of that, and all cycles. */
    private List<Long> together(List<Runnable> cycles, int millis) throws Exception {
        LongAdder done = new LongAdder();
        AtomicBoolean over = new AtomicBoolean();
        List<Future<?>> threads = new ArrayList<>();
        for (Runnable cycle : cycles) {
            threads.add(executor.submit(() -> {
                while (!over.get()) {
                    cycle.run();
                    done.increment();
                }
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

    private RLock lock(String url, int session, String name, boolean isFair) {
        RedissonClient client = client(url, session);
        return isFair ? client.getFairLock(name) : client.getLock(name);
    }

    private RedissonClient client(String url, int session) {
        while (clients.size() <= session) {
            Config config = new Config().setThreads(THREADS).setNettyThreads(THREADS);
            config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(THREADS);
            clients.add(Redisson.create(config));
        }
        return clients.get(session);
    }
}
