import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.StreamWriteFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

/**
 * The peer on Kafka Streams: processor API, one stream thread, windows in the processor.
 *
 * <p>A state store would cost it a fifth more; it is spared that, as the worker keeps its windows in memory, too.
 * Arguments: broker, topic of samples, their form (rows or columns), topic of answers, folder for its state, capacity in
 * millicores and in bytes, the part of it that may be used.
 */
public final class Peer {
    private static final int WINDOW_MS = 60_000;
    private static final int SAMPLES_MAX = 60;
    private static final int[] PERCENTILES = {50, 90, 95, 99};
    /** Jackson's fast doubles: with stock ones it loses a third of its rate. */
    private static final ObjectMapper MAPPER =
            new ObjectMapper(
                    JsonFactory.builder()
                            .enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER)
                            .enable(StreamWriteFeature.USE_FAST_DOUBLE_WRITER)
                            .build());
    private static final ObjectReader SAMPLES = MAPPER.readerFor(Sample.class);
    private static final ObjectReader COLUMNS = MAPPER.readerFor(Columns.class);
    /** In columns, before the pods' numbers. */
    private static final int NODE_NUMBERS = 6;

    private static boolean inColumns;
    private static double usableMilli;
    private static double usableBytes;

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class PodUse {
        public String uid;

        @JsonProperty("cpu_milli")
        public long cpuMilli;

        @JsonProperty("mem_bytes")
        public long memBytes;

        @JsonProperty("best_effort_group")
        public boolean bestEffort;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class NodeUse {
        @JsonProperty("cpu_milli")
        public long cpuMilli;

        @JsonProperty("mem_bytes")
        public long memBytes;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Sample {
        public String node;

        @JsonProperty("observed_ms")
        public long observedMs;

        public NodeUse use;

        @JsonProperty("pod_use")
        public PodUse[] pods;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Of {
        public String node;

        @JsonProperty("be_group")
        public String beGroup;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Pod {
        public String uid;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Columns {
        public Of of;
        public long[] now;
        public Pod[] pods;

        /** Joins the names of the node's newest keyframe to the numbers. */
        Sample sample(Pod[] listed) {
            Sample sample = new Sample();
            sample.node = of.node;
            sample.observedMs = now[1];
            sample.use = new NodeUse();
            sample.use.cpuMilli = now[3];
            sample.use.memBytes = now[4];
            sample.pods = new PodUse[listed.length];
            for (int i = 0; i < listed.length; i++) {
                PodUse use = new PodUse();
                use.uid = listed[i].uid;
                use.cpuMilli = now[NODE_NUMBERS + 2 * i];
                use.memBytes = now[NODE_NUMBERS + 2 * i + 1];
                use.bestEffort = of.beGroup.charAt(i) == '1';
                sample.pods[i] = use;
            }
            return sample;
        }
    }

    /** Of one pod over the window. */
    private static final class PodSum {
        long count;
        long cpuMilli;
        long memBytes;
    }

    /** One sample in the window, its pods with the sums that they count in. */
    private static final class Row {
        final long observedMs;
        final long cpuMilli;
        final long memBytes;
        final PodUse[] pods;
        final PodSum[] sums;

        Row(Sample sample, PodSum[] sums) {
            observedMs = sample.observedMs;
            cpuMilli = sample.use.cpuMilli;
            memBytes = sample.use.memBytes;
            pods = sample.pods;
            this.sums = sums;
        }
    }

    /** The last minute of one node. */
    private static final class Window {
        private final ArrayDeque<Row> rows = new ArrayDeque<>(SAMPLES_MAX + 1);
        private final Map<String, PodSum> pods = new HashMap<>();

        Row add(Sample sample) {
            dropBefore(sample.observedMs - WINDOW_MS);
            Row last = rows.peekLast();
            PodSum[] sums = new PodSum[sample.pods.length];
            for (int i = 0; i < sums.length; i++) {
                PodUse use = sample.pods[i];
                PodSum sum =
                        last != null && i < last.pods.length && last.pods[i].uid.equals(use.uid)
                                ? last.sums[i]
                                : pods.computeIfAbsent(use.uid, uid -> new PodSum());
                sum.count++;
                sum.cpuMilli += use.cpuMilli;
                sum.memBytes += use.memBytes;
                sums[i] = sum;
            }
            Row row = new Row(sample, sums);
            rows.addLast(row);
            return row;
        }

        private void dropBefore(long observedMs) {
            while (!rows.isEmpty() && rows.peekFirst().observedMs <= observedMs) {
                Row old = rows.pollFirst();
                for (int i = 0; i < old.sums.length; i++) {
                    PodSum sum = old.sums[i];
                    sum.cpuMilli -= old.pods[i].cpuMilli;
                    sum.memBytes -= old.pods[i].memBytes;
                    if (--sum.count == 0) {
                        pods.remove(old.pods[i].uid);
                    }
                }
            }
        }
    }

    /** Answers each sample by the window of its node. */
    private static final class Answers implements Processor<String, byte[], String, byte[]> {
        private final Map<String, Window> windows = new HashMap<>();
        private final Map<String, Pod[]> lists = new HashMap<>();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(8192);
        private final long[] ordered = new long[SAMPLES_MAX];
        private ProcessorContext<String, byte[]> context;

        @Override
        public void init(ProcessorContext<String, byte[]> itsContext) {
            context = itsContext;
        }

        @Override
        public void process(Record<String, byte[]> samples) {
            try {
                Sample sample = inColumns ? joined(samples.value()) : SAMPLES.readValue(samples.value());
                Window window = windows.computeIfAbsent(sample.node, node -> new Window());
                Row row = window.add(sample);
                context.forward(samples.withValue(answer(sample, window, row)));
            } catch (IOException refused) {
                throw new UncheckedIOException(refused);
            }
        }

        private Sample joined(byte[] body) throws IOException {
            Columns columns = COLUMNS.readValue(body);
            if (columns.pods != null) {
                lists.put(columns.of.node, columns.pods);
            }
            return columns.sample(lists.get(columns.of.node));
        }

        private byte[] answer(Sample sample, Window window, Row row) throws IOException {
            bytes.reset();
            try (JsonGenerator json = MAPPER.getFactory().createGenerator(bytes)) {
                json.writeStartObject();
                json.writeStringField("node", sample.node);
                json.writeNumberField("observed_ms", sample.observedMs);
                json.writeNumberField("samples", window.rows.size());
                int count = 0;
                for (Row one : window.rows) {
                    ordered[count++] = one.cpuMilli;
                }
                spread(json, "cpu_milli", count);
                count = 0;
                for (Row one : window.rows) {
                    ordered[count++] = one.memBytes;
                }
                spread(json, "mem_bytes", count);
                pods(json, sample, row);
                json.writeEndObject();
            }
            return bytes.toByteArray();
        }

        private void spread(JsonGenerator json, String name, int count) throws IOException {
            Arrays.sort(ordered, 0, count);
            long sum = 0;
            for (int i = 0; i < count; i++) {
                sum += ordered[i];
            }
            json.writeObjectFieldStart(name);
            json.writeNumberField("avg", (double) sum / count);
            for (int percentile : PERCENTILES) {
                int rank = Math.max(0, (percentile * count + 99) / 100 - 1);
                json.writeNumberField("p" + percentile, ordered[rank]);
            }
            json.writeEndObject();
        }

        private void pods(JsonGenerator json, Sample sample, Row row) throws IOException {
            int count = row.sums.length;
            String[] uids = new String[count];
            double[] cpuMilli = new double[count];
            double[] memBytes = new double[count];
            double othersMilli = sample.use.cpuMilli;
            double othersBytes = sample.use.memBytes;
            for (int i = 0; i < count; i++) {
                PodUse use = row.pods[i];
                PodSum sum = row.sums[i];
                uids[i] = use.uid;
                cpuMilli[i] = (double) sum.cpuMilli / sum.count;
                memBytes[i] = (double) sum.memBytes / sum.count;
                othersMilli += (use.bestEffort ? 0 : cpuMilli[i]) - use.cpuMilli;
                othersBytes += (use.bestEffort ? 0 : memBytes[i]) - use.memBytes;
            }
            json.writeObjectFieldStart("pods");
            json.writeFieldName("uid");
            json.writeArray(uids, 0, count);
            json.writeFieldName("cpu_milli");
            json.writeArray(cpuMilli, 0, count);
            json.writeFieldName("mem_bytes");
            json.writeArray(memBytes, 0, count);
            json.writeEndObject();
            json.writeObjectFieldStart("batch");
            json.writeNumberField("cpu_milli", Math.max(0, usableMilli - othersMilli));
            json.writeNumberField("mem_bytes", Math.max(0, usableBytes - othersBytes));
            json.writeEndObject();
        }
    }

    private static Properties settings(String broker, String application, String folder) {
        Properties settings = new Properties();
        settings.put("application.id", application);
        settings.put("bootstrap.servers", broker);
        settings.put("state.dir", folder);
        settings.put("num.stream.threads", 1);
        settings.put("commit.interval.ms", 1_000);
        settings.put("buffered.records.per.partition", 10_000);
        settings.put("input.buffer.max.bytes", 256L << 20);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.max.poll.records", 4_000);
        settings.put("consumer.max.partition.fetch.bytes", 4 << 20);
        settings.put("consumer.fetch.max.bytes", 32 << 20);
        settings.put("producer.linger.ms", 20);
        settings.put("producer.batch.size", 1 << 19);
        settings.put("producer.buffer.memory", 128 << 20);
        settings.put("producer.acks", "1");
        return settings;
    }

    public static void main(String[] arguments) {
        String samples = arguments[1];
        inColumns = arguments[2].equals("columns");
        String answers = arguments[3];
        double part = Double.parseDouble(arguments[7]);
        usableMilli = Double.parseDouble(arguments[5]) * part;
        usableBytes = Double.parseDouble(arguments[6]) * part;
        Topology topology = new Topology();
        topology.addSource("samples", Serdes.String().deserializer(), Serdes.ByteArray().deserializer(), samples);
        topology.addProcessor("window", Answers::new, "samples");
        topology.addSink("answers", answers, Serdes.String().serializer(), Serdes.ByteArray().serializer(), "window");
        KafkaStreams streams = new KafkaStreams(topology, settings(arguments[0], answers, arguments[4]));
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                    return null;
                });
        streams.start();
    }

    private Peer() {}
}
