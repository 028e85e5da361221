package demo

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/bench/ledger"
)

func TestMain(m *testing.M) {
	// The network library starts goroutines of its own when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func newTour() (*tour, *strings.Builder) {
	var out strings.Builder
	return &tour{Options: Options{Out: &out}}, &out
}

func TestTheVerdictHoldsWhenAllThatWasAcknowledgedCameBack(t *testing.T) {
	tr, out := newTour()
	at := ledger.Place{Broker: brokerName}
	id, body := tr.book.Begin(100)
	tr.book.Acked(id, at)
	tr.book.Consumed(at, body)
	_, cut := tr.book.Begin(100)
	tr.book.Consumed(ledger.Place{Broker: brokerName, Offset: 1}, cut)
	require.NoError(t, tr.verdict())
	require.Contains(t, out.String(), "1 of 1")
	require.Contains(t, out.String(), "IT HOLDS")
}

func TestTheVerdictFailsWhenAMessageIsMissing(t *testing.T) {
	tr, out := newTour()
	id, _ := tr.book.Begin(100)
	tr.book.Acked(id, ledger.Place{})
	require.ErrorIs(t, tr.verdict(), ErrVerdict)
	require.Contains(t, out.String(), "FAILED")
	require.Contains(t, out.String(), "DOES NOT HOLD")
}

func TestTheVerdictFailsWhenAnEarlierCheckFailed(t *testing.T) {
	tr, out := newTour()
	tr.check(nil, "one is fine")
	tr.check(errors.New("at byte 7\nthey differ"), "two logs are alike")
	require.ErrorIs(t, tr.verdict(), ErrVerdict)
	require.Contains(t, out.String(), "   ok      one is fine\n")
	require.Contains(t, out.String(), "   FAILED  two logs are alike:\n           at byte 7\n           they differ\n")
}

func TestATourWithoutABinaryFailsAndCleansUp(t *testing.T) {
	var out strings.Builder
	err := Run(t.Context(), Options{Binary: filepath.Join(t.TempDir(), "nothing"), Dir: t.TempDir(), Out: &out})
	require.ErrorContains(t, err, "step 1")
	require.ErrorContains(t, err, "namesrv")
}
