package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// frameOf is a frame with the given header text and body.
func frameOf(s Serialize, header, body string) []byte {
	b := append(beginFrame(nil), header...)
	endHeader(b, 0, s, len(body))
	return append(b, body...)
}

func parsed(t testing.TB, frame []byte) *View {
	t.Helper()
	v := new(View)
	require.NoError(t, v.Parse(frame))
	return v
}

func TestJSONHeadersAreReadHoweverTheyAreWritten(t *testing.T) {
	for name, header := range map[string]string{
		"usual order":       `{"code":310,"extFields":{"b":"T"},"flag":2,"language":"GO","opaque":-7,"remark":"r","serializeTypeCurrentRPC":"JSON","version":407}`,
		"another order":     `{"version":407,"opaque":-7,"remark":"r","language":"GO","flag":2,"extFields":{"b":"T"},"code":310}`,
		"white space":       " {\n\t\"code\" : 310 ,\r\n \"extFields\" : { \"b\" : \"T\" } , \"flag\": 2,\"language\":\"GO\",\"opaque\":-7,\"remark\":\"r\",\"version\":407 } ",
		"numbers as text":   `{"code":"310","extFields":{"b":"T"},"flag":"2","language":"9","opaque":"-7","remark":"r","version":"407"}`,
		"number fields":     `{"code":310,"extFields":{"b":"T","x":1.5e3,"y":true,"z":null},"flag":2,"language":9,"opaque":-7,"remark":"r","version":407}`,
		"unknown fields":    `{"code":310,"who":{"a":[1,{"}":"]"}],"b":"\"}"},"list":[],"extFields":{"b":"T","o":{"b":"wrong"}},"flag":2,"language":"GO","opaque":-7,"remark":"r","version":407,"t":true,"n":null}`,
		"escapes":           `{"code":310,"extFields":{"b":"\u0054"},"flag":2,"language":"GO","opaque":-7,"remark":"\u0072","version":407}`,
		"the last one wins": `{"code":1,"code":310,"extFields":{"b":"x"},"extFields":{"b":"x","b":"T"},"flag":2,"language":"GO","opaque":-7,"remark":"r","version":407}`,
		"extFields twice":   `{"code":310,"extFields":null,"extFields":{"b":"T"},"flag":2,"language":"GO","opaque":-7,"remark":"r","version":407}`,
	} {
		t.Run(name, func(t *testing.T) {
			v := parsed(t, frameOf(JSON, header, "body"))
			require.Equal(t, []int32{310, 2, -7, 407}, []int32{v.Code, v.Flag, v.Opaque, v.Version})
			require.Equal(t, LanguageGo, v.Language)
			require.Equal(t, "r", v.Remark())
			require.Equal(t, "T", v.Ext()["b"])
			value, ok := v.ExtValue("b")
			require.True(t, ok)
			require.Equal(t, "T", string(value))
			require.Equal(t, "body", string(v.Body))
			require.True(t, v.IsOneway())
			require.False(t, v.IsResponse())
			var h SendHeader
			require.NoError(t, h.Decode(v))
			require.Equal(t, "T", string(h.Topic))
		})
	}
}

func TestAbsentHeaderFieldsAreZero(t *testing.T) {
	for _, header := range []string{`{}`, `{"remark":null,"extFields":null,"code":null,"language":null}`, `{"extFields":{}}`} {
		v := parsed(t, frameOf(JSON, header, ""))
		require.Zero(t, v.Code)
		require.Empty(t, v.Remark())
		require.Nil(t, v.Ext())
		require.Equal(t, LanguageJava, v.Language)
		_, ok := v.ExtValue("x")
		require.False(t, ok)
	}
	v := parsed(t, frameOf(JSON, `{"language":"COBOL"}`, ""))
	require.Equal(t, LanguageOther, v.Language)
}

func TestMalformedFramesAreRefused(t *testing.T) {
	good := frameOf(JSON, `{"code":1}`, "body")
	edit := func(f func(b []byte)) []byte {
		b := append([]byte(nil), good...)
		f(b)
		return b
	}
	for name, frame := range map[string][]byte{
		"empty":                 nil,
		"head cut":              good[:7],
		"body cut":              good[:len(good)-1],
		"a byte too many":       append(edit(func([]byte) {}), 0),
		"length zero":           {0, 0, 0, 0, 0, 0, 0, 0},
		"unknown header form":   edit(func(b []byte) { b[4] = 2 }),
		"header beyond frame":   edit(func(b []byte) { b[7] = 15 }),
		"no JSON":               frameOf(JSON, ``, ""),
		"a list":                frameOf(JSON, `[]`, ""),
		"open object":           frameOf(JSON, `{"code":1`, ""),
		"text behind":           frameOf(JSON, `{"code":1}x`, ""),
		"open string":           frameOf(JSON, `{"code":"1}`, ""),
		"backslash at the end":  frameOf(JSON, `{"a":"\`, ""),
		"no colon":              frameOf(JSON, `{"code" 1}`, ""),
		"no comma":              frameOf(JSON, `{"code":1 "flag":1}`, ""),
		"no value":              frameOf(JSON, `{"code":}`, ""),
		"bare word":             frameOf(JSON, `{"a":nul}`, ""),
		"bad number":            frameOf(JSON, `{"a":1.}`, ""),
		"code no number":        frameOf(JSON, `{"code":"x"}`, ""),
		"code beyond 32 bits":   frameOf(JSON, `{"code":2147483648}`, ""),
		"opaque a fraction":     frameOf(JSON, `{"opaque":1.5}`, ""),
		"extFields a text":      frameOf(JSON, `{"extFields":"x"}`, ""),
		"extFields a list":      frameOf(JSON, `{"extFields":[]}`, ""),
		"extFields open":        frameOf(JSON, `{"extFields":{"a":"b"`, ""),
		"extFields broken":      frameOf(JSON, `{"extFields":{"a"}}`, ""),
		"brackets crossed":      frameOf(JSON, `{"a":[{]}}`, ""),
		"nested without end":    frameOf(JSON, `{"a":`+strings.Repeat(`[`, maxJSONDepth+1)+strings.Repeat(`]`, maxJSONDepth+1)+`}`, ""),
		"packed, cut":           frameOf(Binary, strings.Repeat("\x00", 20), ""),
		"packed, remark beyond": frameOf(Binary, strings.Repeat("\x00", 16)+"\x01"+strings.Repeat("\x00", 4), ""),
		"packed, remark < 0":    frameOf(Binary, strings.Repeat("\x00", 13)+"\xff\xff\xff\xff"+strings.Repeat("\x00", 4), ""),
		"packed, ext beyond":    frameOf(Binary, strings.Repeat("\x00", 20)+"\x01", ""),
		"packed, ext cut":       frameOf(Binary, strings.Repeat("\x00", 20)+"\x03\x00\x01a", ""),
		"packed, value beyond":  frameOf(Binary, strings.Repeat("\x00", 20)+"\x07\x00\x01a\x00\x00\x00\x01", ""),
		"packed, bytes behind":  frameOf(Binary, strings.Repeat("\x00", 22), ""),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, new(View).Parse(frame), ErrFrame)
			_, err := DecodeFrame(frame)
			require.ErrorIs(t, err, ErrFrame)
		})
	}
	huge := edit(func(b []byte) { binary.BigEndian.PutUint32(b, MaxFrameSize+1) })
	require.ErrorIs(t, new(View).Parse(huge), ErrFrameTooLarge)
}

func TestDeepButBoundedNestingIsRead(t *testing.T) {
	header := `{"a":` + strings.Repeat(`[`, maxJSONDepth) + strings.Repeat(`]`, maxJSONDepth) + `,"code":5}`
	require.Equal(t, int32(5), parsed(t, frameOf(JSON, header, "")).Code)
}

func TestHeadersWithMoreFieldsThanUsualAreReadWhole(t *testing.T) {
	for n := range 3 * indexedFields {
		ext := map[string]string{}
		for i := range n {
			ext["name"+strconv.Itoa(i)] = "value\n" + strconv.Itoa(i)
		}
		ext["b"] = "T"
		v := parsed(t, AppendFrame(nil, NewRequest(ReqSendMessageV2, ext, nil)))
		require.Equal(t, ext, v.Ext())
		var h SendHeader
		require.NoError(t, h.Decode(v))
		require.Equal(t, "T", string(h.Topic))
		require.NoError(t, v.Parse(frameOf(JSON, `{}`, "")))
		require.Nil(t, v.Ext(), "nothing is left of the frame before")
	}
}

func genText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9"\\/<>&\x00-\x1f]{0,20}`), rapid.SampledFrom([]string{"", "\u2028", "\U0001F600", "ü"}))
}

func genCommand(t *rapid.T, s Serialize) Command {
	number := rapid.Int32()
	short := rapid.Int32Range(-1<<15, 1<<15-1) // what a packed header holds
	if s == JSON {
		short = number
	}
	return Command{
		Code: short.Draw(t, "code"), Language: rapid.ByteRange(0, LanguageNodeJS).Draw(t, "language"), Version: short.Draw(t, "version"),
		Opaque: number.Draw(t, "opaque"), Flag: number.Draw(t, "flag"), Remark: genText().Draw(t, "remark"), Serialize: s,
		Ext: rapid.MapOf(genText(), genText()).Draw(t, "ext"), Body: genBytes(40).Draw(t, "body"),
	}
}

func TestCommandsComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genCommand(t, rapid.SampledFrom([]Serialize{JSON, Binary}).Draw(t, "form"))
		frame := AppendFrame([]byte("before"), &want)[6:]
		got, err := DecodeFrame(frame)
		require.NoError(t, err)
		if len(want.Ext) == 0 {
			want.Ext = nil
		}
		require.Equal(t, want, got)
		if want.Serialize == JSON {
			_, header, _, err := splitFrame(frame)
			require.NoError(t, err)
			var std struct{ ExtFields map[string]string }
			require.NoError(t, json.Unmarshal(header, &std), "standard JSON")
			require.Equal(t, len(want.Ext), len(std.ExtFields))
			for name, value := range want.Ext {
				require.Equal(t, value, std.ExtFields[name])
			}
		}
	})
}

func TestTextThatIsNoUTF8IsWrittenAsValidJSON(t *testing.T) {
	c := Command{Ext: map[string]string{"k": "a\xffb\xe2\x82"}}
	frame := AppendFrame(nil, &c)
	_, header, _, err := splitFrame(frame)
	require.NoError(t, err)
	require.True(t, json.Valid(header))
	require.Equal(t, "a\ufffdb\ufffd\ufffd", parsed(t, frame).Ext()["k"])
}

func TestEscapesAreResolvedAsJSONMeansThem(t *testing.T) {
	for raw, want := range map[string]string{
		`a\u0001b\u0002`: "a\x01b\x02", `\"\\\/\b\f\n\r\t`: "\"\\/\b\f\n\r\t", `\uD83D\uDE00`: "\U0001F600", `\u00e9\u20AC`: "é€",
		`\uD83D`: "\ufffd", `\uDE00\uD83D`: "\ufffd\ufffd", `\uD83D\u0041`: "\ufffdA", `\'`: "'", `\u12`: "u12", `\uZZZZ`: "uZZZZ",
	} {
		require.Equal(t, want, string(appendUnescaped(nil, []byte(raw))), raw)
		require.LessOrEqual(t, len(want), len(raw))
	}
}

func TestResponsesGoBackInTheRequestsFormAndOpaque(t *testing.T) {
	for _, s := range []Serialize{JSON, Binary} {
		req := NewRequest(ReqHeartbeat, nil, nil)
		req.Opaque, req.Serialize = 77, s
		require.Equal(t, int32(VersionV5_5_0), req.Version)
		c := Respond(parsed(t, AppendFrame(nil, req)), SystemBusy, "why")
		require.Equal(t, Command{Code: SystemBusy, Language: LanguageGo, Version: 513, Opaque: 77, Flag: 1, Remark: "why", Serialize: s}, *c)
	}
}

func TestCapturedSendsDecodeToTheirFields(t *testing.T) {
	var h SendHeader
	n := 0
	for name, frame := range capturedFrames(t) {
		if !strings.Contains(name, "/310-") && !strings.Contains(name, "/320-") || !strings.HasSuffix(name, ".req") {
			continue
		}
		n++
		v := parsed(t, frame)
		requireSendHeader(t, v, &h)
		c, err := DecodeFrame(frame)
		require.NoError(t, err)
		c.Serialize = Binary
		requireSendHeader(t, parsed(t, AppendFrame(nil, &c)), &h)
		long := Command{Code: ReqSendMessage, Ext: longNames(c.Ext)}
		var same SendHeader
		require.NoError(t, same.Decode(parsed(t, AppendFrame(nil, &long))))
		require.Equal(t, plainSend(&h), plainSend(&same), "long names say the same")
	}
	require.Equal(t, 10, n)
}

func plainSend(h *SendHeader) SendHeader {
	c := *h
	c.scratch = nil
	return c
}

func longNames(ext map[string]string) map[string]string {
	names := map[string]string{
		"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag", "g": "bornTimestamp",
		"h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
	}
	long := map[string]string{}
	for name, value := range ext {
		long[names[name]] = value
	}
	return long
}

func requireSendHeader(t *testing.T, v *View, h *SendHeader) {
	t.Helper()
	require.NoError(t, h.Decode(v))
	ext := v.Ext()
	number := func(name string) int64 {
		n, err := FieldInt64(ext, name)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, ext["a"], string(h.ProducerGroup))
	require.Equal(t, ext["b"], string(h.Topic))
	require.Equal(t, ext["c"], string(h.DefaultTopic))
	require.Equal(t, number("d"), int64(h.DefaultTopicQueueNums))
	require.Equal(t, number("e"), int64(h.QueueID))
	require.Equal(t, number("f"), int64(h.SysFlag))
	require.Equal(t, number("g"), h.BornTimestamp)
	require.Equal(t, number("h"), int64(h.Flag))
	require.Equal(t, ext["i"], string(h.Properties))
	require.True(t, h.HasProperties)
	require.Equal(t, number("j"), int64(h.ReconsumeTimes))
	require.Equal(t, FieldBool(ext, "k"), h.UnitMode)
	require.Equal(t, int32(-1), h.MaxReconsumeTimes)
	require.Equal(t, FieldBool(ext, "m"), h.Batch)
}

func TestSendsAndPullsComeBackWhateverTheirFieldsHold(t *testing.T) {
	var v View
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return "x" + genText().Draw(t, name) }
		i32 := func(name string) int32 { return rapid.Int32().Draw(t, name) }
		i64 := func(name string) int64 { return rapid.Int64().Draw(t, name) }
		form := rapid.SampledFrom([]Serialize{JSON, Binary}).Draw(t, "form")
		want := SendHeader{
			ProducerGroup: []byte(text("a")), Topic: []byte(text("b")), DefaultTopic: []byte(text("c")), DefaultTopicQueueNums: i32("d"),
			QueueID: i32("e"), SysFlag: i32("f"), BornTimestamp: i64("g"), Flag: i32("h"), Properties: []byte(text("i")), HasProperties: true,
			ReconsumeTimes: i32("j"), UnitMode: rapid.Bool().Draw(t, "k"), MaxReconsumeTimes: i32("l"), Batch: rapid.Bool().Draw(t, "m"),
		}
		want.Marks = ReadMarks(want.Properties)
		short := map[string]string{
			"a": string(want.ProducerGroup), "b": string(want.Topic), "c": string(want.DefaultTopic), "d": itoa(want.DefaultTopicQueueNums),
			"e": itoa(want.QueueID), "f": itoa(want.SysFlag), "g": itoa(want.BornTimestamp), "h": itoa(want.Flag), "i": string(want.Properties),
			"j": itoa(want.ReconsumeTimes), "k": strconv.FormatBool(want.UnitMode), "l": itoa(want.MaxReconsumeTimes),
			"m": strconv.FormatBool(want.Batch), "n": "broker", "ns": "unknown",
		}
		for _, c := range []Command{{Code: ReqSendMessageV2, Ext: short}, {Code: ReqSendMessage, Ext: longNames(short)}} {
			c.Serialize = form
			require.NoError(t, v.Parse(AppendFrame(nil, &c)))
			var got SendHeader
			require.NoError(t, got.Decode(&v))
			require.Equal(t, want, plainSend(&got))
		}
		pull := PullHeader{
			ConsumerGroup: []byte(text("group")), Topic: want.Topic, Subscription: []byte(text("sub")), ExpressionType: []byte(text("type")),
			QueueID: want.QueueID, MaxMsgNums: i32("nums"), SysFlag: want.SysFlag, MaxMsgBytes: i32("bytes"), QueueOffset: i64("offset"),
			CommitOffset: i64("commit"), SuspendTimeoutMillis: i64("suspend"), SubVersion: i64("version"),
		}
		c := Command{Code: ReqPullMessage, Serialize: form, Ext: map[string]string{
			"consumerGroup": string(pull.ConsumerGroup), "topic": string(pull.Topic), "subscription": string(pull.Subscription),
			"expressionType": string(pull.ExpressionType), "queueId": itoa(pull.QueueID), "maxMsgNums": itoa(pull.MaxMsgNums),
			"sysFlag": itoa(pull.SysFlag), "maxMsgBytes": itoa(pull.MaxMsgBytes), "queueOffset": itoa(pull.QueueOffset),
			"commitOffset": itoa(pull.CommitOffset), "suspendTimeoutMillis": itoa(pull.SuspendTimeoutMillis), "subVersion": itoa(pull.SubVersion),
		}}
		require.NoError(t, v.Parse(AppendFrame(nil, &c)))
		var got PullHeader
		require.NoError(t, got.Decode(&v))
		got.scratch = nil
		require.Equal(t, pull, got)
	})
}

func itoa[T int32 | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func TestASendNeedsOnlyItsTopic(t *testing.T) {
	h := SendHeader{QueueID: 9, Properties: []byte("left over"), UnitMode: true}
	c := NewRequest(ReqSendMessageV2, map[string]string{"b": "T"}, nil)
	require.NoError(t, h.Decode(parsed(t, AppendFrame(nil, c))))
	require.Equal(t, SendHeader{Topic: []byte("T"), MaxReconsumeTimes: -1}, plainSend(&h))

	c = NewRequest(ReqSendBatchMessage, map[string]string{"b": "T"}, nil)
	require.NoError(t, h.Decode(parsed(t, AppendFrame(nil, c))))
	require.True(t, h.Batch, "the code alone says so")

	for _, code := range []RequestCode{ReqSendMessage, ReqSendMessageV2} {
		err := h.Decode(parsed(t, AppendFrame(nil, NewRequest(code, map[string]string{"a": "PG"}, nil))))
		require.ErrorIs(t, err, ErrField)
		require.ErrorContains(t, err, "topic is missing")
	}
}

func TestABadNumberIsNamedWithItsValue(t *testing.T) {
	var send SendHeader
	err := send.Decode(parsed(t, AppendFrame(nil, NewRequest(ReqSendMessageV2, map[string]string{"b": "T", "e": "x7"}, nil))))
	require.ErrorIs(t, err, ErrField)
	require.ErrorContains(t, err, `queueId is "x7"`)
	var pull PullHeader
	err = pull.Decode(parsed(t, AppendFrame(nil, NewRequest(ReqPullMessage, map[string]string{"queueOffset": "1e3"}, nil))))
	require.ErrorIs(t, err, ErrField)
	require.ErrorContains(t, err, `queueOffset is "1e3"`)
}

func TestCapturedPullsDecodeToTheirFields(t *testing.T) {
	var h PullHeader
	n := 0
	for name, frame := range capturedFrames(t) {
		if !strings.Contains(name, "/011-") || !strings.HasSuffix(name, ".req") {
			continue
		}
		n++
		c, err := DecodeFrame(frame)
		require.NoError(t, err)
		for _, s := range []Serialize{JSON, Binary} {
			c.Serialize = s
			require.NoError(t, h.Decode(parsed(t, AppendFrame(nil, &c))))
			require.Equal(t, c.Ext["consumerGroup"], string(h.ConsumerGroup))
			require.Equal(t, c.Ext["topic"], string(h.Topic))
			require.Equal(t, c.Ext["subscription"], string(h.Subscription))
			require.Equal(t, c.Ext["expressionType"], string(h.ExpressionType))
			for name, got := range map[string]int64{
				"queueId": int64(h.QueueID), "maxMsgNums": int64(h.MaxMsgNums), "sysFlag": int64(h.SysFlag), "queueOffset": h.QueueOffset,
				"commitOffset": h.CommitOffset, "suspendTimeoutMillis": h.SuspendTimeoutMillis, "subVersion": h.SubVersion,
			} {
				require.Equal(t, c.Ext[name], strconv.FormatInt(got, 10), name)
			}
			maxBytes, err := FieldInt64Or(c.Ext, "maxMsgBytes", 0)
			require.NoError(t, err)
			require.Equal(t, maxBytes, int64(h.MaxMsgBytes))
		}
	}
	require.Equal(t, 11, n)
}

func TestAPullNamesTheFieldItMisses(t *testing.T) {
	full := map[string]string{"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "5", "maxMsgNums": "32"}
	var h PullHeader
	require.NoError(t, h.Decode(parsed(t, AppendFrame(nil, NewRequest(ReqPullMessage, full, nil)))))
	require.Equal(t, int64(5), h.QueueOffset)
	for missing := range full {
		ext := map[string]string{}
		for name, value := range full {
			if name != missing {
				ext[name] = value
			}
		}
		err := h.Decode(parsed(t, AppendFrame(nil, NewRequest(ReqPullMessage, ext, nil))))
		require.ErrorIs(t, err, ErrField)
		require.ErrorContains(t, err, missing+" is missing")
	}
}

func TestFieldHelpersNameWhatIsWrong(t *testing.T) {
	ext := map[string]string{"n": "12", "neg": "-3", "big": "3000000000", "huge": "9223372036854775808", "min": "-9223372036854775808", "empty": "", "t": "TRUE"}
	n, err := FieldInt32(ext, "n")
	require.NoError(t, err)
	require.Equal(t, int32(12), n)
	l, err := FieldInt64(ext, "min")
	require.NoError(t, err)
	require.Equal(t, int64(-1<<63), l)
	l, err = FieldInt64Or(ext, "absent", 7)
	require.NoError(t, err)
	require.Equal(t, int64(7), l)
	require.True(t, FieldBool(ext, "t"))
	require.False(t, FieldBool(ext, "n"))
	for _, name := range []string{"big", "huge", "empty", "absent"} {
		_, err = FieldInt32(ext, name)
		require.ErrorIs(t, err, ErrField)
		require.ErrorContains(t, err, name)
	}
	_, err = FieldString(ext, "empty")
	require.ErrorContains(t, err, "empty is missing")
}

func TestSendResponseSaysWhatTheClientNeeds(t *testing.T) {
	host := netip.MustParseAddrPort("127.0.0.1:43025")
	for _, s := range []Serialize{JSON, Binary} {
		for _, code := range []ResponseCode{Success, FlushDiskTimeout, SlaveNotAvailable, FlushSlaveTimeout} {
			r := SendResponse{StoreHost: host, PhysicalOffset: 0x7A2, QueueID: 1, QueueOffset: 5, TransactionID: []byte(`00"\x`), Remark: "late \"r\""}
			c, err := DecodeFrame(AppendSendResponse(nil, s, 45, code, &r))
			require.NoError(t, err)
			require.Equal(t, Command{
				Code: code, Language: LanguageGo, Version: 513, Opaque: 45, Flag: 1, Remark: r.Remark, Serialize: s, Body: []byte{},
				Ext: map[string]string{
					"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": "7F0000010000A81100000000000007A2",
					"queueId": "1", "queueOffset": "5", "transactionId": `00"\x`,
				},
			}, c)
		}
		c, err := DecodeFrame(AppendSendResponse(nil, s, 45, Success, &SendResponse{StoreHost: host, BatchOffsets: []int64{0x88D, 0x946}}))
		require.NoError(t, err)
		require.Equal(t, "7F0000010000A811000000000000088D,7F0000010000A8110000000000000946", c.Ext["msgId"])
		require.NotContains(t, c.Ext, "transactionId")
	}
}

func TestPullResponseHeadCountsTheBodyBehindIt(t *testing.T) {
	for _, s := range []Serialize{JSON, Binary} {
		r := PullResponse{SuggestWhichBrokerID: 1, NextBeginOffset: 3, MinOffset: 2, MaxOffset: 40, Remark: "FOUND"}
		frame := append(AppendPullResponse([]byte("x"), s, 9, Success, &r, 4)[1:], "body"...)
		c, err := DecodeFrame(frame)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"suggestWhichBrokerId": "1", "nextBeginOffset": "3", "minOffset": "2", "maxOffset": "40"}, c.Ext)
		require.Equal(t, "body", string(c.Body))
		require.Equal(t, "FOUND", c.Remark)
		require.Equal(t, int32(9), c.Opaque)
	}
}

func TestPlainAndOffsetResponses(t *testing.T) {
	for _, s := range []Serialize{JSON, Binary} {
		c, err := DecodeFrame(AppendResponse(nil, s, 9, SystemBusy, "full"))
		require.NoError(t, err)
		require.Equal(t, Command{Code: SystemBusy, Language: LanguageGo, Version: 513, Opaque: 9, Flag: 1, Remark: "full", Serialize: s, Body: []byte{}}, c)
		c, err = DecodeFrame(AppendOffsetResponse(nil, s, 9, Success, "offset", -1, ""))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"offset": "-1"}, c.Ext)
		require.Empty(t, c.Remark)
	}
}

func TestCodeAndLanguageNames(t *testing.T) {
	require.Equal(t, "FLUSH_SLAVE_TIMEOUT", CodeName(FlushSlaveTimeout))
	require.Equal(t, "CONSUMER_NOT_ONLINE", CodeName(ConsumerNotOnline))
	require.Equal(t, "424242", CodeName(424242))
	for l := LanguageJava; l <= LanguageNodeJS; l++ {
		require.Equal(t, l, languageOf([]byte(LanguageName(l))))
	}
	require.Equal(t, "OTHER", LanguageName(200))
}

// readAll is what a view says of a header: its fields, and all that extFields hold.
type readAll struct {
	Code, Version, Opaque, Flag int32
	Language                    byte
	Remark, Span                string
	Ext                         map[string]string
}

func readView(v *View) readAll {
	return readAll{v.Code, v.Version, v.Opaque, v.Flag, v.Language, v.Remark(), string(v.ext), v.Ext()}
}

func FuzzTheQuickWayReadsAHeaderAsTheThoroughOneDoes(f *testing.F) {
	for _, header := range []string{
		`{"code":310,"extFields":{"a":"PG1","b":"T","e":"0","i":"KEYS\u0001k\u0002WAIT\u0001true\u0002"},"flag":0,"language":"JAVA","opaque":136,"serializeTypeCurrentRPC":"JSON","version":407}`,
		`{"code":10,"extFields":{"topic":"T\"","x":"\\"},"flag":2,"language":"GO","opaque":2147483647,"serializeTypeCurrentRPC":"JSON","version":0}`,
		`{"code":35,"flag":0,"language":"JAVA","opaque":2147483648,"serializeTypeCurrentRPC":"JSON","version":407}`,
		`{"code":35,"extFields":{},"flag":0,"language":"JAVA","opaque":00000000001,"serializeTypeCurrentRPC":"JSON","version":407}`,
		`{"code":35,"extFields":{"":"","n":null},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}`,
		`{"code":35,"extFields":{"a":"1" ,"b":2},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}`,
	} {
		f.Add([]byte(header))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		quick := View{header: header, Language: LanguageJava}
		if !quick.parseUsual(header) {
			return
		}
		thorough := View{header: header}
		require.NoError(t, thorough.parseAny(header))
		require.Equal(t, readView(&thorough), readView(&quick))
	})
}

// requireReadAlike holds what a view that has read others says of a frame, and of the send in it, to what a fresh one says.
func requireReadAlike(t require.TestingT, v *View, h *SendHeader, frame []byte) {
	var fresh View
	want, got := fresh.Parse(frame), v.Parse(frame)
	require.Equal(t, want == nil, got == nil, "%v / %v for %s", want, got, frame)
	if want != nil {
		return
	}
	require.Equal(t, readView(&fresh), readView(v), "%s", frame)
	require.Equal(t, fresh.Body, v.Body)
	var first SendHeader
	want, got = first.Decode(&fresh), h.Decode(v)
	require.Equal(t, want, got, "%s", frame)
	if want == nil {
		require.Equal(t, plainSend(&first), plainSend(h), "%s", frame)
		require.Equal(t, ReadMarks(h.Properties), h.Marks)
	}
}

// knownHeaders are sends' headers as producers write them, and as none does.
var knownHeaders = []string{
	`{"code":310,"extFields":{"a":"PG1","b":"Topic","c":"TBW102","d":"4","e":"0","f":"0","g":"1795959222777","h":"0","i":"KEYS\u0001k\\\"x\u0002UNIQ_KEY\u00010000ABCD\u0002WAIT\u0001true\u0002","j":"0","k":"false","m":"false","n":"pb"},"flag":0,"language":"JAVA","opaque":1000000136,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":10,"extFields":{"topic":"Topic","producerGroup":"PG","queueId":"12","properties":"UNIQ_KEY\u000100\u0002WAIT\u0001false\u0002DELAY\u00010","bornTimestamp":"1","maxReconsumeTimes":"16"},"flag":2,"language":"GO","opaque":7,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":320,"extFields":{"b":"T","i":"plain","e":"-1","m":"true","i":"twice","g":" 5","x":"1","y":"\t"},"flag":0,"language":"JAVA","opaque":12345678,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":310,"extFields":{"b":"T","i":"A\u00011\u0002B\u000122\u0002\u0041C\u00013\u0002D\u00014\uD83D\uDE005\u0002E\u00015\u0012\\u0002TRAN_MSG\u0001true","e":"7"},"flag":0,"language":"JAVA","opaque":12345678,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":310,"extFields":{"b":"T","i":"A` + "\x01" + `1` + "\x02" + `UNIQ_KEY` + "\x01" + `2` + "\t" + `3","e":"7"},"flag":0,"language":"JAVA","opaque":12345678,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":310,"extFields":{"b":"T","i":"","a":"","e":"1"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":310,"extFields":{"b":"T"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":310,"extFields":{"b":"T","i":"once","i":"twice","e":"1","e":"2"},"flag":0,"language":"JAVA","opaque":12345678,"serializeTypeCurrentRPC":"JSON","version":407}`,
	`{"code":34,"extFields":{"b":"T","i":"x","e":"y"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}`,
}

// packedHeader is a JSON header in the packed form.
func packedHeader(t require.TestingT, header string) string {
	c, err := DecodeFrame(frameOf(JSON, header, ""))
	require.NoError(t, err)
	c.Serialize = Binary
	return string(AppendFrame(nil, &c)[frameHead:])
}

// TestAHeaderReadByItsShapeReadsAsIfItWereTheFirst changes bytes of a header the view knows.
func TestAHeaderReadByItsShapeReadsAsIfItWereTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		header, form := []byte(rapid.SampledFrom(knownHeaders).Draw(t, "header")), rapid.SampledFrom([]Serialize{JSON, Binary}).Draw(t, "form")
		if form == Binary {
			header = []byte(packedHeader(t, string(header)))
		}
		var v View
		var h SendHeader
		for range 3 {
			requireReadAlike(t, &v, &h, frameOf(form, string(header), "body"))
		}
		require.NotEmpty(t, v.shape.header, "learned")
		for range rapid.IntRange(1, 8).Draw(t, "headers") {
			next := bytes.Clone(header)
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				to := rapid.OneOf(rapid.SampledFrom([]byte(`00099azAZ"\{},: u#]-`+"\x01\x02\x1f\xff")), rapid.Byte()).Draw(t, "to")
				next[rapid.IntRange(0, len(next)-1).Draw(t, "at")] = to
			}
			requireReadAlike(t, &v, &h, frameOf(form, string(next), "body"))
			if rapid.IntRange(0, 5).Draw(t, "stay") == 0 {
				header = next
			}
		}
	})
}

func TestAPackedHeaderTooShortForItsOpaqueIsRefusedAfterAShapeWasDropped(t *testing.T) {
	var v View
	first := packedHeader(t, knownHeaders[0])
	for _, header := range []string{first, first, strings.Replace(first, "UNIQ_KEY", "UNIQ_KEI", 1)} {
		require.NoError(t, v.Parse(frameOf(Binary, header, "")))
	}
	require.Equal(t, Binary, v.shape.form)
	require.Empty(t, v.shape.header, "it served too few")
	for n := range 12 {
		require.ErrorIs(t, v.Parse(frameOf(Binary, first[:n], "")), ErrFrame)
	}
}

func TestTheNextSendOfAProducerIsReadByPlaces(t *testing.T) {
	var v View
	var h SendHeader
	for range 3 {
		require.NoError(t, v.Parse(frameOf(JSON, knownHeaders[0], "")))
	}
	for range 2 { // the first time its words are not hot
		next := strings.NewReplacer(`"g":"1795959222777"`, `"g":"1795959310001"`, "0000ABCD", "0001234F", "1000000136", "1000002048", `"e":"0"`, `"e":"3"`,
			`"j":"0"`, `"j":"2"`, `"Topic"`, `"Tipoc"`).Replace(knownHeaders[0])
		require.NoError(t, v.Parse(frameOf(JSON, next, "")))
		require.True(t, v.shaped)
		require.True(t, h.decodeLike(&v))
		require.Equal(t, "KEYS\x01k\\\"x\x02UNIQ_KEY\x010001234F\x02WAIT\x01true\x02", string(h.Properties))
		require.Equal(t, "0001234F", string(h.Marks.UniqueKey))
		require.Equal(t, "Tipoc", string(h.Topic))
		require.Equal(t, []int64{1795959310001, 3, 2, 1000002048}, []int64{h.BornTimestamp, int64(h.QueueID), int64(h.ReconsumeTimes), int64(v.Opaque)})
	}
}

func TestTheNextPackedSendOfAProducerIsReadByPlaces(t *testing.T) {
	var v View
	var h SendHeader
	for i, frame := range producersFrames(Binary) {
		require.NoError(t, v.Parse(frame))
		if i < 3 {
			continue
		}
		require.True(t, v.shaped)
		require.True(t, h.decodeLike(&v))
		requireReadAlike(t, &v, &h, frame)
	}
}

func TestWhatAsksSomethingOfTheBrokerIsNeverReadByPlaces(t *testing.T) {
	learned := `{"code":310,"extFields":{"b":"T","d":"4","i":"WAIT\u0001true1\u0002UNIQ_KEY\u000100AA\u0002DELAY\u00010\u0002","k":"false","l":"9","m":"false"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":407}`
	for name, change := range map[string][2]string{
		"the wait": {"true1", "false"}, "a delay": {"DELAY\\u00010", "DELAY\\u00013"}, "a name": {"UNIQ_KEY", "UNIQ_KEI"}, "a separator": {"00AA", "0\x02AA"},
		"a pair": {"00AA", "0\x02A\x01"}, "an escape": {"00AA", `0\n1`}, "a batch": {`"m":"false"`, `"m":"fals3"`},
		"the unit mode": {`"k":"false"`, `"k":"FALSE"`}, "the retries": {`"l":"9"`, `"l":"8"`}, "the queues": {`"d":"4"`, `"d":"5"`}, "the code": {"310", "325"},
		"a field's name": {`"b":"T"`, `"z":"T"`}, "the language": {`"JAVA"`, `"JAVO"`},
	} {
		t.Run(name, func(t *testing.T) {
			var v View
			var h SendHeader
			for range 3 {
				require.NoError(t, v.Parse(frameOf(JSON, learned, "")))
			}
			require.True(t, v.shape.send.known)
			next := strings.Replace(learned, change[0], change[1], 1)
			require.NotEqual(t, learned, next)
			require.False(t, v.shape.fits([]byte(next)))
			v.shape.hot[0], v.shape.hots = uint16(strings.Index(learned, change[0])/8*8), 1
			require.False(t, v.shape.fits([]byte(next)))
			require.False(t, v.shape.fits([]byte(next)), "nothing of it was taken in")
			requireReadAlike(t, &v, &h, frameOf(JSON, next, ""))
			requireReadAlike(t, &v, &h, frameOf(JSON, learned, ""))
			for _, header := range []string{learned, learned, learned, next, learned} {
				requireReadAlike(t, &v, &h, frameOf(Binary, packedHeader(t, header), ""))
			}
		})
	}
}

// TestAHeaderWithABrokenEscapeIsNoPatternForGoodOnes: the same bytes may be text in the one and a separator of properties in the others,
// which may come from another client.
func TestAHeaderWithABrokenEscapeIsNoPatternForGoodOnes(t *testing.T) {
	header := func(props string) string {
		return `{"code":310,"extFields":{"b":"T","e":"1","i":"` + props + `"},"flag":0,"language":"GO","opaque":7,"serializeTypeCurrentRPC":"JSON","version":513}`
	}
	good := header(`KEYS\u0001k\u0002DELAY\u00013\u0002`)
	for _, bad := range []string{
		header(`KEYS\u0001k\u00zzDELAY\u00zz3\u0002`),
		header(`KEYS\u0001k\ud8x2DELAY\u,0013\u0002`),
		header(`KEYS\u0001k\x0002DELAY\x00013\u0002`),
		header(`KEYS\u0001k\u0002DELAY\u00013` + "\\u\x11\x12\x13\x14"),
	} {
		var v View
		var h SendHeader
		for range 3 {
			requireReadAlike(t, &v, &h, frameOf(JSON, bad, ""))
		}
		for range 3 {
			requireReadAlike(t, &v, &h, frameOf(JSON, good, ""))
		}
		require.True(t, h.Marks.Delayed)
	}
}

func TestAFrameOfAnotherFormIsNotReadByTheShapeOfTheOneBefore(t *testing.T) {
	var v View
	var h SendHeader
	frames := sendFrames(t)
	for range 4 {
		requireReadAlike(t, &v, &h, frames["JSON"])
	}
	require.True(t, v.shape.send.known)
	requireReadAlike(t, &v, &h, frames["ROCKETMQ"])
	require.False(t, v.shaped)
	requireReadAlike(t, &v, &h, pullFrames(t)["JSON"])
	require.Error(t, v.Parse(frames["JSON"][:20]))
	requireReadAlike(t, &v, &h, frames["JSON"])

	require.NoError(t, v.Parse(frames["JSON"]))
	v.Code = ReqSendMessage // whose names are long
	require.ErrorIs(t, h.Decode(&v), ErrField)
	requireReadAlike(t, &v, &h, frames["JSON"])
}

func BenchmarkParseChangingShapes(b *testing.B) {
	for _, kinds := range []int{1, 2} {
		b.Run(strconv.Itoa(kinds), func(b *testing.B) {
			var frames [][]byte
			for i := range kinds {
				frames = append(frames, AppendFrame(nil, NewRequest(ReqSendMessageV2, map[string]string{
					"a": "PG1", "b": "Topic" + strconv.Itoa(i), "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795959222777", "h": "0",
					"i": "KEYS\x01k\x02UNIQ_KEY\x010000000000000000000000000000000107DA30946E09931B09F7000A\x02", "j": "0", "k": "false", "m": "false",
					strings.Repeat("n", i+1): "pb",
				}, nil)))
			}
			var v View
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if v.Parse(frames[i%kinds]) != nil {
					b.Fatal("does not parse")
				}
			}
		})
	}
}
