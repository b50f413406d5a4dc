// What a delay queue is without Tidegate: one thread a topic polls, sleeps until a record is due, and sends it.
// Beside our figures in `make bench`. Arguments: brokers, group, AtLeastOnce or ExactlyOnce, level topics.

import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

final class QueuePeer {
    private final String servers;
    private final String group;
    private final boolean isExactlyOnce;

    private QueuePeer(String servers, String group, boolean isExactlyOnce) {
        this.servers = servers;
        this.group = group;
        this.isExactlyOnce = isExactlyOnce;
    }

    public static void main(String[] arguments) {
        QueuePeer peer = new QueuePeer(arguments[0], arguments[1], arguments[2].equals("ExactlyOnce"));
        for (int n = 3; n < arguments.length; n++) {
            String level = arguments[n];
            new Thread(() -> peer.forward(level)).start();
        }
    }

    private void forward(String level) {
        String[] parts = level.split("\\.");
        long delayMs = 1000 * Long.parseLong(parts[parts.length - 2]);
        TopicPartition place = new TopicPartition(level, 0);
        KafkaConsumer<byte[], byte[]> consumer = consumer();
        consumer.assign(Collections.singleton(place));
        KafkaProducer<byte[], byte[]> producer = producer(level);
        while (true) {
            long sent = -1;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                long dueMs = record.timestamp() + delayMs;
                if (dueMs > System.currentTimeMillis()) {
                    end(consumer, producer, place, sent);
                    sent = -1;
                    sleepUntil(dueMs);
                }
                if (sent < 0 && isExactlyOnce) {
                    producer.beginTransaction();
                }
                producer.send(due(record, dueMs));
                sent = record.offset() + 1;
            }
            end(consumer, producer, place, sent);
        }
    }

    private void end(
            KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer, TopicPartition place, long sent) {
        if (sent < 0) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(place, new OffsetAndMetadata(sent));
        if (isExactlyOnce) {
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
        } else {
            producer.flush();
            consumer.commitSync(offsets);
        }
    }

    private static ProducerRecord<byte[], byte[]> due(ConsumerRecord<byte[], byte[]> record, long dueMs) {
        String target = new String(record.headers().lastHeader("tidegate-target").value());
        ProducerRecord<byte[], byte[]> sent =
                new ProducerRecord<>(target, null, record.key(), record.value(), record.headers());
        sent.headers().add("tidegate-due", Long.toString(dueMs).getBytes());
        return sent;
    }

    private static void sleepUntil(long dueMs) {
        try {
            Thread.sleep(Math.max(0, dueMs - System.currentTimeMillis()));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "10000");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaProducer<byte[], byte[]> producer(String level) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        settings.put("batch.size", "1000000");
        if (isExactlyOnce) {
            settings.put("transactional.id", level);
        }
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (isExactlyOnce) {
            producer.initTransactions();
        }
        return producer;
    }
}
