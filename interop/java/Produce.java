import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends count messages one after the other, or batch of them at once, and prints one line for each: the send status with
 * where it was stored, or the error. namesrv, topic; group, count, batch, size (bytes), tags, keys (prefix), timeout (ms).
 */
public final class Produce {
    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        String topic = args.text("topic");
        int count = args.number("count", 1);
        int size = args.number("size", 100);
        String tags = args.text("tags", "TagA");
        String keys = args.text("keys", "key");
        Random random = new Random();

        DefaultMQProducer producer = new DefaultMQProducer(args.text("group", "interop-producer"));
        producer.setNamesrvAddr(args.text("namesrv"));
        producer.setInstanceName("produce-" + ProcessHandle.current().pid());
        producer.setSendMsgTimeout(args.number("timeout", 10000));
        producer.setRetryTimesWhenSendFailed(args.number("retries", 2));
        producer.setMqClientApiTimeout(20000); // routes, on a busy machine
        producer.start();
        int stored = 0;
        int batch = args.number("batch", 1);
        for (int i = 0; i < count; i += batch) {
            List<Message> messages = new ArrayList<>();
            for (int j = i; j < Math.min(count, i + batch); j++) {
                byte[] body = new byte[size];
                random.nextBytes(body);
                messages.add(new Message(topic, tags, keys + "-" + j, body));
            }
            try {
                SendResult r = batch > 1 ? producer.send(messages) : producer.send(messages.get(0));
                stored += messages.size();
                print(r, messages);
            } catch (Exception e) {
                Args.print("status", "ERROR", "error", e.toString());
            }
        }
        Args.print("done", true, "stored", stored);
        producer.shutdown();
        System.exit(0);
    }

    /** A batch's result names the ids of its messages with commas between them. */
    private static void print(SendResult r, List<Message> messages) {
        String[] ids = r.getMsgId().split(",");
        for (int i = 0; i < messages.size(); i++) {
            byte[] body = messages.get(i).getBody();
            Args.print("status", r.getSendStatus(), "msgId", ids[i], "offsetMsgId", r.getOffsetMsgId(),
                "broker", r.getMessageQueue().getBrokerName(), "queueId", r.getMessageQueue().getQueueId(),
                "queueOffset", r.getQueueOffset(), "crc", Args.checksum(body), "size", body.length);
        }
    }
}
