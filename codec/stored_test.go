package codec

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStoredAnswersAreWhatTheGeneralWriterWrites(t *testing.T) {
	for _, host := range []string{"127.0.0.1:10911", "[2001:db8::7]:65535"} {
		host := netip.MustParseAddrPort(host)
		answers := NewStoredAnswers(host)
		rapid.Check(t, func(t *rapid.T) {
			r := SendResponse{
				StoreHost: host, PhysicalOffset: genNumber().Draw(t, "offset"), QueueOffset: genNumber().Draw(t, "queue offset"),
				QueueID:       rapid.OneOf(rapid.Int32Range(0, 12), rapid.Int32()).Draw(t, "queue"),
				TransactionID: []byte(rapid.OneOf(rapid.StringMatching(`[0-9A-F]{0,300}`), genText()).Draw(t, "key")),
			}
			if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
				r.QueueOffset, r.BatchOffsets, r.Remark = -1, []int64{1, 2}[:rapid.IntRange(0, 2).Draw(t, "rows")], genText().Draw(t, "remark")
			}
			code := rapid.SampledFrom([]ResponseCode{Success, Success, Success, FlushSlaveTimeout}).Draw(t, "code")
			opaque := rapid.OneOf(rapid.Int32Range(0, 1<<30), rapid.Int32()).Draw(t, "opaque")
			for _, s := range []Serialize{JSON, Binary} {
				want := AppendSendResponse([]byte("before"), s, opaque, code, &r)
				unhosted := r
				unhosted.StoreHost = netip.AddrPort{}
				require.Equal(t, string(want), string(answers.Append([]byte("before"), s, opaque, code, &unhosted)))
			}
		})
	}
}

// The answer as RocketMQ's clients got it from the first version on.
func TestTheUsualAnswerToASendStaysAsItIs(t *testing.T) {
	r := SendResponse{PhysicalOffset: 0x7A2, QueueID: 1, QueueOffset: 5, TransactionID: []byte("00AB")}
	frame := NewStoredAnswers(netip.MustParseAddrPort("127.0.0.1:43025")).Append(nil, JSON, 45, Success, &r)
	require.Equal(t, `{"code":0,"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"7F0000010000A81100000000000007A2",`+
		`"queueId":"1","queueOffset":"5","transactionId":"00AB"},"flag":1,"language":"GO","opaque":45,"serializeTypeCurrentRPC":"JSON","version":513}`,
		string(frame[frameHead:]))
}
