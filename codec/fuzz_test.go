package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// addFrames seeds a target with one captured frame of each name, and with some
// of them in the packed form.
func addFrames(f *testing.F) {
	f.Helper()
	seen := map[string]bool{}
	for name, frame := range capturedFrames(f) {
		if base := filepath.Base(name); !seen[base] && len(frame) < 2048 {
			seen[base] = true
			f.Add(frame)
			c, err := DecodeFrame(frame)
			require.NoError(f, err)
			c.Serialize = Binary
			f.Add(AppendFrame(nil, &c))
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeFrame(b)
		if err != nil {
			require.True(t, errors.Is(err, ErrFrame) || errors.Is(err, ErrFrameTooLarge))
			return
		}
		again, err := DecodeFrame(AppendFrame(nil, &c))
		require.NoError(t, err)
		if c.Serialize == JSON && !carriesOnlyText(&c) {
			c.Remark, c.Ext, again.Remark, again.Ext = "", nil, "", nil // JSON can't carry what is no UTF-8
		}
		requireSameCommand(t, c, again)
	})
}

func carriesOnlyText(c *Command) bool {
	ok := utf8.ValidString(c.Remark)
	for name, value := range c.Ext {
		ok = ok && utf8.ValidString(name) && utf8.ValidString(value)
	}
	return ok
}

func FuzzView(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var v View
		if v.Parse(b) != nil {
			return
		}
		_ = v.Remark()
		for name, want := range v.Ext() {
			if got, ok := v.ExtValue(name); ok && len(name) < 40 {
				require.Equal(t, want, string(got))
			}
		}
		if v.Serialize == JSON && json.Valid(v.ext) { // where it is plain JSON, encoding/json is the referee
			requireExtAsJSON(t, &v)
		}
	})
}

// requireExtAsJSON compares the text values of extFields with encoding/json's.
func requireExtAsJSON(t *testing.T, v *View) {
	t.Helper()
	var want map[string]any
	if json.Unmarshal(v.ext, &want) != nil {
		return
	}
	got := v.Ext()
	for name, value := range want {
		if text, ok := value.(string); ok && validText(name) && validText(text) {
			require.Equal(t, text, got[name])
		}
	}
}

func validText(s string) bool { return !bytes.ContainsRune([]byte(s), '\ufffd') }

func FuzzSendHeader(f *testing.F) {
	addFrames(f)
	var h SendHeader // used again and again, as a loop does
	f.Fuzz(func(t *testing.T, b []byte) {
		var v View
		if v.Parse(b) != nil {
			return
		}
		for _, code := range []RequestCode{v.Code, ReqSendMessage, ReqSendMessageV2, ReqSendBatchMessage} {
			v.Code = code
			if err := h.Decode(&v); err != nil {
				require.ErrorIs(t, err, ErrField)
				continue
			}
			require.NotEmpty(t, h.Topic)
			require.LessOrEqual(t, len(h.ProducerGroup)+len(h.Topic)+len(h.DefaultTopic)+len(h.Properties), len(v.ext))
		}
	})
}

// FuzzSendsOneAfterTheOther has a view that knows the first header read the second and then the first again.
func FuzzSendsOneAfterTheOther(f *testing.F) {
	for _, a := range knownHeaders {
		others := []string{a, strings.Replace(a, `\u0002`, `\u00zz`, 1), strings.NewReplacer("0", "1", "7", "8").Replace(a), strings.Replace(a, `"e":"1"`, `"e":"z"`, 1)}
		for _, b := range others {
			f.Add([]byte(a), []byte(b), false)
			f.Add([]byte(b), []byte(a), false)
			f.Add([]byte(packedHeader(f, a)), []byte(packedHeader(f, b)), true)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte, packed bool) {
		form := JSON
		if packed {
			form = Binary
		}
		var v View
		var h SendHeader
		for _, header := range [][]byte{first, first, first, second, first, second, second, first[:len(first)/2], second} {
			requireReadAlike(t, &v, &h, frameOf(form, string(header), ""))
		}
	})
}

func FuzzPullHeader(f *testing.F) {
	addFrames(f)
	var h PullHeader
	f.Fuzz(func(t *testing.T, b []byte) {
		var v View
		if v.Parse(b) != nil {
			return
		}
		if err := h.Decode(&v); err != nil {
			require.ErrorIs(t, err, ErrField)
			return
		}
		require.NotEmpty(t, h.Topic)
		require.NotEmpty(t, h.ConsumerGroup)
	})
}

func FuzzRecord(f *testing.F) {
	eachCapturedRecord(f, func(raw []byte, r *Record) {
		if len(raw) < 512 && r.PhysicalOffset%5 == 0 {
			f.Add(raw)
		}
	})
	v6 := sampleV6()
	f.Add(v6.Append(nil))
	f.Add(AppendBlank(nil, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		requireSamePlace(t, b)
		var r Record
		size, err := r.DecodeUnchecked(b)
		if err == nil {
			require.LessOrEqual(t, size, len(b))
			require.Equal(t, size, r.Size())
			again := r.Append(nil)
			require.Len(t, again, size)
			_, err = r.Decode(again)
			require.NoError(t, err)
			size, err = r.Decode(b)
		}
		switch {
		case err == nil:
			require.LessOrEqual(t, size, len(b))
			for _, n := range []int{0, 3, 4, 8, 40, size / 2, size - 1} {
				_, err = r.Decode(b[:min(n, size-1)])
				require.ErrorIs(t, err, ErrRecordShort)
			}
		case errors.Is(err, ErrRecordBlank):
			require.GreaterOrEqual(t, size, BlankSize)
		default:
			require.True(t, errors.Is(err, ErrRecordShort) || errors.Is(err, ErrRecordEmpty) || errors.Is(err, ErrRecordCorrupt))
			require.Zero(t, size)
		}
	})
}

// requireSamePlace holds DecodePlace to what Decode says.
func requireSamePlace(t *testing.T, b []byte) {
	var r, p Record
	size, err := r.Decode(b)
	again, placeErr := p.DecodePlace(b, true)
	require.Equal(t, size, again)
	require.Equal(t, err, placeErr)
	if err != nil {
		return
	}
	want := Record{BodyCRC: r.BodyCRC, QueueID: r.QueueID, QueueOffset: r.QueueOffset, PhysicalOffset: r.PhysicalOffset,
		SysFlag: r.SysFlag, StoreTimestamp: r.StoreTimestamp, Body: r.Body, Topic: r.Topic, Properties: r.Properties}
	require.Equal(t, want, p)
}

func FuzzBatch(f *testing.F) {
	f.Add(AppendBatchRow(AppendBatchRow(nil, BatchRow{Body: []byte("a"), Properties: []byte("k\x01v")}), BatchRow{Flag: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again, magicless []byte
		for rest := b; len(rest) > 0; {
			row, next, err := NextBatchRow(rest)
			if err != nil {
				require.ErrorIs(t, err, ErrBatch)
				return
			}
			require.Less(t, len(next), len(rest))
			again = AppendBatchRow(again, row)
			magicless = append(magicless, rest[:len(rest)-len(next)]...)
			clear(magicless[len(again)-MinBatchRow-len(row.Body)-len(row.Properties)+4:][:8])
			rest = next
		}
		require.True(t, bytes.Equal(magicless, again))
	})
}

func FuzzJSONBodies(f *testing.F) {
	for _, frame := range capturedFrames(f) {
		if c, _ := DecodeFrame(frame); len(c.Body) > 0 && len(c.Body) < 1024 && c.Body[0] == '{' {
			f.Add(c.Body)
		}
	}
	f.Add([]byte(`{{"topic":'T',"queueId":1}:{a:NaN,},,1:"x",}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		std, err := standardJSON(b)
		if err != nil {
			require.ErrorIs(t, err, ErrJSON)
			require.False(t, json.Valid(b) && len(b) < maxJSONDepth, "standard JSON is always taken")
			return
		}
		again, err := standardJSON(std)
		require.NoError(t, err)
		require.Equal(t, std, again, "what is standard stays as it is")
		for _, body := range bodyTypes {
			v, w := body.make(), body.make()
			if err = Unmarshal(b, v); err != nil {
				require.ErrorIs(t, err, ErrJSON)
				continue
			}
			out, err := Marshal(v)
			require.NoError(t, err)
			require.NoError(t, Unmarshal(out, w))
			out2, err := Marshal(w)
			require.NoError(t, err)
			require.Equal(t, string(out), string(out2))
		}
	})
}

func FuzzProperties(f *testing.F) {
	f.Add([]byte("KEYS\x01k\x02TAGS\x01t\x02"), "TAGS")
	f.Add([]byte("\x01\x02a\x01\x02a\x011\x02a\x012"), "a")
	f.Add([]byte("a\x01TAGS\x01b\x02TAGS\x01\x02TAGS\x01c\x02xTAGS\x01d\x02TAGS\x01e\x01TAGS\x01f"), "a")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		var last []byte
		found := false
		var again []byte
		EachProperty(b, func(n, v []byte) bool {
			require.NotEmpty(t, n)
			require.NotEmpty(t, v)
			if string(n) == name {
				last, found = v, true
			}
			again = AppendProperty(again, string(n), v)
			return true
		})
		value, ok := Property(b, name)
		require.Equal(t, found, ok)
		require.Equal(t, last, value)
		require.Equal(t, again, AppendPropertiesExcept(nil, b))
		TagsCode(b)
		want, has := Property(b, PropTags)
		tag, tagged := Tag(b)
		require.Equal(t, has, tagged)
		require.Equal(t, want, tag)
	})
}

func FuzzHA(f *testing.F) {
	paths, err := filepath.Glob("testdata/ha/*report-0.bin")
	require.NoError(f, err)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(b[:600], 32768)
		f.Add(b[len(b)-HAHeaderSize:], 32768)
	}
	f.Fuzz(func(t *testing.T, b []byte, maxBody int) {
		for rest := b; ; {
			offset, body, next, err := NextHAFrame(rest, maxBody)
			if err != nil {
				require.True(t, errors.Is(err, ErrHAShort) || errors.Is(err, ErrHAFrame))
				require.Len(t, next, len(rest))
				return
			}
			var head [HAHeaderSize]byte
			PutHAHeader(head[:], offset, int32(len(body)))
			require.Equal(t, rest[:HAHeaderSize], head[:])
			require.Len(t, next, len(rest)-HAHeaderSize-len(body))
			rest = next
		}
	})
}
