// Does a fetch quota cost a share group records? Needs nothing but a broker of Kafka 4.2 or later.
// Arguments: bootstrap servers, quota in bytes/s (0 = none), rounds of the record lock under the quota, consumers,
// records of 10 kB. Prints one line for each round, and a summary as the last line.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

final class ShareThrottle {
    private static final String NAME = "share-throttle"; // of topic, group and client id
    private static final int PARTITIONS = 3;
    private static final int RECORD_BYTES = 10_000;
    private static final long LOCK_MS = 15_000; // the least that brokers allow by default
    private static final int QUIET_ROUNDS = 3; // so long without a record, and nothing more is expected

    private final Map<String, Object> servers;
    private final Map<String, Integer> seen = new ConcurrentHashMap<>(); // "partition/offset" -> times
    private final Map<Integer, Integer> byDeliveryCount = new ConcurrentHashMap<>();
    private final AtomicLong lastSeenMs = new AtomicLong();
    private final AtomicBoolean isOver = new AtomicBoolean();

    private ShareThrottle(String servers) {
        this.servers = Map.of("bootstrap.servers", servers);
    }

    public static void main(String[] arguments) throws Exception {
        long quota = Long.parseLong(arguments[1]);
        int rounds = Integer.parseInt(arguments[2]);
        int consumers = Integer.parseInt(arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        new ShareThrottle(arguments[0]).run(quota, rounds, consumers, records);
    }

    private void run(long quota, int rounds, int consumers, int records) throws Exception {
        try (Admin admin = Admin.create(servers)) {
            admin.createTopics(List.of(new NewTopic(NAME, PARTITIONS, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, NAME);
            admin.incrementalAlterConfigs(Map.of(group, List.of(
                    set("share.auto.offset.reset", "earliest"),
                    set("share.record.lock.duration.ms", Long.toString(LOCK_MS))))).all().get();
            produce(records);
            if (quota > 0) {
                limit(admin, (double) quota);
            }
            long beganMs = System.currentTimeMillis();
            lastSeenMs.set(beganMs);
            List<Thread> threads = new ArrayList<>();
            for (int n = 0; n < consumers; n++) {
                Thread thread = new Thread(this::consume);
                thread.start();
                threads.add(thread);
            }
            for (int round = 1; round <= rounds; round++) {
                Thread.sleep(LOCK_MS);
                report("quota " + quota, beganMs, admin);
            }
            int underQuota = seen.size();
            if (quota > 0) {
                limit(admin, null);
            }
            lastSeenMs.set(System.currentTimeMillis());
            while (seen.size() < records && System.currentTimeMillis() - lastSeenMs.get() < QUIET_ROUNDS * LOCK_MS) {
                Thread.sleep(LOCK_MS / 3);
                report("no quota", beganMs, admin);
            }
            isOver.set(true);
            for (Thread thread : threads) {
                thread.join(60_000);
            }
            summarise(admin, records, underQuota);
        }
        System.exit(0);
    }

    private void consume() {
        Map<String, Object> settings = new TreeMap<>(servers);
        settings.put("group.id", NAME);
        settings.put("client.id", NAME);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(NAME));
            while (!isOver.get()) { // each poll acknowledges what the one before it returned
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    seen.merge(record.partition() + "/" + record.offset(), 1, Integer::sum);
                    byDeliveryCount.merge(record.deliveryCount().map(Short::intValue).orElse(0), 1, Integer::sum);
                    lastSeenMs.set(System.currentTimeMillis());
                }
            }
        }
    }

    private void produce(int records) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                servers, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < records; n++) {
                producer.send(new ProducerRecord<>(NAME, n % PARTITIONS, null, new byte[RECORD_BYTES]));
            }
        }
    }

    private void limit(Admin admin, Double bytesPerSecond) throws Exception {
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, NAME));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(client, List.of(
                new ClientQuotaAlteration.Op("consumer_byte_rate", bytesPerSecond))))).all().get();
    }

    private void report(String phase, long beganMs, Admin admin) throws Exception {
        long second = (System.currentTimeMillis() - beganMs) / 1000;
        System.out.printf("%d s, %s: %d seen, by delivery count %s, %d below the start offsets and never seen%n",
                second, phase, seen.size(), new TreeMap<>(byDeliveryCount), archivedUnseen(starts(admin)));
    }

    private void summarise(Admin admin, int records, int underQuota) throws Exception {
        Map<Integer, Long> starts = starts(admin);
        for (int second = 0; second < 2 * LOCK_MS / 1000 && sum(starts) < records; second++) {
            Thread.sleep(1000); // the last acknowledgements, and locks of consumers that have left
            starts = starts(admin);
        }
        long twice = seen.values().stream().filter(times -> times > 1).count();
        System.out.printf("{\"records\": %d, \"seen_under_quota\": %d, \"seen\": %d, \"seen_twice\": %d, "
                + "\"archived_unseen\": %d, \"passed_by_start_offsets\": %d, \"by_delivery_count\": {%s}}%n",
                records, underQuota, seen.size(), twice, archivedUnseen(starts),
                sum(starts), counts());
    }

    private static long sum(Map<Integer, Long> starts) {
        return starts.values().stream().mapToLong(Long::longValue).sum();
    }

    private String counts() {
        List<String> counts = new ArrayList<>();
        new TreeMap<>(byDeliveryCount).forEach((count, times) -> counts.add("\"" + count + "\": " + times));
        return String.join(", ", counts);
    }

    /** Records that the group is past, although no consumer was given them. */
    private long archivedUnseen(Map<Integer, Long> starts) {
        long unseen = 0;
        for (Map.Entry<Integer, Long> start : starts.entrySet()) {
            for (long offset = 0; offset < start.getValue(); offset++) {
                if (!seen.containsKey(start.getKey() + "/" + offset)) {
                    unseen++;
                }
            }
        }
        return unseen;
    }

    private Map<Integer, Long> starts(Admin admin) throws Exception {
        Map<Integer, Long> starts = new TreeMap<>();
        admin.listShareGroupOffsets(Map.of(NAME, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(NAME).get()
                .forEach((place, info) -> {
                    if (info != null) {
                        starts.put(place.partition(), info.startOffset());
                    }
                });
        return starts;
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}
