package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// runHelper is the test binary in another part: a small client program on the Go client, with the same arguments and the same
// output as the Java programs. A process of its own can be stopped and left behind; a client inside the test could not.
func runHelper(role string, args []string) int {
	rlog.SetLogLevel("error")
	values := map[string]string{"group": "interop-go", "count": "1", "size": "100", "seconds": "60"}
	for _, a := range args {
		if k, v, ok := strings.Cut(a, "="); ok {
			values[k] = v
		}
	}
	run := map[string]func(map[string]string) error{"Produce": goProduce, "Consume": goConsume, "Trace": trace}[role]
	if run == nil {
		fmt.Fprintf(os.Stderr, "no helper program %q\n", role)
		return 2
	}
	if err := run(values); err != nil {
		printLine(map[string]any{"status": "ERROR", "error": err.Error()})
		return 1
	}
	return 0
}

var printing sync.Mutex

func printLine(v map[string]any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(text))
}

func goProduce(args map[string]string) error {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{args["namesrv"]}), producer.WithGroupName(args["group"]),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	count, _ := strconv.Atoi(args["count"])
	size, _ := strconv.Atoi(args["size"])
	r := newRand(int64(os.Getpid()))
	stored := 0
	for i := range count {
		b := body(r, size)
		m := primitive.NewMessage(args["topic"], b).WithTag("TagA").WithKeys([]string{"key-" + strconv.Itoa(i)})
		res, err := p.SendSync(context.Background(), m)
		if err != nil {
			printLine(map[string]any{"status": "ERROR", "error": err.Error()})
			continue
		}
		stored++
		printLine(map[string]any{"status": goStatus(res.Status), "msgId": res.MsgID, "offsetMsgId": res.OffsetMsgID, "queueId": res.MessageQueue.QueueId,
			"queueOffset": res.QueueOffset, "crc": crc32.ChecksumIEEE(b), "size": size})
	}
	printLine(map[string]any{"done": true, "stored": stored})
	return p.Shutdown()
}

// goStatus is the Java client's word for the Go client's status.
func goStatus(s primitive.SendStatus) string {
	if s == primitive.SendOK {
		return "SEND_OK"
	}
	return fmt.Sprintf("status %d", s)
}

func goConsume(args map[string]string) error {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{args["namesrv"]}), consumer.WithGroupName(args["group"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	want, _ := strconv.Atoi(args["count"])
	seconds, _ := strconv.Atoi(args["seconds"])
	complete := make(chan struct{})
	var mu sync.Mutex
	seen := map[string]bool{}
	take := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range batch {
			seen[m.MsgId] = true
			printLine(map[string]any{"msgId": m.MsgId, "queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset,
				"crc": crc32.ChecksumIEEE(m.Body), "size": len(m.Body), "storeHost": m.StoreHost, "logOffset": m.CommitLogOffset,
				"tags": m.GetTags(), "keys": m.GetKeys(), "reconsumed": m.ReconsumeTimes})
			if len(seen) == want {
				want = -1
				close(complete)
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(args["topic"], consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, take); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	printLine(map[string]any{"ready": true})
	select {
	case <-complete:
	case <-time.After(time.Duration(seconds) * time.Second):
	}
	mu.Lock()
	distinct := len(seen)
	mu.Unlock()
	err = c.Shutdown()
	printLine(map[string]any{"done": true, "distinct": distinct})
	return err
}
