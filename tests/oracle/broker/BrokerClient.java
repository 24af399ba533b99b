// A client of a name server and a broker, for tests that drive it: one JSON request a line on stdin, one JSON reply a line on stdout.
//   java BrokerClient <nameserver> <brokerAddr> <brokerName>
// Replies are {"ok": ...} or {"error": "..."}.  What consumers got and what checks asked is collected; `events` hands it out.
//   topic    name, queues                          creates or changes a topic
//   group    name, retryQueues, maxTimes           the same for a consumer group
//   routes   topics                                which of the topics have queues, by the name server
//   producer group, topic                          a transaction producer; checks are answered by the user property `fate`
//                                                  (commit, rollback; else unknown)
//   send     messages: [{topic, queueId?, tags?, keys?, body (base64), properties?, delay?, fate?}], group (of transactions)
//                                                  with `fate` as a transaction, left open if `fate` begins with "check-"
//   consume  group, topic, tags, maxTimes          a push consumer; answers "later" while reconsumeTimes < user property `fails`
//   stop     name                                  ends the consumer or producer of a group
//   pull     topic, queueId                        all messages of a queue
//   drain    address, topic, queueId               the same from the broker that answers at an address, whether master or slave
//   events   from                                  events from that number on
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.impl.*;
import org.apache.rocketmq.client.impl.consumer.PullAPIWrapper;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class BrokerClient {
    static String nameServer, address, brokerName;
    static final List<Map<String, Object>> events = Collections.synchronizedList(new ArrayList<>());
    static final Map<String, TransactionMQProducer> producers = new HashMap<>();
    static final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    static DefaultMQProducer plain;
    static DefaultMQAdminExt admin;
    static DefaultMQPullConsumer puller;

    static <T extends ClientConfig> T quick(T client, String instance) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(instance);
        client.setPollNameServerInterval(500);
        client.setHeartbeatBrokerInterval(500);
        client.setPersistConsumerOffsetInterval(200);
        return client;
    }

    static Map<String, Object> told(MessageExt m) {
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("topic", m.getTopic());
        o.put("queueId", m.getQueueId());
        o.put("queueOffset", m.getQueueOffset());
        o.put("physicalOffset", m.getCommitLogOffset());
        o.put("msgId", m.getMsgId());
        o.put("reconsumeTimes", m.getReconsumeTimes());
        o.put("bornTimestamp", m.getBornTimestamp());
        o.put("storeTimestamp", m.getStoreTimestamp());
        o.put("preparedTransactionOffset", m.getPreparedTransactionOffset());
        o.put("flag", m.getFlag());
        o.put("sysFlag", m.getSysFlag());
        Map<String, String> properties = new TreeMap<>(m.getProperties());
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        o.put("properties", properties);
        o.put("body", Base64.getEncoder().encodeToString(m.getBody() == null ? new byte[0] : m.getBody()));
        o.put("atMs", System.currentTimeMillis());
        return o;
    }

    static TransactionMQProducer producer(String group, String topic) throws Exception {
        TransactionMQProducer p = quick(new TransactionMQProducer(group), "producer-" + group);
        p.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object fate) { return state((String) fate); }
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                String fate = String.valueOf(m.getUserProperty("fate")).replace("check-", "");
                Map<String, Object> o = told(m);
                o.put("event", "check");
                o.put("group", group);
                o.put("answer", fate);
                events.add(o);
                return state(fate);
            }
        });
        p.setTopics(List.of(topic));                      // a broker gets no heartbeats before a route leads to it
        p.start();
        return p;
    }

    static LocalTransactionState state(String fate) {
        return "commit".equals(fate) ? LocalTransactionState.COMMIT_MESSAGE
            : "rollback".equals(fate) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    static DefaultMQPushConsumer consumer(String group, String topic, String tags, int maxTimes) throws Exception {
        DefaultMQPushConsumer c = quick(new DefaultMQPushConsumer(group), "consumer-" + group);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setMaxReconsumeTimes(maxTimes);
        c.setConsumeThreadMin(1);
        c.setConsumeThreadMax(2);
        c.setAwaitTerminationMillisWhenShutdown(30000);  // what is under way is sent back and committed
        c.subscribe(topic, tags);
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean later = false;
            for (MessageExt m : messages) {
                String fails = m.getUserProperty("fails");
                boolean fail = fails != null && m.getReconsumeTimes() < Integer.parseInt(fails);
                Map<String, Object> o = told(m);
                o.put("event", "consume");
                o.put("group", group);
                o.put("answer", fail ? "later" : "success");
                events.add(o);
                later |= fail;
            }
            return later ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return c;
    }

    static Object send(JSONArray messages, String group) throws Exception {
        List<Object> replies = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            JSONObject j = messages.getJSONObject(i);
            Message m = new Message(j.getString("topic"), Base64.getDecoder().decode(j.getString("body")));
            if (j.getString("tags") != null) m.setTags(j.getString("tags"));
            if (j.getString("keys") != null) m.setKeys(j.getString("keys"));
            JSONObject properties = j.getJSONObject("properties");
            if (properties != null) for (String name : properties.keySet()) m.putUserProperty(name, properties.getString(name));
            if (j.getInteger("delay") != null) m.setDelayTimeLevel(j.getIntValue("delay"));
            SendResult r;
            if (j.getString("fate") != null) {
                m.putUserProperty("fate", j.getString("fate"));
                r = producers.get(group).sendMessageInTransaction(m, j.getString("fate"));
            } else if (j.getInteger("queueId") != null) r = plain.send(m, new MessageQueue(m.getTopic(), brokerName, j.getIntValue("queueId")));
            else r = plain.send(m);
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("status", r.getSendStatus().name());
            o.put("queueId", r.getMessageQueue().getQueueId());
            o.put("queueOffset", r.getQueueOffset());
            o.put("msgId", r.getMsgId());
            o.put("offsetMsgId", r.getOffsetMsgId());
            o.put("ackMs", System.currentTimeMillis());
            replies.add(o);
        }
        return replies;
    }

    static Object pull(String topic, int queueId) throws Exception {
        MessageQueue queue = new MessageQueue(topic, brokerName, queueId);
        List<Object> found = new ArrayList<>();
        long offset = puller.minOffset(queue), max = puller.maxOffset(queue);
        while (offset < max) {
            PullResult r = puller.pull(queue, "*", offset, 32, 10000);
            if (r.getMsgFoundList() != null) for (MessageExt m : r.getMsgFoundList()) found.add(told(m));
            if (r.getNextBeginOffset() <= offset) throw new IOException(queue + " stops at " + offset + ": " + r);
            offset = r.getNextBeginOffset();
        }
        return found;
    }

    static Object drain(String broker, String topic, int queueId) throws Exception {
        MessageQueue queue = new MessageQueue(topic, brokerName, queueId);
        SubscriptionData all = new SubscriptionData(topic, "*");
        PullAPIWrapper wrapper = puller.getDefaultMQPullConsumerImpl().getPullAPIWrapper();
        MQClientAPIImpl api = puller.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl();
        List<Object> found = new ArrayList<>();
        for (long offset = 0; ; ) {
            PullMessageRequestHeader h = new PullMessageRequestHeader();
            h.setConsumerGroup("g_drain");
            h.setTopic(topic);
            h.setQueueId(queueId);
            h.setQueueOffset(offset);
            h.setMaxMsgNums(32);
            h.setSysFlag(PullSysFlag.buildSysFlag(false, false, true, false));
            h.setCommitOffset(0L);
            h.setSuspendTimeoutMillis(0L);
            h.setSubscription("*");
            h.setSubVersion(0L);
            PullResult r = wrapper.processPullResult(queue, api.pullMessage(broker, h, 10000, CommunicationMode.SYNC, null), all);
            if (r.getPullStatus() == PullStatus.NO_NEW_MSG) return found;
            if (r.getPullStatus() != PullStatus.FOUND) throw new IOException(queue + " at " + offset + ": " + r);
            for (MessageExt m : r.getMsgFoundList()) found.add(told(m));
            offset = r.getNextBeginOffset();
        }
    }

    static Object answer(JSONObject j) throws Exception {
        switch (j.getString("op")) {
            case "topic": {
                TopicConfig t = new TopicConfig(j.getString("name"));
                t.setReadQueueNums(j.getIntValue("queues"));
                t.setWriteQueueNums(j.getIntValue("queues"));
                admin.createAndUpdateTopicConfig(address, t);
                return true;
            }
            case "group": {
                SubscriptionGroupConfig g = new SubscriptionGroupConfig();
                g.setGroupName(j.getString("name"));
                g.setRetryQueueNums(j.getIntValue("retryQueues"));
                g.setRetryMaxTimes(j.getIntValue("maxTimes"));
                admin.createAndUpdateSubscriptionGroupConfig(address, g);
                return true;
            }
            case "routes": {
                List<String> known = new ArrayList<>();
                for (Object topic : j.getJSONArray("topics")) {
                    try {
                        if (!plain.fetchPublishMessageQueues((String) topic).isEmpty()) known.add((String) topic);
                    } catch (Exception none) { /* not yet */ }
                }
                return known;
            }
            case "producer": producers.put(j.getString("group"), producer(j.getString("group"), j.getString("topic"))); return true;
            case "send": return send(j.getJSONArray("messages"), j.getString("group"));
            case "consume": {
                consumers.put(j.getString("group"), consumer(j.getString("group"), j.getString("topic"), j.getString("tags"), j.getIntValue("maxTimes")));
                return true;
            }
            case "stop": {
                TransactionMQProducer p = producers.remove(j.getString("name"));
                DefaultMQPushConsumer c = consumers.remove(j.getString("name"));
                if (p != null) p.shutdown();
                if (c != null) c.shutdown();
                return p != null || c != null;
            }
            case "pull": return pull(j.getString("topic"), j.getIntValue("queueId"));
            case "drain": return drain(j.getString("address"), j.getString("topic"), j.getIntValue("queueId"));
            case "events": synchronized (events) { return new ArrayList<>(events.subList(j.getIntValue("from"), events.size())); }
            default: throw new IllegalArgumentException(j.getString("op"));
        }
    }

    public static void main(String[] x) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);                       // what libraries print is no reply
        nameServer = x[0];
        address = x[1];
        brokerName = x[2];
        plain = quick(new DefaultMQProducer("plain"), "plain");
        plain.setRetryTimesWhenSendFailed(0);
        plain.setSendMsgTimeout(10000);
        plain.start();
        admin = quick(new DefaultMQAdminExt(20000), "admin");
        admin.start();
        puller = quick(new DefaultMQPullConsumer("g_puller"), "puller");
        puller.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, Object> reply = new HashMap<>();
            try {
                reply.put("ok", answer(JSON.parseObject(line)));
            } catch (Throwable t) {
                t.printStackTrace();
                reply.put("error", t.toString());
            }
            out.println(JSON.toJSONString(reply, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect));
            out.flush();
        }
        Runtime.getRuntime().halt(0);                    // offsets that were to be persisted are: by `stop`
    }
}
