package nameserver

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"tandem/codec"
)

const (
	// versionWithFilters is the request version (V3_0_11) since which a
	// registration carries filter servers beside the topics.
	versionWithFilters int32 = 37

	// maxRegisterBody bounds what a compressed registration may unfold to.
	maxRegisterBody = 64 << 20

	zlibMethod = 0x78 // first byte of a zlib stream with RocketMQ's window
)

var errBodyChecksum = errors.New("the body's CRC-32 is not the one in the header: bodyCrc32 does not match")

// checkBody holds the body against the sender's CRC-32, of which RocketMQ
// drops the top bit; 0 is no check.
func checkBody(body []byte, want uint32) error {
	if got := crc32.ChecksumIEEE(body) & 0x7FFFFFFF; want != 0 && got != want {
		return fmt.Errorf("%w (%d, not %d)", errBodyChecksum, got, want)
	}
	return nil
}

// decodeRegisterBody reads topics and filter servers of a registration made by
// a broker of the given version. An absent body is an empty table.
func decodeRegisterBody(body []byte, version int32, compressed bool) (codec.RegisterBrokerBody, error) {
	var b codec.RegisterBrokerBody
	switch {
	case len(body) == 0:
		return b, nil
	case version < versionWithFilters:
		err := codec.Unmarshal(body, &b.TopicConfigSerializeWrapper)
		return b, err
	case compressed || isZlib(body):
		return decodeCompressed(body, maxRegisterBody)
	default:
		err := codec.Unmarshal(body, &b)
		return b, err
	}
}

// isZlib recognises a zlib header: brokers since 5.0 say "compressed=false" even
// when they did.
func isZlib(body []byte) bool {
	return len(body) > 2 && body[0] == zlibMethod && (int(body[0])<<8|int(body[1]))%31 == 0
}

// decodeCompressed reads the compressed form of RegisterBrokerBody: a zlib stream
// of the data version, each topic as one line of words, and the filter servers.
// What newer brokers append, the mappings of static topics, is not read. A stream
// that unfolds to more than limit bytes is refused.
func decodeCompressed(body []byte, limit int64) (b codec.RegisterBrokerBody, err error) {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return b, fmt.Errorf("compressed registration: %w", err)
	}
	defer z.Close()
	plain, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return b, fmt.Errorf("compressed registration: %w", err)
	}
	if int64(len(plain)) > limit {
		return b, fmt.Errorf("compressed registration: unfolds to more than %d bytes", limit)
	}
	if err := parseCompressed(plain, &b); err != nil {
		return b, fmt.Errorf("compressed registration: %w", err)
	}
	return b, nil
}

func parseCompressed(plain []byte, b *codec.RegisterBrokerBody) error {
	r := fieldReader{plain}
	topics := &b.TopicConfigSerializeWrapper
	version, err := r.field()
	if err == nil {
		err = codec.Unmarshal(version, &topics.DataVersion)
	}
	if err != nil {
		return fmt.Errorf("data version: %w", err)
	}
	count, err := r.number()
	if err != nil {
		return fmt.Errorf("number of topics: %w", err)
	}
	topics.TopicConfigTable = map[string]codec.TopicConfig{}
	for range count {
		text, err := r.field()
		if err != nil {
			return fmt.Errorf("topic %d of %d: %w", len(topics.TopicConfigTable)+1, count, err)
		}
		cfg, err := parseTopicText(string(text))
		if err != nil {
			return err
		}
		topics.TopicConfigTable[cfg.TopicName] = cfg
	}
	filters, err := r.field()
	if err == nil {
		err = codec.Unmarshal(filters, &b.FilterServerList)
	}
	if err != nil {
		return fmt.Errorf("filter servers: %w", err)
	}
	return nil
}

// parseTopicText reads "name readQueues writeQueues perm filterType
// [attributes]" (TopicConfig.encode).
func parseTopicText(text string) (cfg codec.TopicConfig, err error) {
	words := strings.SplitN(text, " ", 6)
	if len(words) < 5 || words[0] == "" {
		return cfg, fmt.Errorf("topic %.200q: not of the form \"name read write perm filterType\"", text)
	}
	cfg.TopicName, cfg.TopicFilterType = words[0], words[4]
	for i, number := range []*int32{&cfg.ReadQueueNums, &cfg.WriteQueueNums, &cfg.Perm} {
		n, err := strconv.ParseInt(words[i+1], 10, 32)
		if err != nil {
			return cfg, fmt.Errorf("topic %.200q: %w", text, err)
		}
		*number = int32(n)
	}
	if len(words) == 6 && strings.HasPrefix(words[5], "{") {
		if err := codec.Unmarshal([]byte(words[5]), &cfg.Attributes); err != nil {
			return cfg, fmt.Errorf("topic %.200q: attributes: %w", text, err)
		}
	}
	return cfg, nil
}

// fieldReader takes big-endian numbers and length-prefixed fields off its front.
type fieldReader struct{ rest []byte }

func (r *fieldReader) number() (int, error) {
	if len(r.rest) < 4 {
		return 0, io.ErrUnexpectedEOF
	}
	n := int32(binary.BigEndian.Uint32(r.rest))
	r.rest = r.rest[4:]
	if n < 0 || int(n) > len(r.rest) {
		return 0, fmt.Errorf("%d announced, %d bytes left", n, len(r.rest))
	}
	return int(n), nil
}

func (r *fieldReader) field() ([]byte, error) {
	n, err := r.number()
	if err != nil {
		return nil, err
	}
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field, nil
}
