import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Creates a topic and loads a file of rows of fixed size into it, in order, round robin over its partitions.
 * Arguments: address, topic, partitions, file, the name of the header whose value is the key as well ("" for none),
 * then body size, and header name and size by turns; a row is the body and the values one after the other.
 * The producer has Kafka's defaults.  Prints how many messages were acknowledged.
 */
public final class Load {
    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(args[1], Optional.of(partitions), Optional.of((short) 1)))).all().get();
        }
        AtomicReference<Exception> failure = new AtomicReference<>();
        long count = 0;
        try (DataInputStream rows = new DataInputStream(new BufferedInputStream(Files.newInputStream(Path.of(args[3])), 1 << 20));
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (ProducerRecord<byte[], byte[]> message; (message = next(rows, args, (int) (count % partitions))) != null; count++) {
                producer.send(message, (where, refused) -> failure.compareAndSet(null, refused));
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.println(count);
    }

    private static ProducerRecord<byte[], byte[]> next(DataInputStream rows, String[] args, int partition) throws Exception {
        byte[] body = new byte[Integer.parseInt(args[5])];
        try {
            rows.readFully(body);
        } catch (EOFException end) {
            return null;
        }
        Header[] headers = new Header[(args.length - 6) / 2];
        byte[] key = null;
        for (int i = 0; i < headers.length; i++) {
            byte[] value = new byte[Integer.parseInt(args[7 + 2 * i])];
            rows.readFully(value);
            headers[i] = new RecordHeader(args[6 + 2 * i], value);
            key = args[6 + 2 * i].equals(args[4]) ? value : key;
        }
        return new ProducerRecord<>(args[1], partition, key, body, List.of(headers));
    }
}
