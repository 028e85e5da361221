package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var here = Place{"b", 1, 7}

func TestABodyTellsItsID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, size := rapid.Uint64().Draw(t, "id"), rapid.IntRange(0, 5000).Draw(t, "size")
		b := Body(id, size)
		require.Len(t, b, max(size, MinSize))
		got, err := ID(b)
		require.NoError(t, err)
		require.Equal(t, id, got)
	})
}

func TestAnyAlteredByteIsNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Body(rapid.Uint64().Draw(t, "id"), rapid.IntRange(0, 300).Draw(t, "size"))
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		_, err := ID(b)
		require.ErrorIs(t, err, ErrBody)
	})
}

func TestAShortenedBodyIsNoticed(t *testing.T) {
	b := Body(3, 100)
	for n := range b {
		_, err := ID(b[:n])
		require.ErrorIs(t, err, ErrBody)
	}
}

func TestALedgerBalances(t *testing.T) {
	var l Ledger
	id, body := l.Begin(50)
	require.Len(t, body, 50)
	l.Acked(id, here)
	require.ErrorContains(t, l.Err(), "1 of 1 acknowledged messages were not consumed")
	l.Consumed(here, body)
	require.NoError(t, l.Err())
	require.Equal(t, Count{Sent: 1, Acked: 1, Consumed: 1}, l.Count())
}

func TestWhatWasNotAcknowledgedMayComeOrNot(t *testing.T) {
	var l Ledger
	_, body := l.Begin(50)
	l.Begin(50)
	l.Consumed(here, body)
	require.NoError(t, l.Err())
	require.Equal(t, Count{Sent: 2, Consumed: 1, Extra: 1}, l.Count())
}

func TestFaultsAreTold(t *testing.T) {
	for want, spoil := range map[string]func(l *Ledger, body []byte){
		"given 2 times":          func(l *Ledger, body []byte) { l.Consumed(here, body); l.Consumed(here, body) },
		"acknowledged at {b 1 7": func(l *Ledger, body []byte) { l.Consumed(Place{"b", 1, 8}, body) },
		"never sent":             func(l *Ledger, body []byte) { l.Consumed(here, body); l.Consumed(here, Body(99, 50)) },
		"50 were sent":           func(l *Ledger, _ []byte) { l.Consumed(here, Body(1, 51)) },
		"checksum": func(l *Ledger, body []byte) {
			l.Consumed(here, body)
			body[20]++
			l.Consumed(here, body)
		},
	} {
		var l Ledger
		id, body := l.Begin(50)
		l.Acked(id, here)
		spoil(&l, body)
		require.ErrorContains(t, l.Err(), want)
		require.Equal(t, 1, l.Count().Faults, want)
	}
}

func TestManyFaultsAreCountedAndNotAllTold(t *testing.T) {
	var l Ledger
	for range 100 {
		l.Consumed(here, nil)
	}
	require.Equal(t, 100, l.Count().Faults)
	require.ErrorContains(t, l.Err(), "80 faults more")
}
