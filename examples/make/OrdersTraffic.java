// Three days of a small shop, sent to a real broker: the traffic behind examples/orders-store.tar.gz.
//   java OrdersTraffic <name server> <broker address>
// The seed is fixed, so every run sends the same orders; only times, message ids and the order of some offsets differ.

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class OrdersTraffic {
    static final int DAYS = 3;
    static final int ORDERS = 1700;
    static final int ORDER_QUEUES = 4;
    static final long MINUTE_MS = 60_000L;
    static final long DAY_MS = 24 * 60 * MINUTE_MS;
    static final String[] CITIES = {"Lisbon", "Köln", "Łódź", "東京", "Montréal", "Oslo", "São Paulo"};
    static final String[] METHODS = {"card", "card", "card", "transfer", "wallet"};

    final Random random = new Random(1017);
    final String nameServer;
    final String broker;
    final long firstDayMs = Instant.now().truncatedTo(ChronoUnit.DAYS).toEpochMilli() - DAYS * DAY_MS;
    long bornMs;   // of the message being sent: the shop's outbox replays what happened on the days before

    OrdersTraffic(String nameServer, String broker) {
        this.nameServer = nameServer;
        this.broker = broker;
    }

    /** One message of the shop, at the time when it happened. */
    static final class Event {
        final long atMs;
        final String topic, tag, key, body;
        final Map<String, String> properties = new HashMap<>();

        Event(long atMs, String topic, String tag, String key, String body) {
            this.atMs = atMs;
            this.topic = topic;
            this.tag = tag;
            this.key = key;
            this.body = body;
        }

        Event with(String name, String value) {
            properties.put(name, value);
            return this;
        }
    }

    static String json(Object... namesAndValues) {
        StringBuilder text = new StringBuilder("{");
        for (int i = 0; i < namesAndValues.length; i += 2) {
            Object value = namesAndValues[i + 1];
            text.append(i == 0 ? "" : ",").append('"').append(namesAndValues[i]).append("\":");
            text.append(value instanceof Number ? value.toString() : "\"" + value + "\"");
        }
        return text.append("}").toString();
    }

    long minutes(int from, int to) {
        return (from + random.nextInt(to - from)) * MINUTE_MS + random.nextInt(60_000);
    }

    void addOrder(List<Event> events, int number) {
        String order = "o-" + (1001 + number);
        String customer = "c-" + (1 + random.nextInt(400));
        int items = 1 + random.nextInt(5);
        int cents = items * (499 + random.nextInt(4500));
        String city = CITIES[random.nextInt(CITIES.length)];
        long at = firstDayMs + (long) (random.nextDouble() * (DAYS - 0.6) * DAY_MS);
        events.add(new Event(at, "orders", "created", order, json("order", order, "event", "created", "customer", customer,
            "items", items, "amount_cents", cents, "currency", "EUR", "city", city, "at", Instant.ofEpochMilli(at)))
            .with("channel", random.nextInt(3) == 0 ? "app" : "web"));
        if (random.nextInt(8) == 0) {
            long cancelled = at + minutes(2, 180);
            events.add(new Event(cancelled, "orders", "cancelled", order, json("order", order, "event", "cancelled",
                "reason", random.nextBoolean() ? "customer" : "timeout", "at", Instant.ofEpochMilli(cancelled))));
            return;
        }
        String method = METHODS[random.nextInt(METHODS.length)];
        boolean refused = number % 340 == 17;   // the ledger cannot book these: they end in its dead-letter queue
        long paid = at + minutes(1, 90);
        events.add(new Event(paid, "orders", "paid", order, json("order", order, "event", "paid", "method", method,
            "amount_cents", cents, "currency", "EUR", "at", Instant.ofEpochMilli(paid))));
        events.add(new Event(paid + 40 + random.nextInt(900), "payments", method, order, json("payment", "p-" + (50_001 + number),
            "order", order, "amount_cents", refused ? 0 : cents, "currency", "EUR", "at", Instant.ofEpochMilli(paid))));
        if (random.nextInt(12) != 0) {
            long shipped = paid + minutes(60, 600);
            events.add(new Event(shipped, "orders", "shipped", order, json("order", order, "event", "shipped",
                "parcel", "PX" + (700_000_000L + number * 37L), "city", city, "at", Instant.ofEpochMilli(shipped)))
                .with("warehouse", "w" + (1 + random.nextInt(3))));
        }
    }

    void addAudit(List<Event> events) {
        for (int i = 0; i < 1200; i++) {
            long at = firstDayMs + (long) (random.nextDouble() * DAYS * DAY_MS);
            String user = "u-" + (1 + random.nextInt(60));
            boolean failed = random.nextInt(15) == 0;
            events.add(new Event(at, "audit", failed ? "login_failed" : "login", user,
                json("user", user, "ip", "203.0.113." + random.nextInt(255), "at", Instant.ofEpochMilli(at))));
        }
        for (int day = 0; day < DAYS; day++) {   // larger than 4 KiB: the client compresses them
            StringBuilder lines = new StringBuilder("sku,stock\n");
            for (int sku = 0; sku < 1500; sku++) {
                lines.append("sku-").append(String.format(Locale.ROOT, "%05d", sku)).append(',').append(random.nextInt(90)).append('\n');
            }
            events.add(new Event(firstDayMs + (day + 1) * DAY_MS - MINUTE_MS, "audit", "stock_report", "report-" + day, lines.toString()));
        }
    }

    DefaultMQProducer startProducer() throws Exception {
        RPCHook stampBornTime = new RPCHook() {   // the client library would stamp the time of sending
            @Override public void doBeforeRequest(String address, RemotingCommand request) {
                if (bornMs > 0 && request.readCustomHeader() instanceof SendMessageRequestHeaderV2) {
                    ((SendMessageRequestHeaderV2) request.readCustomHeader()).setG(bornMs);
                }
            }
            @Override public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) { }
        };
        DefaultMQProducer producer = new DefaultMQProducer("shop", stampBornTime);
        producer.setNamesrvAddr(nameServer);
        producer.setCompressMsgBodyOverHowmuch(4096);
        producer.start();
        return producer;
    }

    void createTopics(DefaultMQAdminExt admin, DefaultMQProducer producer) throws Exception {
        Map<String, Integer> queues = Map.of("orders", ORDER_QUEUES, "payments", 2, "audit", 1, "reminders", 1);
        for (Map.Entry<String, Integer> entry : queues.entrySet()) {
            TopicConfig topic = new TopicConfig(entry.getKey(), entry.getValue(), entry.getValue(), 6);
            topic.getAttributes().put("+message.type", entry.getKey().equals("reminders") ? "DELAY" : "NORMAL");
            admin.createAndUpdateTopicConfig(broker, topic);
        }
        for (String group : new String[] {"shipping", "billing", "analytics", "ledger"}) {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(group);
            admin.createAndUpdateSubscriptionGroupConfig(broker, config);
        }
        for (String topic : queues.keySet()) {
            for (int tries = 0; ; tries++) {
                try {
                    if (!producer.fetchPublishMessageQueues(topic).isEmpty()) break;
                } catch (Exception notKnownYet) {
                    if (tries > 60) throw notKnownYet;
                }
                Thread.sleep(500);
            }
        }
    }

    void send(DefaultMQProducer producer, List<Event> events) throws Exception {
        for (Event event : events) {
            Message message = new Message(event.topic, event.tag, event.key, event.body.getBytes(StandardCharsets.UTF_8));
            event.properties.forEach(message::putUserProperty);
            bornMs = event.atMs;
            producer.send(message, (queues, sent, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size())), event.key);
        }
        bornMs = 0;
        for (int i = 0; i < 12; i++) {   // eight are delivered within seconds, four are still waiting when the broker stops
            Message reminder = new Message("reminders", "unpaid", "o-" + (1040 + 7 * i),
                json("order", "o-" + (1040 + 7 * i), "text", "your basket is waiting").getBytes(StandardCharsets.UTF_8));
            reminder.setDelayTimeLevel(i < 4 ? 1 : i < 8 ? 2 : 18);   // 1 s, 5 s, 2 h
            producer.send(reminder);
        }
    }

    DefaultMQPushConsumer startConsumer(String group, String topic, AtomicInteger seen) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.incrementAndGet();
                if (new String(message.getBody(), StandardCharsets.UTF_8).contains("\"amount_cents\":0,")) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    void consumeInPart(String group, double... shares) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues("orders")) {
            long next = (long) (consumer.maxOffset(queue) * shares[queue.getQueueId()]);
            consumer.updateConsumeOffset(queue, next);
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, next, false);
        }
        consumer.shutdown();
    }

    void run() throws Exception {
        List<Event> events = new ArrayList<>();
        for (int i = 0; i < ORDERS; i++) addOrder(events, i);
        addAudit(events);
        events.sort(Comparator.comparingLong((Event event) -> event.atMs));

        DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin");
        admin.start();
        DefaultMQProducer producer = startProducer();
        createTopics(admin, producer);
        send(producer, events);

        AtomicInteger shipped = new AtomicInteger();
        AtomicInteger booked = new AtomicInteger();
        DefaultMQPushConsumer shipping = startConsumer("shipping", "orders", shipped);
        DefaultMQPushConsumer ledger = startConsumer("ledger", "payments", booked);
        consumeInPart("billing", 0.75, 0.70, 0.80, 0.40);
        consumeInPart("analytics", 0.10, 0.10, 0.00, 0.05);
        Thread.sleep(30_000);   // the ledger's one retry comes after 10 s, then the dead-letter queue
        shipping.shutdown();
        ledger.shutdown();
        producer.shutdown();
        admin.shutdown();
        System.out.println("sent " + (events.size() + 12) + ", shipping consumed " + shipped + ", ledger " + booked);
    }

    public static void main(String[] arguments) throws Exception {
        new OrdersTraffic(arguments[0], arguments[1]).run();
        System.exit(0);
    }
}
