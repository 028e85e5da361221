package bench

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

func jsonFrame(header string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	return append(binary.BigEndian.AppendUint32(b, uint32(len(header))), header...)
}

func sendAnswer(form codec.Serialize, opaque int32, code codec.ResponseCode, offset int64) []byte {
	return codec.AppendSendResponse(nil, form, opaque, code, &codec.SendResponse{
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"), PhysicalOffset: offset * 300, QueueOffset: offset,
	})
}

func TestAnAnswerLikeTheOneBeforeIsReadWithoutParsing(t *testing.T) {
	apache := func(opaque, offset int) []byte {
		return jsonFrame(fmt.Sprintf(`{"code":0,"extFields":{"queueId":"1","msgId":"7F0000010000","queueOffset":"%d"},"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":477}`, offset, opaque))
	}
	for name, answer := range map[string]func(opaque, offset int) []byte{
		"ours": func(opaque, offset int) []byte {
			return sendAnswer(codec.JSON, int32(opaque), codec.Success, int64(offset))
		},
		"packed": func(opaque, offset int) []byte {
			return sendAnswer(codec.Binary, int32(opaque), codec.Success, int64(offset))
		},
		"apache": apache,
	} {
		var s answerShape
		for _, offset := range []int{2, 9, 10, 123_456, 7} {
			opaque, ok := s.success(answer(opaqueBase+offset, offset))
			require.True(t, ok, "%s, offset %d", name, offset)
			require.EqualValues(t, opaqueBase+offset, opaque)
		}
	}
}

func TestOnlyAnAnswerThatSaysSuccessIsTakenForOne(t *testing.T) {
	usual := `{"code":0,"flag":1,"language":"JAVA","opaque":1000000005,"version":1}`
	var s answerShape
	opaque, ok := s.success(jsonFrame(usual))
	require.True(t, ok)
	require.EqualValues(t, 1_000_000_005, opaque)
	for name, change := range map[string][2]string{
		"another code":                    {`"code":0`, `"code":1`},
		"a code that begins with 0":       {`"code":0`, `"code":0.5`},
		"a code with a sign":              {`"code":0`, `"code":-0`},
		"a request":                       {`"flag":1`, `"flag":0`},
		"a one-way message":               {`"flag":1`, `"flag":2`},
		"a flag that begins with 1":       {`"flag":1`, `"flag":10`},
		"an opaque of other length":       {`1000000005`, `100000005`},
		"an opaque out of range":          {`1000000005`, `9999999999`},
		"an opaque as text":               {`1000000005`, `"100000000"`},
		"a name that ends alike":          {`"opaque"`, `"\"opaque"`},
		"no opaque":                       {`"opaque"`, `"opaqua"`},
		"blanks":                          {`"code":0`, `"code": 0`},
		"a remark that looks like fields": {`"code":0,"flag":1`, `"code":1,"remark":"\"code\":0,\"flag\":1"`},
	} {
		changed := strings.Replace(usual, change[0], change[1], 1)
		require.NotEqual(t, usual, changed)
		fresh := s
		_, ok := fresh.success(jsonFrame(changed))
		require.False(t, ok, name)
	}
	for n := range len(jsonFrame(usual)) {
		_, ok := s.success(jsonFrame(usual)[:n])
		require.False(t, ok, "cut at %d", n)
	}
}

func TestOnlyAPackedAnswerThatSaysSuccessIsTakenForOne(t *testing.T) {
	const flagAt = opaqueOfBinary + 4
	var s answerShape
	frame := sendAnswer(codec.Binary, opaqueBase, codec.Success, 1)
	_, ok := s.success(frame)
	require.True(t, ok)
	frame[flagAt+3] = 0
	_, ok = s.success(frame)
	require.False(t, ok, "a request")
	_, ok = s.success(sendAnswer(codec.Binary, opaqueBase, codec.SystemBusy, 1))
	require.False(t, ok, "another code")
}

// What is taken for a SUCCESS answer without parsing is one for the parser too, whatever was learnt before.
func TestTheShortWayAgreesWithTheParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		form := rapid.SampledFrom([]codec.Serialize{codec.JSON, codec.Binary}).Draw(t, "form")
		answer := func(label string) []byte {
			code := rapid.SampledFrom([]codec.ResponseCode{codec.Success, codec.SystemBusy, codec.FlushSlaveTimeout}).Draw(t, label)
			return sendAnswer(form, rapid.Int32Range(0, 1<<31-1).Draw(t, label), code, rapid.Int64Range(0, 1<<50).Draw(t, label))
		}
		var s answerShape
		s.success(answer("first"))
		frame := answer("second")
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			frame[rapid.IntRange(4, len(frame)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		opaque, ok := s.success(frame)
		if !ok {
			return
		}
		var v codec.View
		if v.Parse(frame) != nil {
			return // a fault elsewhere in the header: the answer's own fields are as they should be
		}
		require.Equal(t, codec.Success, v.Code)
		require.True(t, v.IsResponse())
		require.Equal(t, v.Opaque, opaque)
	})
}

func TestReadingAnAnswerAllocatesNothing(t *testing.T) {
	l := newLink(&run{SendOptions: SendOptions{Depth: 64}, window: window{0, 1 << 40}}, "", 0)
	answer := sendAnswer(codec.JSON, opaqueBase+3, codec.Success, 12)
	in := newFrameReader(nil, 64)
	one := func() {
		l.sent[3], l.free = 5, l.free[:63]
		in.start, in.end = 0, copy(in.buf, answer)
		if err := l.take(in, 1000); err != nil {
			t.Fatal(err)
		}
	}
	one()
	require.Zero(t, testing.AllocsPerRun(100, one))
}

func BenchmarkAnswer(b *testing.B) {
	answer := sendAnswer(codec.JSON, opaqueBase+3, codec.Success, 123_456)
	var s answerShape
	for b.Loop() {
		if _, ok := s.success(answer); !ok {
			b.Fatal("not read")
		}
	}
}
