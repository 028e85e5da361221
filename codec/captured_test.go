package codec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// capturedFrames are the whole frames below testdata/frames, by "folder/name".
func capturedFrames(t testing.TB) map[string][]byte {
	t.Helper()
	frames := map[string][]byte{}
	paths, err := filepath.Glob("testdata/frames/*/*.re*")
	require.NoError(t, err)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		frames[strings.TrimPrefix(path, "testdata/frames/")] = b
	}
	require.Greater(t, len(frames), 200)
	return frames
}

func TestCapturedFramesDecodeAsJSONSaysAndSurviveBothHeaderForms(t *testing.T) {
	for name, frame := range capturedFrames(t) {
		t.Run(name, func(t *testing.T) {
			c, err := DecodeFrame(frame)
			require.NoError(t, err)
			require.Equal(t, strings.HasSuffix(name, ".resp"), c.IsResponse())
			require.Equal(t, strings.Contains(name, "oneway") || oneway(name), c.IsOneway())
			if c.Serialize == JSON {
				requireSameAsEncodingJSON(t, frame, c)
			}
			for _, s := range []Serialize{JSON, Binary} {
				c.Serialize = s
				again, err := DecodeFrame(AppendFrame(nil, &c))
				require.NoError(t, err)
				requireSameCommand(t, c, again)
			}
		})
	}
}

// oneway says which captured requests without the word in their name expect no answer.
func oneway(name string) bool {
	return strings.Contains(name, "015-") || strings.Contains(name, "037-")
}

func requireSameCommand(t testing.TB, want, got Command) {
	t.Helper()
	if len(want.Ext) == 0 {
		want.Ext = got.Ext
		require.Empty(t, got.Ext)
	}
	if len(want.Body) == 0 {
		want.Body = got.Body
		require.Empty(t, got.Body)
	}
	require.Equal(t, want, got)
}

func requireSameAsEncodingJSON(t *testing.T, frame []byte, c Command) {
	t.Helper()
	_, header, body, err := splitFrame(frame)
	require.NoError(t, err)
	var want struct {
		Code, Flag, Opaque, Version int32
		Language, Remark            string
		ExtFields                   map[string]string
	}
	require.NoError(t, json.Unmarshal(header, &want))
	require.Equal(t, want.Code, c.Code)
	require.Equal(t, want.Flag, c.Flag)
	require.Equal(t, want.Opaque, c.Opaque)
	require.Equal(t, want.Version, c.Version)
	require.Equal(t, want.Language, LanguageName(c.Language))
	require.Equal(t, want.Remark, c.Remark)
	require.Equal(t, len(want.ExtFields), len(c.Ext))
	for name, value := range want.ExtFields {
		require.Equal(t, value, c.Ext[name])
	}
	require.Equal(t, body, c.Body)
}

// bodyTypes says what a captured body is, by folder/name.
var bodyTypes = []struct {
	pattern string
	make    func() any
}{
	{`/034-.*req$`, func() any { return new(Heartbeat) }},
	{`/038-.*resp$`, func() any { return new(ConsumerList) }},
	{`/04[12]-.*req$`, func() any { return new(LockBatchRequest) }},
	{`/041-.*resp$`, func() any { return new(LockBatchResponse) }},
	{`/021-.*resp$`, func() any { return new(TopicConfigs) }},
	{`/028-.*resp$`, func() any { return new(KVTable) }},
	{`/043-.*resp$`, func() any { return new(ConsumerOffsets) }},
	{`/045-.*resp$`, func() any { return new(DelayOffsets) }},
	{`103-register.*req$`, func() any { return new(RegisterBrokerBody) }},
	{`/105-.*resp$`, func() any { return new(TopicRoute) }},
	{`/106-.*resp$`, func() any { return new(ClusterInfo) }},
	{`/201-.*resp$`, func() any { return new(SubscriptionGroups) }},
	{`/202-.*resp$`, func() any { return new(TopicStats) }},
	{`/203-.*resp$`, func() any { return new(ConsumerConnection) }},
	{`/206-.*resp$`, func() any { return new(TopicList) }},
	{`/208-.*resp$`, func() any { return new(ConsumeStats) }},
	{`/322-`, func() any { return new(DataVersion) }},
	{`/351-.*resp$`, func() any { return new(TopicConfig) }},
	{`/402-.*resp$`, func() any { return new(MessageRequestModes) }},
	{`/901-.*resp$`, func() any { return new(BrokerMemberGroupBody) }},
	{`/907-.*resp$`, func() any { return new(BrokerHAStatus) }},
}

func bodyType(name string) any {
	for _, b := range bodyTypes {
		if regexp.MustCompile(b.pattern).MatchString(name) {
			return b.make()
		}
	}
	return nil
}

func TestCapturedJSONBodiesKeepEveryFieldThroughDecodeAndEncode(t *testing.T) {
	seen := map[string]bool{}
	for name, frame := range capturedFrames(t) {
		c, err := DecodeFrame(frame)
		require.NoError(t, err)
		if len(c.Body) == 0 || c.Body[0] != '{' {
			continue
		}
		t.Run(name, func(t *testing.T) {
			v, again := bodyType(name), bodyType(name)
			require.NotNil(t, v, "body %.200s", c.Body)
			seen[strings.SplitN(filepath.Base(name), "-", 2)[0]] = true
			require.NoError(t, Unmarshal(c.Body, v))
			out, err := Marshal(v)
			require.NoError(t, err)
			requireContains(t, "", anyJSON(t, c.Body), anyJSON(t, out))
			require.NoError(t, Unmarshal(out, again))
			require.Equal(t, v, again)
		})
	}
	require.GreaterOrEqual(t, len(seen), 18)
}

func TestCapturedConfigFilesDecodeAndSurvive(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		for file, make := range map[string]func() any{
			"topics":            func() any { return new(TopicConfigs) },
			"subscriptionGroup": func() any { return new(SubscriptionGroups) },
			"consumerOffset":    func() any { return new(ConsumerOffsets) },
			"delayOffset":       func() any { return new(DelayOffsets) },
		} {
			t.Run(version+"/"+file, func(t *testing.T) {
				src, err := os.ReadFile(filepath.Join("testdata/config", version, file+".json"))
				require.NoError(t, err)
				v, again := make(), make()
				require.NoError(t, Unmarshal(src, v))
				out, err := MarshalIndent(v)
				require.NoError(t, err)
				require.Contains(t, string(out), "\n\t\"")
				requireContains(t, "", anyJSON(t, src), anyJSON(t, out))
				require.True(t, json.Valid(out), "standard JSON")
				require.NoError(t, Unmarshal(out, again))
				require.Equal(t, v, again)
			})
		}
	}
}

// anyJSON is src as maps and lists, object keys as their text.
func anyJSON(t testing.TB, src []byte) any {
	t.Helper()
	std, err := standardJSON(src)
	require.NoError(t, err)
	var v any
	require.NoError(t, json.Unmarshal(std, &v))
	return v
}

// requireContains checks that everything in want stands in got with the same value.
func requireContains(t testing.TB, path string, want, got any) {
	t.Helper()
	wantMap, isMap := want.(map[string]any)
	if !isMap {
		if list, isList := want.([]any); isList {
			gotList, _ := got.([]any)
			require.Len(t, gotList, len(list), path)
			for i := range list {
				requireContains(t, path+"/"+strconv.Itoa(i), list[i], gotList[i])
			}
			return
		}
		require.Equal(t, want, got, path)
		return
	}
	gotMap, isMap := got.(map[string]any)
	require.True(t, isMap, path)
	for name, value := range wantMap {
		require.Contains(t, gotMap, name, path)
		requireContains(t, path+"/"+name, value, gotMap[name])
	}
}

func TestRoutesAreWrittenByteForByteAsApacheDoes(t *testing.T) {
	frames := capturedFrames(t)
	for name, standard := range map[string]bool{
		"namesrv-5.5.0/105-route-standard-json.resp": true,
		"namesrv-5.5.0/105-route-number-keys.resp":   false,
	} {
		c, err := DecodeFrame(frames[name])
		require.NoError(t, err)
		var route TopicRoute
		require.NoError(t, Unmarshal(c.Body, &route))
		require.Equal(t, string(c.Body), string(route.AppendJSON(nil, standard)))
	}
	c, err := DecodeFrame(frames["namesrv-5.5.0/106-cluster-info.resp"])
	require.NoError(t, err)
	var info ClusterInfo
	require.NoError(t, Unmarshal(c.Body, &info))
	require.Equal(t, string(c.Body), string(info.AppendJSON(nil, false)))
	c, err = DecodeFrame(frames["namesrv-5.5.0/901-member-group.resp"])
	require.NoError(t, err)
	var group BrokerMemberGroupBody
	require.NoError(t, Unmarshal(c.Body, &group))
	require.Equal(t, string(c.Body), string(group.AppendJSON(nil, false)))
}
