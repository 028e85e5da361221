import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic and prints one line for each delivery, until count different messages came or seconds are over.
 * namesrv, topic, group, count; seconds, mode (push or lite), sub (tag expression), poll (route refresh in ms).
 */
public final class Consume {
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final int count;
    private final CountDownLatch complete = new CountDownLatch(1);

    private Consume(int count) {
        this.count = count;
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        Consume c = new Consume(args.number("count", 1));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(args.number("seconds", 60));
        if (args.text("mode", "push").equals("lite")) {
            c.pull(args, deadline);
        } else {
            c.listen(args, deadline);
        }
        Args.print("done", true, "distinct", c.seen.size());
        System.exit(0);
    }

    private void listen(Args args, long deadline) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.text("group"));
        consumer.setNamesrvAddr(args.text("namesrv"));
        consumer.setInstanceName("consume-" + ProcessHandle.current().pid());
        consumer.setPollNameServerInterval(args.number("poll", 30000));
        consumer.setMqClientApiTimeout(20000); // routes and offsets, on a busy machine
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args.text("topic"), args.text("sub", "*"));
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            take(batch);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Args.print("ready", true);
        complete.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
        consumer.shutdown();
    }

    private void pull(Args args, long deadline) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.text("group"));
        consumer.setNamesrvAddr(args.text("namesrv"));
        consumer.setInstanceName("pull-" + ProcessHandle.current().pid());
        consumer.setMqClientApiTimeout(20000);
        consumer.setPollNameServerInterval(args.number("poll", 30000));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args.text("topic"), args.text("sub", "*"));
        consumer.start();
        Args.print("ready", true);
        while (complete.getCount() > 0 && System.nanoTime() < deadline) {
            take(consumer.poll(500));
        }
        consumer.shutdown();
    }

    private void take(List<MessageExt> batch) {
        for (MessageExt m : batch) {
            seen.add(m.getMsgId());
            Args.print("msgId", m.getMsgId(), "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(),
                "crc", Args.checksum(m.getBody()), "size", m.getBody().length, "storeHost", m.getStoreHost(),
                "logOffset", m.getCommitLogOffset(), "tags", m.getTags(), "keys", m.getKeys(),
                "reconsumed", m.getReconsumeTimes());
        }
        if (seen.size() >= count) {
            complete.countDown();
        }
    }
}
