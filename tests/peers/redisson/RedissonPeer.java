import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson's locks, driven by one command a line on stdin. The protocol is in ../README.md. */
public final class RedissonPeer {
    /** The default is 32 and 16 for each client. */
    private static final int THREADS = 4;

    private final PrintStream answers;
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();
    private final Map<String, Long> tokens = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> workers = new ConcurrentHashMap<>();
    private final ExecutorService unnamed = Executors.newCachedThreadPool(RedissonPeer::daemon);

    private RedissonPeer(PrintStream answers) {
        this.answers = answers;
    }

    public static void main(String[] args) throws Exception {
        RedissonPeer peer = new RedissonPeer(new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8));
        System.setOut(System.err); // stdout is only the protocol, whatever a library prints
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, ISO_8859_1));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            peer.dispatch(line);
        }
        Runtime.getRuntime().halt(0);
    }

    /** Hands the command to its thread, which owns what it acquires; the reader of stdin never waits. */
    private void dispatch(String line) {
        Words words = new Words(line);
        String id = words.next("ID");
        String thread = words.nextOr("main");
        String verb = words.nextOr("");
        if (verb.equals("exit")) {
            answers.println(id + " ok");
            answers.flush();
            Runtime.getRuntime().halt(0);
        }
        ExecutorService executor = thread.equals("main")
                ? unnamed
                : workers.computeIfAbsent(thread, name -> Executors.newSingleThreadExecutor(RedissonPeer::daemon));
        executor.execute(() -> answer(id, verb, words));
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    private void answer(String id, String verb, Words words) {
        String answer;
        try {
            List<String> values = perform(verb, words);
            answer = values.stream().map(value -> " " + value).collect(Collectors.joining("", "ok", ""));
        } catch (Throwable failure) { // an Error, too, is an answer: the caller waits for one
            String message = failure.getMessage() == null ? "" : failure.getMessage().replaceAll("\\s+", " ");
            answer = "error " + failure.getClass().getSimpleName() + " " + message;
        }
        synchronized (answers) {
            answers.println(id + " " + answer);
            answers.flush();
        }
    }

    private List<String> perform(String verb, Words words) throws Exception {
        switch (verb) {
            case "version":
                return Words.values(Redisson.class.getPackage().getImplementationVersion());
            case "open":
                clients.put(words.next("CLIENT"), open(words.next("URLS").split(","), words.number("WATCHDOG_MS")));
                return Words.values();
            case "lock":
                locks.put(words.next("NAME"), lock(clients.get(words.next("CLIENT")), words));
                return Words.values();
            case "acquire":
                return Words.values(acquire(words.next("LOCK"), words));
            case "release":
                locks.get(words.next("LOCK")).unlock();
                return Words.values();
            case "held":
                return Words.values(locks.get(words.next("LOCK")).isHeldByCurrentThread());
            case "token":
                return Words.values(tokens.get(words.next("LOCK")));
            case "set":
                RedissonClient client = clients.get(words.next("CLIENT"));
                client.getBucket(words.next("KEY"), StringCodec.INSTANCE).set(words.next("VALUE"));
                return Words.values();
            default:
                throw new IllegalArgumentException("unknown verb: " + verb);
        }
    }

    /** One server; or several, of which the one that says so is the primary. */
    private static RedissonClient open(String[] urls, int watchdogMs) {
        Config config = new Config().setThreads(THREADS).setNettyThreads(THREADS);
        config.setLockWatchdogTimeout(watchdogMs);
        if (urls.length == 1) {
            config.useSingleServer().setAddress(urls[0]).setConnectionMinimumIdleSize(1);
        } else {
            config.useReplicatedServers().addNodeAddress(urls);
        }
        return Redisson.create(config);
    }

    private static RLock lock(RedissonClient client, Words words) {
        String key = words.next("KEY");
        return words.next("KIND").equals("RFencedLock") ? client.getFencedLock(key) : client.getLock(key);
    }

    private boolean acquire(String name, Words words) throws InterruptedException {
        RLock lock = locks.get(name);
        if (lock instanceof RFencedLock fenced) {
            Long token = words.hasNext()
                    ? fenced.tryLockAndGetToken(words.number("MS"), MILLISECONDS)
                    : fenced.lockAndGetToken();
            if (token != null) {
                tokens.put(name, token);
            }
            return token != null;
        }
        if (words.hasNext()) {
            return lock.tryLock(words.number("MS"), MILLISECONDS);
        }
        lock.lock();
        return true;
    }
}
