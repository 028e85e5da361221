package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ErrRedis says that a Redis server answered something else than that a value is stored and a replica has it.
var ErrRedis = errors.New("redis: unexpected answer")

// RedisOptions say how a Redis master with a replica is loaded.
type RedisOptions struct {
	Addr             string
	Label            string
	Size             int // bytes of a value
	Warmup, Duration time.Duration
	Watch            []Watched
}

const (
	redisKeys    = 1 << 16 // values are written over, so that the server's memory stays bounded
	redisAnswer  = "+OK\r\n:1\r\n"
	redisReplied = "+OK\r\n:"
	redisBatch   = 1024 // keys removed by one command
)

// RedisPrefix begins every key that is written.
const RedisPrefix = "tandem-bench:"

// Redis stores values one after the other, each as SET key value and WAIT 1 0 in one write: the answer comes when a replica has the
// value. The keys begin with RedisPrefix and are removed at the end. It goes through Go's network just as [Ping] does, and reports as Send does.
func Redis(ctx context.Context, o RedisOptions) (SendReport, error) {
	r := redisRequest(o.Size, 0)
	serial := uint32(0)
	rep, err := exchange(ctx, exchangeOptions{addr: o.Addr, label: o.Label, size: o.Size, warmup: o.Warmup, duration: o.Duration, watch: o.Watch},
		func(c net.Conn) error {
			serial++
			putHex(r.key, serial%redisKeys)
			return r.roundTrip(c)
		})
	if cleanErr := removeKeys(o.Addr, min(int(serial)+1, redisKeys)); err == nil {
		err = cleanErr
	}
	return rep, err
}

// removeKeys removes the first n keys, over a connection of its own: a run that was stopped has lost its own.
func removeKeys(addr string, n int) error {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return fmt.Errorf("redis: remove keys: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return fmt.Errorf("redis: remove keys: %w", err)
	}
	answers := bufio.NewReader(c)
	for k := 0; k < n; {
		words := []string{"UNLINK"}
		for ; k < n && len(words) <= redisBatch; k++ {
			words = append(words, fmt.Sprintf("%s%08X", RedisPrefix, k))
		}
		if _, err := c.Write(redisCommand(nil, words...)); err != nil {
			return fmt.Errorf("redis: remove keys: %w", err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return fmt.Errorf("redis: remove keys: %w", err)
		}
		if answer[0] != ':' {
			return fmt.Errorf("%w: UNLINK: %q", ErrRedis, answer)
		}
	}
	return nil
}

// ReplicaOf tries a Redis master once: its error says that no replica has a value within the time.
func ReplicaOf(ctx context.Context, addr string, limit time.Duration) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit + dialTimeout)); err != nil {
		return err
	}
	return redisRequest(1, limit).roundTrip(c)
}

// redisCommands is a SET and a WAIT as they go over the wire.
type redisCommands struct {
	bytes  []byte
	key    []byte // its number, within bytes
	answer []byte
}

// redisRequest waits for one replica, no longer than limit; 0 is forever.
func redisRequest(size int, limit time.Duration) *redisCommands {
	r := &redisCommands{answer: make([]byte, len(redisAnswer))}
	const number = "00000000"
	out := redisCommand(nil, "SET", RedisPrefix+number, string(payload(size)))
	at := bytes.Index(out, []byte(number))
	r.bytes = redisCommand(out, "WAIT", "1", strconv.FormatInt(limit.Milliseconds(), 10))
	r.key = r.bytes[at : at+len(number)]
	return r
}

func redisCommand(dst []byte, words ...string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(words))
	for _, w := range words {
		dst = fmt.Appendf(dst, "$%d\r\n%s\r\n", len(w), w)
	}
	return dst
}

func (r *redisCommands) roundTrip(c net.Conn) error {
	if _, err := c.Write(r.bytes); err != nil {
		return err
	}
	n, err := io.ReadFull(c, r.answer)
	if n > 0 && !r.stored(r.answer[:n]) {
		return fmt.Errorf("%w: %q", ErrRedis, r.answer[:n])
	}
	return err
}

// stored tells whether the answer says that one replica or more, up to nine, have the value.
func (r *redisCommands) stored(b []byte) bool {
	digit := len(redisReplied)
	return len(b) == len(redisAnswer) && string(b[:digit]) == redisReplied && b[digit] >= '1' && b[digit] <= '9' && string(b[digit+1:]) == "\r\n"
}
