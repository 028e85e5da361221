import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends count messages one after the other and prints one line for each: the send status with where it was stored,
 * or the error. namesrv, topic; group, count, size (bytes), tags, keys (prefix), timeout (ms), seed.
 */
public final class Produce {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        String topic = args.text("topic");
        int count = args.number("count", 1);
        int size = args.number("size", 100);
        String tags = args.text("tags", "TagA");
        String keys = args.text("keys", "key");
        Random random = new Random(args.number("seed", 1));

        DefaultMQProducer producer = new DefaultMQProducer(args.text("group", "interop-producer"));
        producer.setNamesrvAddr(args.text("namesrv"));
        producer.setInstanceName("produce-" + ProcessHandle.current().pid());
        producer.setSendMsgTimeout(args.number("timeout", 10000));
        producer.setRetryTimesWhenSendFailed(args.number("retries", 2));
        producer.start();
        int stored = 0;
        for (int i = 0; i < count; i++) {
            byte[] body = new byte[size];
            random.nextBytes(body);
            try {
                SendResult r = producer.send(new Message(topic, tags, keys + "-" + i, body));
                stored++;
                Args.print("status", r.getSendStatus(), "msgId", r.getMsgId(), "offsetMsgId", r.getOffsetMsgId(),
                    "broker", r.getMessageQueue().getBrokerName(), "queueId", r.getMessageQueue().getQueueId(),
                    "queueOffset", r.getQueueOffset(), "crc", Args.checksum(body), "size", size);
            } catch (Exception e) {
                Args.print("status", "ERROR", "error", e.toString());
            }
        }
        Args.print("done", true, "stored", stored);
        producer.shutdown();
        System.exit(0);
    }
}
