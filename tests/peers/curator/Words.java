import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URLDecoder;
import java.net.URLEncoder;
import java.util.Collection;
import java.util.List;

/** The words of one line: separated by one space, bytes percent-encoded, so that a word may be empty. */
final class Words {
    private final String[] words;
    private int index;

    Words(String line) {
        words = line.split(" ", -1);
    }

    boolean hasNext() {
        return index < words.length;
    }

    byte[] bytes() {
        return hasNext() ? URLDecoder.decode(words[index++], ISO_8859_1).getBytes(ISO_8859_1) : new byte[0];
    }

    String nextOr(String absent) {
        return hasNext() ? new String(bytes(), UTF_8) : absent;
    }

    String next(String what) {
        if (!hasNext()) {
            throw new IllegalArgumentException("missing argument: " + what);
        }
        return nextOr(null);
    }

    int number(String what) {
        return Integer.parseInt(next(what));
    }

    /** The answer that consists of these values. */
    static List<String> values(Object... values) {
        return values(List.of(values));
    }

    static List<String> values(Collection<?> values) {
        return values.stream().map(value -> encode(value.toString().getBytes(UTF_8))).toList();
    }

    static String encode(byte[] bytes) {
        String form = URLEncoder.encode(new String(bytes, ISO_8859_1), ISO_8859_1);
        return form.replace("%2F", "/").replace("%3A", ":"); // to be read by people, too
    }
}
