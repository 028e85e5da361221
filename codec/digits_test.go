package codec

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// genNumber is a number of any length that is not negative: of the plain generators nearly all numbers are long.
func genNumber() *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		return rapid.Int64Range(0, math.MaxInt64).Draw(t, "number") >> rapid.IntRange(0, 63).Draw(t, "shift")
	})
}

func TestNumbersAreWrittenAsStrconvWritesThem(t *testing.T) {
	check := func(n int64) {
		var b [decimalRoom]byte
		require.Equal(t, strconv.FormatInt(n, 10), string(b[:putDecimal(b[:], uint64(n))]))
		putHex(b[:], uint64(n))
		require.Equal(t, fmt.Sprintf("%016X", n), string(b[:16]))
	}
	for n := int64(1); n < math.MaxInt64/10; n *= 10 {
		check(n - 1)
		check(n)
		check(9 * n)
	}
	check(math.MaxInt64)
	for n := range int64(10000) { // all that one half of a word can be
		check(n)
		check(n * 10000)
	}
	rapid.Check(t, func(t *rapid.T) { check(genNumber().Draw(t, "n")) })
}

func TestNumbersInAHeaderAreReadAsParseIntReadsDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.StringMatching(`[0-9":]{0,12}`).Draw(t, "before")
		text := rapid.OneOf(
			rapid.StringMatching(`[0-9]{0,20}`),
			rapid.StringMatching(`0{0,12}[0-9]{0,10}`),
			rapid.StringMatching(`[0-9]{0,9}[-+ a/:0x]?[0-9]{0,9}`),
			rapid.Map(genNumber(), func(n int64) string { return strconv.FormatInt(n, 10) }),
		).Draw(t, "text")
		header := []byte(before + text + `",`)
		s := span{uint32(len(before)), uint32(len(before) + len(text))}
		want, ok := parseInt([]byte(text), 64)
		ok = ok && digits([]byte(text)) == len(text)
		got, isNumber := s.number(header)
		require.Equal(t, ok, isNumber, "%q", text)
		if ok {
			require.Equal(t, want, got)
		}
	})
}
