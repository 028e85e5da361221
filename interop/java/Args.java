import java.util.HashMap;
import java.util.Map;
import java.util.zip.CRC32;

/** key=value arguments of a helper program, and the JSON lines it prints. */
final class Args {
    private final Map<String, String> values = new HashMap<>();

    Args(String[] argv) {
        for (String a : argv) {
            int eq = a.indexOf('=');
            if (eq < 0) {
                throw new IllegalArgumentException("not key=value: " + a);
            }
            values.put(a.substring(0, eq), a.substring(eq + 1));
        }
    }

    String text(String key) {
        String v = values.get(key);
        if (v == null) {
            throw new IllegalArgumentException("missing argument " + key);
        }
        return v;
    }

    String text(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        String v = values.get(key);
        return v == null ? otherwise : Integer.parseInt(v);
    }

    /** CRC-32 of a body as an unsigned number: what both sides of a test compare. */
    static long checksum(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }

    /** Prints one JSON object on a line of its own; values are texts, numbers or booleans. */
    static synchronized void print(Object... pairs) {
        StringBuilder line = new StringBuilder("{");
        for (int i = 0; i < pairs.length; i += 2) {
            if (i > 0) {
                line.append(',');
            }
            quote(line, String.valueOf(pairs[i]));
            line.append(':');
            Object v = pairs[i + 1];
            if (v instanceof Number || v instanceof Boolean) {
                line.append(v);
            } else {
                quote(line, v == null ? "" : v.toString());
            }
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }

    private static void quote(StringBuilder to, String s) {
        to.append('"');
        for (char c : s.toCharArray()) {
            if (c == '"' || c == '\\') {
                to.append('\\').append(c);
            } else if (c < ' ') {
                to.append(String.format("\\u%04x", (int) c));
            } else {
                to.append(c);
            }
        }
        to.append('"');
    }
}
